package openai

import (
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/rowmill/rowmill/engine"
)

// An extra is a field of requests that Rowmill adds and no job asks for. A server that
// refuses it is asked without it from then on.
type extra string

const (
	extraLogprobs extra = "logprobs"
	// OpenAI's newer models accept only max_completion_tokens.
	extraMaxTokens extra = "max_tokens"
)

// notice is the warning for the job.
func (x extra) notice() string {
	if x == extraLogprobs {
		return "logprobs: the server refuses them, so that answers are asked for without, and cumulative_logprobs is null. logprobs: false in sampling_params spares the first refusal."
	}
	return "max_tokens: the server wants it as max_completion_tokens, and gets it so."
}

// refused reports whether a refusal is about the extra. said is the text of the refusal in
// lower case.
func (x extra) refused(said, param string) bool {
	if x == extraLogprobs {
		return param == "logprobs" || param == "top_logprobs" || strings.Contains(said, "logprob") || strings.Contains(said, unwritable)
	}
	return strings.Contains(said, "max_completion_tokens")
}

// unwritable is in the message of a Python server that cannot write an infinite log
// probability as JSON, with 500 (SGLang issue 5984, vLLM issue 10234).
const unwritable = "out of range float values are not json compliant"

// without returns the fields of a request without the extra.
func (x extra) without(fields []param) []param {
	if x == extraLogprobs {
		return slices.DeleteFunc(slices.Clone(fields), func(f param) bool { return f.name == "logprobs" || f.name == "top_logprobs" })
	}
	fields = slices.Clone(fields)
	for i, f := range fields {
		if f.name == "max_tokens" {
			fields[i].name = "max_completion_tokens"
		}
	}
	return fields
}

// An extraRefused is the error of a request that was refused because of an extra.
type extraRefused struct {
	fault *engine.Error
	extra extra
}

func (e *extraRefused) Error() string { return e.fault.Error() }
func (e *extraRefused) Unwrap() error { return e.fault }

// refusedExtra is the extra that a refusal is about; empty for none.
func (a asked) refusedExtra(status int, said, param string) extra {
	switch status {
	case http.StatusBadRequest, http.StatusForbidden, http.StatusUnprocessableEntity, http.StatusInternalServerError, http.StatusNotImplemented: // 403: OpenAI's newer models
	default:
		return ""
	}
	for _, x := range a.extras {
		if x.refused(said, param) {
			return x
		}
	}
	return ""
}

// leftOut holds the refused extras of a server by model.
type leftOut struct {
	mu    sync.Mutex
	extra map[string][]extra
}

func (l *leftOut) of(model string) []extra {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.extra[model])
}

func (l *leftOut) add(model string, x extra) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.extra == nil {
		l.extra = make(map[string][]extra)
	}
	if !slices.Contains(l.extra[model], x) {
		l.extra[model] = append(l.extra[model], x)
	}
}

// leaveOut sends all further requests of the call without an extra, and reports whether
// they change.
func (c *call) leaveOut(x extra) bool {
	c.engine.left.add(c.target.name, x)
	c.notices.add(x.notice())
	before := c.trailer.Load()
	if slices.Contains(before.without, x) { // another row was first
		return true
	}
	next, err := c.trailerWithout(append(slices.Clone(before.without), x))
	if err != nil {
		return false
	}
	c.trailer.CompareAndSwap(before, next)
	return true
}

// A trailer is the part of a request behind the prompt.
type trailer struct {
	middle  []byte
	without []extra
}

// trailerWithout makes the trailer without some extras.
func (c *call) trailerWithout(without []extra) (*trailer, error) {
	fields := c.fields
	for _, x := range without {
		fields = x.without(fields)
	}
	middle, err := appendFields([]byte(`"}]`), fields)
	return &trailer{middle, without}, err
}

// rest is the size of the trailer in bytes.
func (c *call) rest() int {
	if b := c.trailer.Load(); b != nil {
		return len(b.middle)
	}
	return len(c.middle)
}
