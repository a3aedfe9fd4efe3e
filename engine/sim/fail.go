package sim

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/rowmill/rowmill/internal/textfmt"
)

// failure is the error in the answer to a refused request.
type failure struct {
	status int
	kind   string // vLLM's type, such as BadRequestError
	param  string // the wrong field of the request; empty for none
	text   string
	wait   time.Duration // time in the header Retry-After; 0 for no header
}

// Error returns the text.
func (f *failure) Error() string { return f.text }

// badRequest returns the failure of a request with a wrong field. param names the field;
// empty for none.
func badRequest(param, format string, args ...any) *failure {
	return &failure{status: 400, kind: "BadRequestError", param: param, text: fmt.Sprintf(format, args...)}
}

// retrySoon is the Retry-After of a server that is full or set to fail.
const retrySoon = time.Second

// statusFailure returns the failure for an injected fault with this HTTP status.
func statusFailure(status int) *failure {
	f := &failure{status: status, kind: "APIError", text: "simulated failure with status " + strconv.Itoa(status)}
	switch {
	case status == 400:
		f.kind, f.text = "BadRequestError", "simulated refusal: this request is rejected for good"
	case status == 404:
		f.kind = "NotFoundError"
	case status == 429:
		f.kind, f.wait = "RateLimitError", retrySoon
	case status == 503:
		f.kind, f.wait = "ServiceUnavailableError", retrySoon
	case status >= 500:
		f.kind = "InternalServerError"
	}
	return f
}

// startFailure returns the failure of a request that the engine did not accept.
func startFailure(err error) *failure {
	if errors.Is(err, ErrTooLong) {
		return badRequest("input_tokens", "%v", err)
	}
	f := statusFailure(503)
	f.text = err.Error()
	return f
}

// appendBody appends the JSON body of the error, in vLLM's form.
func (f *failure) appendBody(dst []byte) []byte {
	param := []byte("null")
	if f.param != "" {
		param = textfmt.AppendString(nil, []byte(f.param))
	}
	return fmt.Appendf(dst, `{"error":{"message":%s,"type":"%s","param":%s,"code":%d},"simulated":true}`,
		textfmt.AppendString(nil, []byte(f.text)), f.kind, param, f.status)
}
