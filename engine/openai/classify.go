package openai

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
)

// maxRetryAfter bounds what a server may ask us to wait: a row that waits holds
// its job up, and asking again once a minute overloads nobody.
const maxRetryAfter = time.Minute

// classOf sorts a status into whose fault it is, before the message is looked
// at. 500 is a passing fault here; whoever retries gives it few attempts, since
// it may be the row's.
func classOf(status int) engine.Class {
	switch status {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge,
		http.StatusUnprocessableEntity, http.StatusNotImplemented:
		return engine.RowFault
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly,
		http.StatusFailedDependency, // TGI: an error while generating
		http.StatusTooManyRequests:
		return engine.Moment
	}
	if status >= 500 {
		return engine.Moment
	}
	// 401, 403, 404, 405, redirects, and all else that no row can cause: the
	// server is set up wrongly.
	return engine.ServerFault
}

// A refusal is an answer with another status than 200.
type refusal struct {
	status     int
	retryAfter time.Duration
	fault      serverFault
}

// classify makes the error of a refusal. schema says that a JSON Schema was
// sent; private are the texts that must not be passed on.
func (x refusal) classify(schema bool, private ...[]byte) *engine.Error {
	e := &engine.Error{
		Class:      classOf(x.status),
		Status:     x.status,
		Code:       x.fault.word("http_" + strconv.Itoa(x.status)),
		RetryAfter: x.retryAfter,
		Overloaded: x.status == http.StatusTooManyRequests || x.status == http.StatusServiceUnavailable,
	}
	lower := strings.ToLower(x.fault.message)
	words := strings.ToLower(x.fault.kind + " " + x.fault.code)
	switch {
	case x.status == http.StatusInternalServerError && strings.Contains(lower, "too large to process"):
		// llama.cpp: an embedding text longer than its physical batch.
		e.Class, e.TooLong = engine.RowFault, true
	case x.status == http.StatusInternalServerError && strings.Contains(lower, "context size has been exceeded"):
		// llama.cpp: its slots share one KV cache (--kv-unified) and have filled it.
		e.Overloaded = true
	case e.Class == engine.RowFault && x.status != http.StatusNotImplemented && overflows(lower, words):
		e.TooLong = true
	case e.Class == engine.RowFault && schema && refusesSchema(lower):
		e.Class = engine.JobFault
	}
	if e.TooLong {
		e.Code = rowmill.RowTooLong
	}
	e.Message = "the server refused the request"
	switch e.Class {
	case engine.Moment:
		e.Message = "the server could not answer now"
	case engine.ServerFault:
		e.Message = "the server is not set up for this request"
	case engine.JobFault:
		e.Message = "the server cannot work with this json_schema"
	}
	if shown := x.fault.shown(private...); shown != "" {
		e.Message += ": " + shown
	}
	return e
}

// overflows recognises that a prompt does not fit the context. The phrases are
// those of vLLM (several versions), SGLang, llama.cpp, TGI, OpenAI and our own
// simulated server, in lower case.
func overflows(message, words string) bool {
	for _, word := range []string{"exceed_context_size", "context_length_exceeded"} {
		if strings.Contains(words, word) {
			return true
		}
	}
	for _, phrase := range []string{
		"context length",
		"context size",
		"context window",
		"maximum model length",
		"too long to fit into the model",
		"longer than the maximum",
		"`inputs` tokens + `max_new_tokens` must be",
		"too large to process",
	} {
		if strings.Contains(message, phrase) {
			return true
		}
	}
	return false
}

// refusesSchema recognises that the server could not compile the schema, which
// no other row changes.
func refusesSchema(message string) bool {
	for _, phrase := range []string{"schema", "grammar", "response_format", "structured output", "guided decoding"} {
		if strings.Contains(message, phrase) {
			return true
		}
	}
	return false
}

// parseRetryAfter reads the header Retry-After: seconds or a date. Anything else
// is no wish at all.
func parseRetryAfter(value string, now time.Time) time.Duration {
	value = strings.TrimSpace(value)
	if value == "" {
		return 0
	}
	if seconds, err := strconv.ParseFloat(value, 64); err == nil {
		if !(seconds > 0) {
			return 0
		}
		return time.Duration(min(seconds, maxRetryAfter.Seconds()) * float64(time.Second))
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), maxRetryAfter)
}
