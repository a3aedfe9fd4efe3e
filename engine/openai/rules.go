package openai

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
)

// A refusalRule classifies a refusal by its status and its words. The first matching rule
// counts; the last rule matches everything. docs/engines.md shows the rules as a table.
// refusals_test.go names a public source for each word.
type refusalRule struct {
	name   string        // short description of the rule, shown in docs/engines.md
	status []statusRange // the refusal must have one of these HTTP statuses; empty: any status
	words  []string      // the message, type or code of the refusal must contain one of these, in lower case; empty: any words
	about  settingKind   // setting of the job that the refusal must name

	class    engine.ErrorClass
	code     string // Code of the error; empty: the server's own code
	overload bool   // the server is overloaded, so its window shrinks
	tooLong  bool   // the job may truncate the prompt and retry, if it allows that
	message  string // Message of the error, before the server's own message
}

// A statusRange is a range of HTTP statuses, both ends included.
type statusRange struct{ from, to int }

// singleStatuses returns each of the HTTP statuses codes as a range.
func singleStatuses(codes ...int) []statusRange {
	out := make([]statusRange, len(codes))
	for i, code := range codes {
		out[i] = statusRange{code, code}
	}
	return out
}

// A settingKind says which setting of the job a refusal must name.
type settingKind uint8

const (
	anything              settingKind = iota // none: the refusal may name any setting or no setting
	aboutSamplingParam                       // a sampling parameter of the job
	aboutOutputConstraint                    // the job's json_schema or its rule of structured_outputs
)

// rowStatuses are the HTTP statuses with which servers refuse the content of a request.
var rowStatuses = singleStatuses(http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity)

