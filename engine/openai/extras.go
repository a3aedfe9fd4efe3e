package openai

import (
	"net/http"
	"slices"
	"strings"

	"github.com/rowmill/rowmill/engine"
)

// An extraField is a request field that Rowmill adds by itself, although the job does not
// ask for it. If a server refuses an extra for a model, Rowmill leaves the extra out of
// further requests for this model.
type extraField string

const (
	extraLogprobs extraField = "logprobs"
	// extraMaxTokens is the field max_tokens. OpenAI's newer models refuse it and
	// accept only max_completion_tokens.
	extraMaxTokens extraField = "max_tokens"
)

// notice returns the warning for jobs whose requests no longer have the extra.
func (x extraField) notice() string {
	if x == extraLogprobs {
		return "logprobs: the server refuses log probabilities, so Rowmill asks for answers without them, and cumulative_logprobs is null. Set logprobs: false in sampling_params to avoid the first refusal."
	}
	return "max_tokens: the server accepts this limit only as max_completion_tokens, so Rowmill sends it under this name."
}

// causedRefusal reports whether the server refused a request because of the extra. said is
// the text of the refusal in lower case, and param is the field that the refusal names.
func (x extraField) causedRefusal(refusalText, param string) bool {
	if x == extraLogprobs {
		return param == "logprobs" || param == "top_logprobs" || strings.Contains(refusalText, "logprob") || strings.Contains(refusalText, unwritable)
	}
	return strings.Contains(refusalText, "max_completion_tokens")
}

// unwritable is a part of an error message. A Python server answers 500 with this
// message if it cannot write an infinite log probability as JSON (SGLang issue 5984,
// vLLM issue 10234).
const unwritable = "out of range float values are not json compliant"

// removeFrom returns a copy of the request fields without the extra. It does not remove
// max_tokens, but renames it to max_completion_tokens.
func (x extraField) removeFrom(fields []requestField) []requestField {
	if x == extraLogprobs {
		return slices.DeleteFunc(slices.Clone(fields), func(f requestField) bool { return f.name == "logprobs" || f.name == "top_logprobs" })
	}
	fields = slices.Clone(fields)
	for i, f := range fields {
		if f.name == "max_tokens" {
			fields[i].name = "max_completion_tokens"
		}
	}
	return fields
}

// An extraRefusedError is the error of a request that the server refused because of an
// extra.
type extraRefusedError struct {
	fault *engine.Error
	extra extraField
}

func (e *extraRefusedError) Error() string { return e.fault.Error() }
func (e *extraRefusedError) Unwrap() error { return e.fault }

// findRefusedExtra returns the extra that caused a refusal, or an empty string if no extra
// caused it. said is the text of the refusal in lower case, and param is the field that
// the refusal names.
func (a requestSettings) findRefusedExtra(status int, refusalText, param string) extraField {
	switch status {
	case http.StatusBadRequest, http.StatusForbidden, http.StatusUnprocessableEntity, http.StatusInternalServerError, http.StatusNotImplemented: // OpenAI's newer models answer 403
	default:
		return ""
	}
	for _, x := range a.extras {
		if x.causedRefusal(refusalText, param) {
			return x
		}
	}
	return ""
}

// extraRecord records which extras a server refused or accepted for a model.
type extraRecord struct {
	extras []extraField // extras that the server refused
	proven bool         // the server has answered a row with extraLogprobs
}

// updateExtraRecord applies change to the record of a model and returns the new record. If
// change is nil, it only returns the record.
func (e *Engine) updateExtraRecord(model string, change func(*extraRecord)) extraRecord {
	e.mu.Lock()
	defer e.mu.Unlock()
	state := e.extraRecords[model]
	if change != nil {
		change(&state)
		if e.extraRecords == nil {
			e.extraRecords = map[string]extraRecord{}
		}
		e.extraRecords[model] = state
	}
	return state
}

