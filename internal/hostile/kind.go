package hostile

import (
	"math/rand/v2"
	"net"
	"slices"
	"sync"
)

// An Outcome is how a careful client must treat an answer.
type Outcome uint8

// The outcomes.
const (
	// Breaks means that no client can accept the answer.
	Breaks Outcome = iota
	// Keeps means that the bytes contain the honest answer, in a form that HTTP and
	// JSON allow.
	Keeps
	// Either means that a client may refuse the answer, or accept it as an answer that
	// differs from the honest answer.
	Either
)

// An AnswerKind is one kind of bad answer: one way in which a server, by fault or on purpose,
// breaks HTTP, JSON, a stream or the content of its answer.
type AnswerKind struct {
	Name    string
	Outcome Outcome

	// Text is the content of the chat completion, if the kind sends a complete chat
	// completion.
	Text string

	// Bulky means that the kind sends until the client stops reading, at most
	// MostBytes.
	Bulky bool

	// Waits means that the answer ends only when the client disconnects.
	Waits bool

	paths []string // paths of the requests that the kind can answer; empty: all paths
	write func(w *answerWriter)
}

// A Request is the request to answer.
type Request struct {
	Path string // such as /v1/chat/completions
	Type string // content type of the honest answer
	Good []byte // body of the honest answer
	Seed uint64
}

// Kinds returns all kinds that can answer requests for a path, in a fixed order. The
// path of streamed chat completions is Stream, which real servers do not have.
func Kinds(path string) []AnswerKind {
	return slices.DeleteFunc(slices.Clone(all()), func(k AnswerKind) bool { return len(k.paths) > 0 && !slices.Contains(k.paths, path) })
}

// all returns all kinds. It makes them once, because some have texts of megabytes.
var all = sync.OnceValue(func() []AnswerKind {
	return slices.Concat(badFramingKinds(), badBodyKinds(), badContentKinds(), badUsageKinds(), badListKinds(), badMetricsKinds())
})

// ContentKinds returns the kinds that were made for this path. They use HTTP correctly,
// but their content is bad.
func ContentKinds(path string) []AnswerKind {
	return slices.DeleteFunc(Kinds(path), func(k AnswerKind) bool { return len(k.paths) == 0 })
}

// CertainKinds returns the kinds for a path with a known result: always an error, or always
// the honest answer. It leaves out kinds that wait.
func CertainKinds(path string) []AnswerKind {
	return slices.DeleteFunc(Kinds(path), func(k AnswerKind) bool { return k.Outcome == Either || k.Waits })
}

// Draw chooses a kind for a request. Bulky kinds are ten times rarer than others.
func Draw(kinds []AnswerKind, seed uint64) AnswerKind {
	d := newRand(seed)
	for {
		k := kinds[d.IntN(len(kinds))]
		if !k.Bulky || d.IntN(10) == 0 {
			return k
		}
	}
}

// Answer writes the bad answer on a connection and closes the connection. The caller
// has read the request. An error of the connection ends the answer; such errors are
// expected.
func (k AnswerKind) Answer(conn net.Conn, r Request) {
	w := newAnswerWriter(conn, r)
	k.write(w)
	w.close()
}

// URL paths of inference servers. Stream is the path for an answer that is an event
// stream.
const (
	Chat       = "/v1/chat/completions"
	Stream     = "/v1/chat/completions/stream"
	Embeddings = "/v1/embeddings"
	Models     = "/v1/models"
	Tokenize   = "/tokenize"
	Metrics    = "/metrics"
)

// newRand returns a source of random numbers that depend only on the seed.
func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 13)) } //nolint:gosec // the numbers must be repeatable

// NewPageKind returns a kind that sends this body with status 200.
func NewPageKind(body string) AnswerKind {
	return pageKind("a page", Either, nil, body)
}

// pageKind returns a kind that sends this body with status 200.
func pageKind(name string, outcome Outcome, paths []string, body string) AnswerKind {
	return AnswerKind{Name: name, Outcome: outcome, paths: paths, write: func(w *answerWriter) { w.writeBody(body) }}
}

// endlessKind returns a bulky kind that sends start once, and then piece without end.
func endlessKind(name string, outcome Outcome, paths []string, start, piece string) AnswerKind {
	return AnswerKind{Name: name, Outcome: outcome, Bulky: true, paths: paths, write: func(w *answerWriter) {
		w.writeHead(-1)
		w.writeText(start)
		w.writeEndless(piece)
	}}
}

// SpyKind returns a kind that sends the honest answer and copies it to good.
func SpyKind(good *[]byte) AnswerKind {
	return AnswerKind{Name: "a spy", Outcome: Keeps, write: func(w *answerWriter) { *good = w.Good; w.writeBody(string(w.Good)) }}
}
