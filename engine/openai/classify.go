package openai

import (
	"net/http"
	"regexp"
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

// classify makes the error of a refusal. asked is what the request asked for;
// private are the texts that must not be passed on.
func (x refusal) classify(asked asked, private ...[]byte) *engine.Error {
	e := &engine.Error{
		Class:      classOf(x.status),
		Status:     x.status,
		Code:       x.fault.word("http_" + strconv.Itoa(x.status)),
		RetryAfter: x.retryAfter,
		Overloaded: x.status == http.StatusTooManyRequests || x.status == http.StatusServiceUnavailable,
	}
	lower := strings.ToLower(x.fault.message)
	words := strings.ToLower(x.fault.kind + " " + x.fault.code)
	mismatch, refused := false, asked.refusedParam(x.fault)
	if x.status == http.StatusInternalServerError && strings.Contains(lower, "validation error") {
		e.Class = engine.RowFault // llama-cpp-python: a field that it does not take
	}
	switch {
	case x.status == http.StatusInternalServerError && strings.Contains(lower, "must be created with embedding=true"):
		// llama-cpp-python: not started for embeddings.
		e.Class, mismatch = engine.JobFault, true
	case x.status == http.StatusInternalServerError && strings.Contains(lower, "too large to process"):
		// llama.cpp: an embedding text longer than its physical batch.
		e.Class, e.TooLong = engine.RowFault, true
	case x.status == http.StatusInternalServerError && strings.Contains(lower, "context size has been exceeded"):
		// llama.cpp: its slots share one KV cache (--kv-unified) and have filled it.
		e.Overloaded = true
	case e.Class == engine.RowFault && x.status != http.StatusNotImplemented && overflows(lower, words):
		e.TooLong = true
	case (e.Class == engine.RowFault || e.Class == engine.ServerFault) && lacksAbility(x.status, lower):
		e.Class, mismatch = engine.JobFault, true
	case e.Class == engine.RowFault && refused != "":
		e.Class = engine.JobFault
	case e.Class == engine.RowFault && asked.form != "" && refusesForm(lower):
		e.Class = engine.JobFault
	}
	if e.TooLong {
		e.Code, e.Context = rowmill.RowTooLong, saidTokens(contextSaid, lower)
		e.Prompt = saidTokens(promptSaid, lower)
	}
	e.Message = "the server refused the request"
	switch {
	case mismatch:
		e.Message = "the server cannot run this model so"
	case e.Class == engine.Moment:
		e.Message = "the server could not answer now"
	case x.status == http.StatusUnauthorized, x.status == http.StatusForbidden:
		e.Message = "the server refuses our API key: set the engine's api_key"
	case e.Class == engine.ServerFault:
		e.Message = "the server is not set up for this request"
	case e.Class == engine.JobFault && refused != "":
		e.Message = "the server refuses the sampling parameter " + refused
	case e.Class == engine.JobFault:
		e.Message = "the server cannot work with this " + asked.form
	}
	if shown := x.fault.shown(private...); shown != "" {
		e.Message += ": " + shown
	}
	return e
}

// contextSaid and promptSaid find the context and the tokens of the prompt in the
// message of a refusal, as vLLM, SGLang, llama.cpp and llama-cpp-python write them,
// in lower case.
var (
	contextSaid = regexp.MustCompile(`context (?:length|size)(?: is)?(?: only)? \(?([0-9]{1,10})\b`)
	promptSaid  = regexp.MustCompile(`(?:prompt has|requested|request \(|input \()(?: at least)? ?([0-9]{1,10}) tokens`)
)

// saidTokens is the number of tokens that a refusal names; 0 for none.
func saidTokens(what *regexp.Regexp, message string) int {
	found := what.FindStringSubmatch(message)
	if found == nil {
		return 0
	}
	n, err := strconv.Atoi(found[1])
	if err != nil {
		return 0
	}
	return usable(n, maxContext)
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

// lacksAbility recognises that the server cannot do with the model what every row
// asks for: generate with one for embeddings, embed with one for text. The phrases
// are those of vLLM, SGLang, llama.cpp (501 without) and Ollama, in lower case.
func lacksAbility(status int, message string) bool {
	if status == http.StatusNotImplemented {
		return true
	}
	if status != http.StatusBadRequest && status != http.StatusNotFound {
		return false
	}
	for _, phrase := range []string{
		"does not support chat", "does not support generate", "does not support completions", "does not support embedding",
		"does not support the embeddings", "not appear to be an embedding model",
	} {
		if strings.Contains(message, phrase) {
			return true
		}
	}
	return false
}

// refusesForm recognises that the server could not compile the schema, or the rule
// of structured_outputs, which no other row changes.
func refusesForm(message string) bool {
	for _, phrase := range []string{"schema", "grammar", "response_format", "structured output", "structured_output", "guided decoding", "regex"} {
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
