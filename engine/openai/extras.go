package openai

import (
	"net/http"
	"slices"
	"strings"

	"github.com/rowmill/rowmill/engine"
)

// An extra is a request field that Rowmill adds by itself, although no job asks for it.
// If a server refuses an extra for a model, further requests for the model do not have it.
type extra string

const (
	extraLogprobs extra = "logprobs"
	// OpenAI's newer models accept only max_completion_tokens.
	extraMaxTokens extra = "max_tokens"
)

// notice is the warning that the job gets.
func (x extra) notice() string {
	if x == extraLogprobs {
		return "logprobs: the server refuses log probabilities, so Rowmill asks for answers without them, and cumulative_logprobs is null. Set logprobs: false in sampling_params to avoid the first refusal."
	}
	return "max_tokens: the server accepts this limit only as max_completion_tokens, so Rowmill sends it under this name."
}

// refused reports whether a refusal is about the extra. said is the text of the refusal in
// lower case, and param is the field that the refusal names.
func (x extra) refused(said, param string) bool {
	if x == extraLogprobs {
		return param == "logprobs" || param == "top_logprobs" || strings.Contains(said, "logprob") || strings.Contains(said, unwritable)
	}
	return strings.Contains(said, "max_completion_tokens")
}

// unwritable is a part of the message with which a Python server answers 500, because it
// cannot write an infinite log probability as JSON (SGLang issue 5984, vLLM issue 10234).
const unwritable = "out of range float values are not json compliant"

// without returns the fields of a request without the extra. It does not remove
// max_tokens, but renames it to max_completion_tokens.
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

// refusedExtra returns the extra that a refusal is about; empty for none.
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

// leftOut records which extras a server refused or accepted for a model.
type leftOut struct {
	extras []extra // refused
	proven bool    // a row was answered with extraLogprobs
}

// updateLeftOut applies change to the record of a model and returns the record. A nil
// change changes nothing.
func (e *Engine) updateLeftOut(model string, change func(*leftOut)) leftOut {
	e.mu.Lock()
	defer e.mu.Unlock()
	state := e.left[model]
	if change != nil {
		change(&state)
		if e.left == nil {
			e.left = map[string]leftOut{}
		}
		e.left[model] = state
	}
	return state
}

// leaveOut leaves an extra out of all further requests of the call. It returns false if
// it cannot build such requests.
func (c *call) leaveOut(x extra) bool {
	c.engine.updateLeftOut(c.target.name, func(l *leftOut) {
		if !slices.Contains(l.extras, x) {
			l.extras = append(slices.Clone(l.extras), x)
		}
	})
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

// A trailer is the part of a chat request behind the prompt.
type trailer struct {
	middle  []byte
	without []extra // the extras that middle does not have
}

// trailerWithout makes a trailer that does not have the given extras.
func (c *call) trailerWithout(without []extra) (*trailer, error) {
	fields := c.fields
	for _, x := range without {
		fields = x.without(fields)
	}
	middle, err := appendFields([]byte(`"}]`), fields)
	return &trailer{middle, without}, err
}

// provenFailures is the number of HTTP 500 answers to a row after which the row is sent
// without a request for log probabilities, if the server has answered other rows with log
// probabilities. Such a server fails more often by chance than because of the log
// probabilities of a row.
const provenFailures = 2

// trailerOf returns the trailer of a row's request. If the server has answered HTTP 500 to
// the row, the request does not ask for log probabilities: they may be the cause, and most
// servers do not say so.
func (c *call) trailerOf(row engine.Row) *trailer {
	usual := c.trailer.Load()
	if row.Failures == 0 || c.proven.Load() && row.Failures < provenFailures || !c.adds(extraLogprobs, usual) {
		return usual
	}
	bare, err := c.trailerWithout(append(slices.Clone(usual.without), extraLogprobs))
	if err != nil {
		return usual
	}
	return bare
}

// adds reports whether a trailer has an extra.
func (c *call) adds(x extra, t *trailer) bool {
	return slices.Contains(c.asked.extras, x) && !slices.Contains(t.without, x)
}

// learn decides after an answer whether further rows ask for log probabilities. They do
// not if the server has answered no row with log probabilities, and mostBare rows only
// without.
func (c *call) learn(t *trailer, row engine.Row) {
	switch {
	case c.adds(extraLogprobs, t):
		if !c.proven.Load() {
			c.proven.Store(true)
			c.engine.updateLeftOut(c.target.name, func(l *leftOut) { l.proven = true })
		}
	case row.Failures == 0 || !c.adds(extraLogprobs, c.trailer.Load()):
	case c.bare.Add(1) >= mostBare && !c.proven.Load():
		c.leaveOut(extraLogprobs)
	default:
		c.notices.add("logprobs: the server answered HTTP 500 to some rows until Rowmill sent them without a request for log probabilities; cumulative_logprobs of these rows is null. Set logprobs: false in sampling_params to avoid the failures.")
	}
}

// mostBare is the number of rows answered only without log probabilities after which no
// row of the model asks for them: a single HTTP 500 may be chance.
const mostBare = 2

// trailerSize returns the size of the part of a request behind the prompt, in bytes.
func (c *call) trailerSize() int {
	if b := c.trailer.Load(); b != nil {
		return len(b.middle)
	}
	return len(c.middle)
}
