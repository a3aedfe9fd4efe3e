// Package openai is the adapter between Rowmill and inference servers that speak the
// OpenAI API over HTTP: vLLM, SGLang, llama.cpp, Ollama, Rowmill's simulated server, and
// any other server that answers /v1/chat/completions. It owns the wire protocol:
// connections, request bodies, reading replies, reading gauges, and the classes of
// errors. It does not know jobs, shards, retries or back-off: a call sends one request
// and returns its result. It does not check answers against schemas; the pipeline does.
//
// # Why rows do not use net/http
//
// A row costs an inference server milliseconds of GPU time. A Go net/http client with
// encoding/json needs 36 to 48 µs of CPU per row (two goroutines, some 80 allocations, a
// reply decoded by reflection). Writing and reading the same bytes on a socket needs 8
// or 9 µs, nearly all in the kernel. The code that sends rows comes close to 9 µs with
// four small parts:
//
//   - pool.go stores idle connections on a stack. It first reuses the most recently used
//     connection, because the server is least likely to have closed this connection.
//   - exchange.go sends one request on one connection. If the server closed a reused
//     connection before the first byte of an answer, exchange.go dials a new connection,
//     once.
//   - body.go returns the body of a reply without its framing, as slices of the
//     connection's read buffer, without a copy.
//   - scan.go reads JSON from these slices and stores only the text of the answer. A
//     reply of 5 MB with 4.8 MB of log probabilities takes the memory of its 200 KB of
//     text, because scan.go adds up the log probabilities while it reads them.
//
// llama.cpp notices only in streams that a row was cancelled. So requests with possibly
// long answers ask llama.cpp for a stream: sse.go returns the payloads of the stream one
// by one, and stream.go joins them to one reply.
//
// Probes and gauges run about once a second per server and use net/http.
//
// # Request fields
//
// Servers ignore unknown body fields, often without a message. So a misnamed field gives
// a wrong result without an error. The adapter sends only fields that the kind of server
// is known to support (params.go). For other fields Prepare returns an error or a
// warning; it never drops them silently. A probe finds the kind and the other properties
// of the server (identify.go). docs/engines.md lists the facts about each kind and their
// sources.
//
// # A new kind of server
//
// Add only the differences. Name the kind in target.go. Read its version, slots and context
// length in identify.go. Add its metrics to gauges.go, its parameters to params.go, its
// refusals to classify.go, and its answers, recorded from a running server if possible, to
// kinds_test.go. Run the server through engine/enginetest as llama_test.go does, or a large
// server by internal/realserver/get.sh, internal/realserver/start.sh and real_test.go. Add a
// usual port to engine/discover and to the default in cmd/rowmill/settings/engines.go.
package openai