// rules are all rules for refusals, in the order in which they are tried.
var rules = []refusalRule{
	{
		name: "embeddings are switched off", status: singleStatuses(500), words: []string{"must be created with embedding=true"}, // llama-cpp-python
		class: engine.JobFault, message: "the server cannot run this model for such requests",
	},
	{
		name: "the rows' shared KV cache is full", status: singleStatuses(500), words: []string{"context size has been exceeded"}, // llama.cpp --kv-unified
		class: engine.Busy, overload: true, message: "the server could not answer now",
	},
	{
		name: "the prompt is too long", status: append(singleStatuses(500), rowStatuses...), words: tooLongWords,
		class: engine.RowFault, tooLong: true, message: "the prompt is too long for the server",
	},
	{
		name: "the prompt exceeds the server's tokens per minute", status: singleStatuses(http.StatusTooManyRequests), words: []string{"request too large"}, // OpenAI: waiting does not help
		class: engine.RowFault, tooLong: true, message: "the prompt exceeds the server's limit of tokens per minute",
	},
	{
		name: "the request is too large", status: singleStatuses(http.StatusRequestEntityTooLarge), // a proxy gives no other reason
		class: engine.RowFault, tooLong: true, message: "the request is larger than the server or its proxy accepts",
	},
	{
		name: "the content of the prompt is refused", status: append(singleStatuses(http.StatusForbidden), rowStatuses...), words: contentWords,
		class: engine.RowFault, code: rowmill.RowContentFiltered, message: "the server refused the prompt for its content",
	},
	{
		name: "a quota is used up", words: quotaWords,
		class: engine.Busy, message: "the quota of the API key is used up",
	},
	{
		name: "payment is required", status: singleStatuses(http.StatusPaymentRequired),
		class: engine.Busy, message: "the server requires payment",
	},
	{
		name: "too many requests", status: singleStatuses(http.StatusTooManyRequests, 498, 529),
		class: engine.Busy, overload: true, message: "the server could not answer now",
	},
	{
		name: "the server is loading or full", status: singleStatuses(http.StatusServiceUnavailable),
		class: engine.Busy, overload: true, message: "the server could not answer now",
	},
	{
		name: "loading, by its message", words: loadingWords,
		class: engine.Busy, message: "the server is not ready yet",
	},
	{
		name: "overloaded, by its message", words: overloadWords,
		class: engine.Busy, overload: true, message: "the server could not answer now",
	},
	{
		name:   "a gateway without a server",
		status: append(singleStatuses(http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly, http.StatusBadGateway, http.StatusGatewayTimeout, 598, 599), statusRange{520, 527}, statusRange{530, 530}),
		class:  engine.Busy, message: "the server could not answer now",
	},
	{
		name: "the server lacks the feature", status: singleStatuses(http.StatusNotImplemented),
		class: engine.JobFault, message: "the server cannot run this model for such requests",
	},
	{
		name: "the model lacks the ability", status: singleStatuses(http.StatusBadRequest, http.StatusNotFound), words: abilityWords,
		class: engine.JobFault, message: "the server cannot run this model for such requests",
	},
	{
		name: "a sampling parameter is refused", status: rowStatuses, about: aboutSamplingParam,
		class: engine.JobFault, message: "the server refuses the sampling parameter",
	},
	{
		name: "the output constraint is refused", status: rowStatuses, words: formWords, about: aboutOutputConstraint,
		class: engine.JobFault, message: "the server refuses the",
	},
	{
		name: "a sampling parameter is an unknown field", status: singleStatuses(500), words: []string{"validation error"}, about: aboutSamplingParam, // llama-cpp-python, also in the next rule
		class: engine.JobFault, message: "the server refuses the sampling parameter",
	},
	{
		name: "the output constraint is an unknown field", status: singleStatuses(500), words: []string{"input should be 'text' or 'json_object'"}, about: aboutOutputConstraint,
		class: engine.JobFault, message: "the server refuses the",
	},
	{
		name: "the row is refused", status: rowStatuses,
		class: engine.RowFault, message: "the server refused the request",
	},
	{
		name: "a field is refused", status: singleStatuses(500), words: []string{"validation error"}, // llama-cpp-python
		class: engine.RowFault, message: "the server refused the request",
	},
	{
		name: "the server failed on the row", status: append(singleStatuses(http.StatusFailedDependency), statusRange{500, 599}), // 424: TGI, while it generates
		class: engine.Transient, message: "the server could not answer now",
	},
	{
		name: "the API key is refused", status: singleStatuses(http.StatusUnauthorized, http.StatusForbidden),
		class: engine.ServerFault, message: "the server refuses our API key: set the engine's api_key",
	},
	{
		name:  "anything else", // redirects, 404, 405: no row causes them
		class: engine.ServerFault, message: "the server is not set up for this request",
	},
}

// tooLongWords are parts of messages that mean that a prompt does not fit the context.
var tooLongWords = []string{
	"context length", "context_length_exceeded", // OpenAI, vLLM, SGLang, Mistral, LM Studio, Ollama, OpenRouter, LMDeploy
	"context size", "exceed_context_size", // llama.cpp, TabbyAPI
	"context window",                          // OpenAI, llama-cpp-python, MiniMax
	"context limit",                           // Anthropic: prompt and max_tokens together
	"input is too long", "prompt is too long", // Bedrock; Anthropic
	"maximum model length",                                                       // vLLM 0.7 to 0.12
	"max_tokens must be at least 1, got -",                                       // vLLM: no token is left for the answer
	"prompt length",                                                              // TensorRT-LLM, Triton, xAI
	"`inputs` tokens + `max_new_tokens` must be", "`inputs` must have less than", // TGI; TEI
	"input token count",         // Gemini
	"total number of tokens",    // Cohere
	"reduce the length",         // Groq, Cerebras
	"request too large",         // Groq, with 413: more tokens than it takes in a minute
	"too large to process",      // llama.cpp: more tokens than its physical batch
	"compared to kv size",       // llama-box
	"model token limit",         // Kimi
	"prompt exceeds max length", // Z.ai
	"range of input length",     // DashScope
	"string_above_max_length",   // OpenAI: more characters than a message may have
}

