package sim

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/rowmill/rowmill/internal/textfmt"
)

// apiError is the error in the answer to a refused request.
type apiError struct {
	status int
	kind   string // vLLM's type, such as BadRequestError
	param  string // the wrong field of the request; empty for none
	text   string
	wait   time.Duration // time in the header Retry-After; 0 for no header
}

// Error returns the text.
func (f *apiError) Error() string { return f.text }

// badRequest returns the apiError of a request with a wrong field. param names the field;
// empty for none.
func badRequest(param, format string, args ...any) *apiError {
	return &apiError{status: 400, kind: "BadRequestError", param: param, text: fmt.Sprintf(format, args...)}
}

// retrySoon is the Retry-After of a server that is full or set to fail.
const retrySoon = time.Second

// statusError returns the apiError for an injected fault with this HTTP status.
func statusError(status int) *apiError {
	f := &apiError{status: status, kind: "APIError", text: "simulated failure with status " + strconv.Itoa(status)}
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

// engineStartError returns the apiError of a request that the engine did not accept.
func engineStartError(err error) *apiError {
	if errors.Is(err, ErrTooLong) {
		return badRequest("input_tokens", "%v", err)
	}
	f := statusError(503)
	f.text = err.Error()
	return f
}

// appendBody appends the JSON body of the error, in vLLM's form.
func (f *apiError) appendBody(dst []byte) []byte {
	param := []byte("null")
	if f.param != "" {
		param = textfmt.AppendString(nil, []byte(f.param))
	}
	return fmt.Appendf(dst, `{"error":{"message":%s,"type":"%s","param":%s,"code":%d},"simulated":true}`,
		textfmt.AppendString(nil, []byte(f.text)), f.kind, param, f.status)
}
