// Package sim is a simulated inference server. It speaks the OpenAI dialect over HTTP as
// vLLM does, and makes its answers up. It owns the text of answers, their timing
// (LatencyModel) and injected faults. It knows nothing of jobs: nodes reach it over HTTP
// only, like any other server. Package jsongen makes values for JSON Schemas, and package
// batching models an engine on a GPU.
//
//	net/http
//	   │ exchange: one request and its answer
//	   ▼
//	parse ─► directives, faults ─► answer (text, tokens) ─► LatencyModel: when ─► render
//
// # It says that it is simulated
//
// Every response has the headers "Server: rowmill-sim" and "X-Simulated: true". Free text
// and reasoning begin with "[simulated]". Strings without a format in JSON answers begin
// with "simulated" where there is room. /v1/models, /version and every answer have
// "simulated": true.
//
// # Time
//
// By default every answer takes the latencies of Profile, however many requests run at
// once. That is pleasant for demonstrations, and no model of a real server. With Config.GPU
// answers take the time of a model on a GPU (BatchingEngine; package batching says what its
// model was fitted on and how large its errors are). Requests then share steps, wait for KV
// cache, are preempted, and find common prefixes in the cache. Usage and the request log
// count cached tokens. /metrics has the running and waiting requests, the use of the KV
// cache and the preemptions. As on a real server, /metrics then does not say how many
// requests can run at once. Embeddings use no prefix cache.
//
// # Faults
//
// Config.Faults, SetFaults and POST /sim/faults inject faults by rate, and directives in
// prompts inject them one by one: refusals by status, connections that are reset, answers
// that never come, break off, are not JSON, have no choices or violate their schema. The
// whole server can be slow to start (503 until then), close all connections at a given
// time, and accept connections again later at the same address with an empty prefix cache.
//
// # Endpoints
//
// POST /v1/chat/completions, /v1/completions, /v1/responses, /v1/messages, /v1/embeddings, /tokenize; GET /v1/models,
// /health, /version, /metrics; GET and POST /sim/faults (Faults as JSON).
//
// # Tokens
//
// From left to right, a token is the longest of: one optional blank and 1 to 12 ASCII
// letters or digits; one non-ASCII character; any other single byte. A message costs its
// content and 4 tokens, the start of the answer 3 more. The special token </think> is one
// token. Usage, /tokenize, max_tokens and log probabilities all count by this rule. Token
// ids are hashes of the token's bytes: they cannot be turned back into text.
//
// # Answers
//
// An answer depends on Config.Seed, the model, the messages and the request's seed, and on
// nothing else: not on the time, the order of arrival, or max_tokens (a shorter limit gives
// a prefix). Without a seed it depends on the messages alone. At temperature 0 the seed is
// ignored. Other sampling parameters are checked as vLLM does and change nothing, except
// max_tokens, min_tokens, stop, stop_token_ids, include_stop_str_in_output, ignore_eos,
// logprobs and top_logprobs. The length of free text is lognormal (Profile.AnswerTokens). A
// JSON answer is as long as its value, so min_tokens and ignore_eos do not lengthen it. As
// on real servers, JSON is broken when max_tokens cuts it, tokens of a stop string count as
// generated, and a model that is cut while reasoning has no content.
//
// A response_format of json_schema is served where jsongen finds a value for it. Other
// schemas get 400 with the reason.
//
// # Directives
//
// A message, or an input to embed, may hold directives for tests:
//
//	[[sim:fail=503]]          answers with this status, 400 to 599
//	[[sim:fail=503 times=2]]  only the first two times that this prompt comes
//	[[sim:reject]]            400, the row's own fault
//	[[sim:hang]]              computes the answer and never sends it; keeps a slot of a LatencyProfile
//	[[sim:reset]]             resets the connection instead of answering
//	[[sim:truncate]]          closes the connection in the middle of the body
//	[[sim:malformed]]         200 with a body that is not JSON
//	[[sim:empty]]             200 without choices
//	[[sim:finish=abort]]      an answer with this finish_reason
//	[[sim:invalid-json]]      an answer that is not JSON, whatever format the request asks for
//	[[sim:violate]]           an answer in JSON that violates the request's schema
//	[[sim:tokens=500]]        free text of 500 tokens, reasoning not counted
//	[[sim:delay=250ms]]       waits 250 ms before anything else
//
// times works with each directive from fail to empty. The server counts the repetitions of
// a limited number of prompts, in memory. Unknown directives are ordinary text.
//
// # Request log
//
// With Config.RequestLog every generation and every embedded text writes one line of JSON
// when it ends, however it ends, so that tests can count how often each row was computed;
// see requestLog.
package sim