// contentWords are parts of messages that mean that a content filter of the server
// refused the prompt.
var contentWords = []string{
	"content_filter", "content management policy", // Azure OpenAI
	"content_policy_violation", "violating our usage policy", // OpenAI
	"content exists risk",    // DeepSeek
	"data_inspection_failed", // DashScope
	"your input was flagged", // OpenRouter, with 403
}

// quotaWords are parts of messages that mean that money or a quota is used up.
var quotaWords = []string{
	"insufficient_quota", "exceeded your current quota", "billing_hard_limit", "billing_not_active", // OpenAI
	"insufficient balance",               // DeepSeek, Kimi
	"exceeded_current_quota",             // Kimi
	"credit balance", "api usage limits", // Anthropic, with 400
	"used all available credits", // xAI
	"insufficient credits",       // OpenRouter
}

// loadingWords are parts of messages that mean that a model is still loading, or that a
// router has no server for the model.
var loadingWords = []string{
	"loading model", "model_loading", // llama.cpp, Ollama; LocalAI
	"currently loading",                          // Hugging Face
	"is not ready",                               // Triton, KServe
	"no available worker", "no_available_worker", // SGLang's router
}

// overloadWords are parts of messages that mean too many requests, from all clients or
// with this API key.
var overloadWords = []string{
	"overloaded",               // TGI, TEI, Infinity, Anthropic, DeepSeek
	"rate limit", "rate_limit", // OpenAI and most others
	"server busy", "server is busy", // Ollama; KoboldCpp
	"queue is full",                                                    // SGLang
	"over capacity", "at capacity", "no capacity", "capacity exceeded", // Groq, xAI, Gemini, Mistral
	"try again later", // KoboldCpp
}

// abilityWords are parts of messages that mean that the server or its model lacks an
// ability that every row needs.
var abilityWords = []string{
	"does not support chat", "does not support generate", "does not support completions", // vLLM, Ollama
	"does not support embedding",          // vLLM
	"not appear to be an embedding model", // SGLang
	"modelnotdeployederror",               // Infinity: the model has another task
}

// formWords are parts of messages that mean that the server could not compile the job's
// schema or its rule of structured_outputs, which every row of the job has.
var formWords = []string{"schema", "grammar", "response_format", "structured output", "structured_output", "guided decoding", "regex"}

// matchRule returns the first rule that matches a refusal with HTTP status code.
// refusalText is the message, the type and the code of the refusal in lower case.
func matchRule(code int, refusalText string, fault serverFault, asked requestSettings) *refusalRule {
	for i := range rules {
		if r := &rules[i]; r.matches(code, refusalText, fault, asked) {
			return r
		}
	}
	return &rules[len(rules)-1]
}

func (r *refusalRule) matches(code int, refusalText string, fault serverFault, asked requestSettings) bool {
	switch {
	case len(r.status) > 0 && !slices.ContainsFunc(r.status, func(s statusRange) bool { return s.from <= code && code <= s.to }):
	case len(r.words) > 0 && !slices.ContainsFunc(r.words, func(w string) bool { return strings.Contains(refusalText, w) }):
	case r.about == aboutSamplingParam && asked.refusedParam(fault) == "":
	case r.about == aboutOutputConstraint && asked.form == "":
	default:
		return true
	}
	return false
}

// messageFor returns the message of the error for a refusal. The message ends with the name
// of the refused parameter or setting, if the rule is about one.
func (r *refusalRule) messageFor(fault serverFault, asked requestSettings) string {
	switch r.about {
	case aboutSamplingParam:
		return r.message + " " + asked.refusedParam(fault)
	case aboutOutputConstraint:
		return r.message + " " + asked.form
	}
	return r.message
}

// String returns the statuses as docs/engines.md shows them, such as "500 to 599".
func (s statusRange) String() string {
	if s.from == s.to {
		return strconv.Itoa(s.from)
	}
	return strconv.Itoa(s.from) + " to " + strconv.Itoa(s.to)
}