// omitExtra removes an extra from all further requests of the call. It returns false if
// it cannot build the requests.
func (c *preparedCall) omitExtra(x extraField) bool {
	c.engine.updateExtraRecord(c.target.name, func(l *extraRecord) {
		if !slices.Contains(l.extras, x) {
			l.extras = append(slices.Clone(l.extras), x)
		}
	})
	c.notices.add(x.notice())
	before := c.trailer.Load()
	if slices.Contains(before.without, x) { // another row has already removed x
		return true
	}
	next, err := c.buildTailWithout(append(slices.Clone(before.without), x))
	if err != nil {
		return false
	}
	c.trailer.CompareAndSwap(before, next)
	return true
}

// A requestTail is the JSON after the prompt in a chat request.
type requestTail struct {
	middle  []byte
	without []extraField // extras that middle does not contain
}

// buildTailWithout builds a requestTail without the given extras.
func (c *preparedCall) buildTailWithout(without []extraField) (*requestTail, error) {
	fields := c.fields
	for _, x := range without {
		fields = x.removeFrom(fields)
	}
	middle, err := appendFields([]byte(c.messagesEnd()), fields)
	return &requestTail{middle, without}, err
}

// maxFailuresWithLogprobs is a number of HTTP 500 answers to one row. After so many failures
// Rowmill sends the row without a request for log probabilities, even if the server has
// answered other rows with log probabilities. Fewer failures of such a server probably
// have another cause.
const maxFailuresWithLogprobs = 2

// tailForRow returns the requestTail for a row's request. After HTTP 500 answers to the
// row, the request is sent without log probabilities: they may be the cause, and most
// servers do not name the cause. See maxFailuresWithLogprobs for the number of answers.
func (c *preparedCall) tailForRow(row engine.Row) *requestTail {
	usual := c.trailer.Load()
	if row.Failures == 0 || c.proven.Load() && row.Failures < maxFailuresWithLogprobs || !c.hasAdded(extraLogprobs, usual) {
		return usual
	}
	bare, err := c.buildTailWithout(append(slices.Clone(usual.without), extraLogprobs))
	if err != nil {
		return usual
	}
	return bare
}

// hasAdded reports whether Rowmill by itself added the extra x to requests with the
// requestTail t.
func (c *preparedCall) hasAdded(x extraField, t *requestTail) bool {
	return slices.Contains(c.settings.extras, x) && !slices.Contains(t.without, x)
}

// recordLogprobsOutcome records that the server answered a row whose request had the
// requestTail t. Further rows do not ask for log probabilities once the server has answered
// maxRowsWithoutLogprobs rows only without log probabilities, and no row with them.
func (c *preparedCall) recordLogprobsOutcome(t *requestTail, row engine.Row) {
	switch {
	case c.hasAdded(extraLogprobs, t):
		if !c.proven.Load() {
			c.proven.Store(true)
			c.engine.updateExtraRecord(c.target.name, func(l *extraRecord) { l.proven = true })
		}
	case row.Failures == 0 || !c.hasAdded(extraLogprobs, c.trailer.Load()):
	case c.rowsWithoutLogprobs.Add(1) >= maxRowsWithoutLogprobs && !c.proven.Load():
		c.omitExtra(extraLogprobs)
	default:
		c.notices.add("logprobs: the server answered HTTP 500 to some rows until Rowmill sent them without a request for log probabilities; cumulative_logprobs of these rows is null. Set logprobs: false in sampling_params to avoid the failures.")
	}
}

// maxRowsWithoutLogprobs is the number of rows answered only without log probabilities after which
// Rowmill no longer asks for them for this model. A single HTTP 500 may be chance.
const maxRowsWithoutLogprobs = 2

// tailSize returns the number of bytes after the prompt in a request.
func (c *preparedCall) tailSize() int {
	if b := c.trailer.Load(); b != nil {
		return len(b.middle)
	}
	return len(c.middle)
}
