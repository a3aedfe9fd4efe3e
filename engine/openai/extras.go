package openai

import (
	"net/http"
	"slices"
	"strings"

	"github.com/rowmill/rowmill/engine"
)

// An extra is a field of requests that Rowmill adds and no job asks for. A server that
// refuses it gets no further requests with it.
type extra string

const (
	extraLogprobs extra = "logprobs"
	// OpenAI's newer models accept only max_completion_tokens.
	extraMaxTokens extra = "max_tokens"
)

// notice is the warning that the job gets.
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

// leftOut records which extras a server refused or accepted for a model.
type leftOut struct {
	extras []extra // refused
	proven bool    // a row was answered with extraLogprobs
}

// leftOut returns the state of a model, after the changes that change makes to it.
func (e *Engine) leftOut(model string, change func(*leftOut)) leftOut {
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

// leaveOut sends all further requests of the call without an extra, and reports whether
// they change.
func (c *call) leaveOut(x extra) bool {
	c.engine.leftOut(c.target.name, func(l *leftOut) {
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

// provenFailures is after how many answers of HTTP 500 a row is asked for without log
// probabilities, if the server has answered other rows with them: it fails by chance more
// often than because of a row's log probabilities.
const provenFailures = 2

// trailerOf is the trailer of a row's request. A row that the server has answered with HTTP
// 500 is asked for without log probabilities: they may be the cause, and most servers do
// not say so.
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

// learn applies an answer to the decision about log probabilities. If the server has
// answered no row with them, and mostBare only without, further rows are asked for without.
func (c *call) learn(t *trailer, row engine.Row) {
	switch {
	case c.adds(extraLogprobs, t):
		if !c.proven.Load() {
			c.proven.Store(true)
			c.engine.leftOut(c.target.name, func(l *leftOut) { l.proven = true })
		}
	case row.Failures == 0 || !c.adds(extraLogprobs, c.trailer.Load()):
	case c.bare.Add(1) >= mostBare && !c.proven.Load():
		c.leaveOut(extraLogprobs)
	default:
		c.notices.add("logprobs: the server answered HTTP 500 to some rows until they were asked for without; cumulative_logprobs of these rows is null. logprobs: false in sampling_params spares the failures.")
	}
}

// mostBare is how many rows are answered only without log probabilities before they are
// left out for the model: a single HTTP 500 may be chance.
const mostBare = 2

// rest is the size of the trailer in bytes.
func (c *call) rest() int {
	if b := c.trailer.Load(); b != nil {
		return len(b.middle)
	}
	return len(c.middle)
}
