// Package openai is the adapter between Rowmill and every inference server that
// speaks the OpenAI dialect over HTTP: vLLM, SGLang, llama.cpp, Ollama, our own
// simulated server, and whatever else answers /v1/chat/completions. It owns the
// wire: connections, request bodies, the scanning of replies, the reading of
// gauges and the sorting of errors into engine.Class. It refuses to know jobs,
// shards, retries and back-off: a call sends one request and says what came of
// it. Whether an answer conforms to its schema is the pipeline's question.
//
// # Why there is no net/http client on the row path
//
// A row costs an inference server milliseconds of GPU time and costs us only
// what we waste. A Go net/http client with encoding/json wastes 36 to 48 µs of
// CPU per row (two goroutines, some 80 allocations, a reply decoded by
// reflection), where bytes written to and read from a socket cost 8 or 9, nearly
// all of it in the kernel. The row path stays close to that. So the row path is built from four small parts:
//
//   - pool.go keeps idle connections on a stack: the one used last is used next,
//     because it is the least likely to have been closed by the server.
//   - exchange.go sends one request on one connection. A kept connection that
//     turns out to be closed, without a byte of an answer, is replaced once.
//   - body.go gives the reply's body, without its framing, as windows into the
//     connection's own read buffer: nothing is copied and nothing is collected.
//   - scan.go reads JSON from those windows. It keeps the answer's text and
//     nothing else. A reply of 5 MB, of which 4.8 MB are log probabilities,
//     costs the memory of its 200 KB of text: the log probabilities are added
//     up as they go by.
//
// llama.cpp notices only with streams that a row was cancelled, so it is asked
// for streams where answers may be long: sse.go gives the payloads of a stream one by one, stream.go adds
// them up in the same reply.
//
// Probes and gauges are asked for about once a second per server and use
// net/http: there convenience is worth more than microseconds.
//
// # What is sent
//
// Servers ignore body fields that they do not know, some without a word. A
// field under the wrong name is therefore a wrong result and no error. Only
// fields that the kind of server is known to take are sent (params.go); what it
// cannot take is an error of Prepare or a warning, never a silent drop. The kind
// and what else the server says of itself come from a probe (identify.go).
// docs/engines.md lists what is known of each kind and what that rests on.
package openai
