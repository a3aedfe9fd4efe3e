package openai

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/rowmill/rowmill/engine"
)

// A rule decides whose fault a refusal is, by its status and its words. Of rules the
// first that matches counts; the last one matches everything. docs/engines.md shows them
// as a table.
type rule struct {
	name   string   // of the rule, in docs/engines.md
	status []status // one of these; none: any
	words  []string // one of these, in lower case, is in the message, the type or the code; none: any
	about  about    // what the refusal is about, beside its words

	class    engine.Class
	overload bool // the window shrinks
	tooLong  bool // the prompt is cut, where the job allows it
	message  string
}

// A status is a range of HTTP statuses.
type status struct{ from, to int }

func is(codes ...int) []status {
	out := make([]status, len(codes))
	for i, code := range codes {
		out[i] = status{code, code}
	}
	return out
}

// about is what of a request a refusal must be about.
type about uint8

const (
	anything about = iota
	ofParam        // a sampling parameter that the job asks for
	ofForm         // the schema, or the rule of structured_outputs, that the job asks for
)

// Refusals of the row as it is.
var rowStatuses = is(http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity)

var rules = []rule{
	{
		name: "embeddings are off", status: is(500), words: []string{"must be created with embedding=true"}, // llama-cpp-python
		class: engine.JobFault, message: "the server cannot run this model so",
	},
	{
		name: "the cache that rows share is full", status: is(500), words: []string{"context size has been exceeded"}, // llama.cpp --kv-unified
		class: engine.Busy, overload: true, message: "the server could not answer now",
	},
	{
		name: "the prompt is too long", status: append(is(500), rowStatuses...), words: tooLongWords,
		class: engine.RowFault, tooLong: true, message: "the prompt is too long for the server",
	},
	{
		name: "the request is too large", status: is(http.StatusRequestEntityTooLarge), // of proxies, without a word
		class: engine.RowFault, tooLong: true, message: "the request is larger than the server, or a proxy before it, takes",
	},
	{
		name: "a quota is used up", words: quotaWords,
		class: engine.Busy, message: "the quota of our key is used up at the server",
	},
	{
		name: "payment is required", status: is(http.StatusPaymentRequired),
		class: engine.Busy, message: "the server wants to be paid first",
	},
	{
		name: "too many requests", status: is(http.StatusTooManyRequests, 498, 529),
		class: engine.Busy, overload: true, message: "the server could not answer now",
	},
	{
		name: "the server is loading or full", status: is(http.StatusServiceUnavailable),
		class: engine.Busy, overload: true, message: "the server could not answer now",
	},
	{
		name: "the server says that it is loading", words: loadingWords,
		class: engine.Busy, message: "the server is not ready yet",
	},
	{
		name: "the server says that it is full", words: overloadWords,
		class: engine.Busy, overload: true, message: "the server could not answer now",
	},
	{
		name:   "a gateway without a server",
		status: append(is(http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly, http.StatusBadGateway, http.StatusGatewayTimeout, 598, 599), status{520, 527}, status{530, 530}),
		class:  engine.Busy, message: "the server could not answer now",
	},
	{
		name: "the server cannot do that", status: is(http.StatusNotImplemented),
		class: engine.JobFault, message: "the server cannot run this model so",
	},
	{
		name: "the model cannot do that", status: is(http.StatusBadRequest, http.StatusNotFound), words: abilityWords,
		class: engine.JobFault, message: "the server cannot run this model so",
	},
	{
		name: "a sampling parameter is refused", status: rowStatuses, about: ofParam,
		class: engine.JobFault, message: "the server refuses the sampling parameter",
	},
	{
		name: "the form of answers is refused", status: rowStatuses, words: formWords, about: ofForm,
		class: engine.JobFault, message: "the server cannot work with this",
	},
	{
		name: "a sampling parameter is no field", status: is(500), words: []string{"validation error"}, about: ofParam, // llama-cpp-python, as the next two
		class: engine.JobFault, message: "the server refuses the sampling parameter",
	},
	{
		name: "the form is no field", status: is(500), words: []string{"input should be 'text' or 'json_object'"}, about: ofForm,
		class: engine.JobFault, message: "the server cannot work with this",
	},
	{
		name: "the row is refused", status: rowStatuses,
		class: engine.RowFault, message: "the server refused the request",
	},
	{
		name: "a field is refused", status: is(500), words: []string{"validation error"},
		class: engine.RowFault, message: "the server refused the request",
	},
	{
		name: "the server failed on the row", status: append(is(http.StatusFailedDependency), status{500, 599}), // 424: TGI, while it generates
		class: engine.Moment, message: "the server could not answer now",
	},
	{
		name: "our key is refused", status: is(http.StatusUnauthorized, http.StatusForbidden),
		class: engine.ServerFault, message: "the server refuses our API key: set the engine's api_key",
	},
	{
		name:  "anything else", // redirects, 404, 405: no row causes them
		class: engine.ServerFault, message: "the server is not set up for this request",
	},
}

// tooLongWords say that a prompt does not fit the context.
var tooLongWords = []string{
	"exceed_context_size", "context_length_exceeded", "string_above_max_length",
	"context length",                                           // OpenAI, vLLM, SGLang, Mistral, LM Studio, Ollama, OpenRouter, Fireworks
	"context size",                                             // llama.cpp
	"context window",                                           // llama-cpp-python, Xinference
	"context limit", "input is too long", "prompt is too long", // Anthropic, Bedrock
	"maximum model length", "longer than the maximum", // vLLM
	"max_tokens must be at least 1, got -",                                                    // vLLM: what it has left for the answer
	"too long to fit into the model",                                                          // vLLM, embeddings
	"maximum prompt length",                                                                   // xAI
	"prompt length", "maximum input length", "max_input_len", "max_seq_len", "max_num_tokens", // TensorRT-LLM
	"`inputs` tokens + `max_new_tokens` must be", "`inputs` must have less than", // TGI, TEI
	"session_len",                                // LMDeploy
	"input token count", "requested token count", // Gemini; SGLang
	"too many tokens",      // Cohere
	"reduce the length",    // Groq, Cerebras
	"request too large",    // Groq: more tokens than its limit of a minute
	"too large to process", // llama.cpp: more than its physical batch
}

// quotaWords say that money or an allowance is used up.
var quotaWords = []string{
	"insufficient_quota", "exceeded your current quota", "insufficient balance", "insufficient_balance",
	"credit balance", "out of credits", "not enough credits", "payment required", "billing_", "spending limit",
}

// loadingWords say that a model is on its way into memory, or that a router knows no
// server that has it.
var loadingWords = []string{
	"loading model", "model is loading", "currently loading", "still loading", "being loaded", "model is not ready", "model not ready", "not_ready",
	"warming up", "cold start", "no healthy upstream", "upstream connect error", "no available worker", "no workers available",
}

// overloadWords say that there are too many requests, in all or of ours.
var overloadWords = []string{
	"overloaded", "rate limit", "rate_limit", "ratelimit", "too many requests", "too many concurrent", "server busy", "server is busy",
	"queue is full", "queue full", "at capacity", "no capacity", "capacity exceeded", "try again later", "temporarily unavailable",
	"throttl", "resource_exhausted", "resource exhausted",
}

// abilityWords say that the server cannot do with the model what every row asks for:
// vLLM, SGLang, llama.cpp and Ollama.
var abilityWords = []string{
	"does not support chat", "does not support generate", "does not support completions", "does not support embedding",
	"does not support the embeddings", "not appear to be an embedding model",
}

// formWords say that the server could not compile the schema, or the rule of
// structured_outputs, which no other row changes.
var formWords = []string{"schema", "grammar", "response_format", "structured output", "structured_output", "guided decoding", "regex"}

// ruleOf is the first rule that matches a refusal. said is its message, type and code in
// lower case.
func ruleOf(code int, said string, fault serverFault, asked asked) *rule {
	for i := range rules {
		if r := &rules[i]; r.matches(code, said, fault, asked) {
			return r
		}
	}
	return &rules[len(rules)-1]
}

func (r *rule) matches(code int, said string, fault serverFault, asked asked) bool {
	switch {
	case len(r.status) > 0 && !slices.ContainsFunc(r.status, func(s status) bool { return s.from <= code && code <= s.to }):
	case len(r.words) > 0 && !slices.ContainsFunc(r.words, func(w string) bool { return strings.Contains(said, w) }):
	case r.about == ofParam && asked.refusedParam(fault) == "":
	case r.about == ofForm && asked.form == "":
	default:
		return true
	}
	return false
}

// says is the message of a refusal, which ends with what it is about.
func (r *rule) says(fault serverFault, asked asked) string {
	switch r.about {
	case ofParam:
		return r.message + " " + asked.refusedParam(fault)
	case ofForm:
		return r.message + " " + asked.form
	}
	return r.message
}

// String is the statuses as docs/engines.md writes them.
func (s status) String() string {
	if s.from == s.to {
		return strconv.Itoa(s.from)
	}
	return strconv.Itoa(s.from) + " to " + strconv.Itoa(s.to)
}
