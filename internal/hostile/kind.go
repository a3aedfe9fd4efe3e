package hostile

import (
	"math/rand/v2"
	"net"
	"slices"
	"sync"
)

// An Outcome says how a careful client treats an answer.
type Outcome uint8

// The outcomes.
const (
	// Breaks: no client can accept the answer.
	Breaks Outcome = iota
	// Keeps: the bytes contain the honest answer, in a form that HTTP and JSON allow.
	Keeps
	// Either: a client may refuse the answer, or accept it as another answer than the
	// honest one.
	Either
)

// A Kind is one kind of bad answer: one way in which a server, by fault or on purpose,
// breaks HTTP, JSON, a stream or the content of its answer.
type Kind struct {
	Name    string
	Outcome Outcome

	// Text is the content of the chat completion, if the kind sends a complete one.
	Text string

	// Bulky kinds send until the client stops reading, at most MostBytes.
	Bulky bool

	// Waits says that the answer ends only when the client disconnects.
	Waits bool

	of    []string // paths of the requests that the kind can answer; empty: all paths
	write func(w *wire)
}

// A Request is the request to answer.
type Request struct {
	Path string // such as /v1/chat/completions
	Type string // content type of the honest answer
	Good []byte // body of the honest answer
	Seed uint64
}

// Kinds returns all kinds for a path, in a fixed order. Streamed chat completions have
// a path of their own here, Stream, which real servers do not have.
func Kinds(path string) []Kind {
	return slices.DeleteFunc(slices.Clone(all()), func(k Kind) bool { return len(k.of) > 0 && !slices.Contains(k.of, path) })
}

// all returns all kinds. It makes them once, because some have texts of megabytes.
var all = sync.OnceValue(func() []Kind {
	return slices.Concat(framings(), bodies(), contents(), usages(), lists(), gauges())
})

// ContentKinds returns the kinds that were made for a path. They use HTTP correctly, but
// their content is bad.
func ContentKinds(path string) []Kind {
	return slices.DeleteFunc(Kinds(path), func(k Kind) bool { return len(k.of) == 0 })
}

// Certain returns the kinds for a path that always lead to an error, or always to the
// honest answer. It leaves out kinds that wait.
func Certain(path string) []Kind {
	return slices.DeleteFunc(Kinds(path), func(k Kind) bool { return k.Outcome == Either || k.Waits })
}

// Draw chooses a kind for a request. Bulky kinds are ten times rarer than others.
func Draw(kinds []Kind, seed uint64) Kind {
	d := dice(seed)
	for {
		k := kinds[d.IntN(len(kinds))]
		if !k.Bulky || d.IntN(10) == 0 {
			return k
		}
	}
}

// Answer writes the answer of kind k on a connection and closes it. The caller has read
// the request. An error of the connection ends the answer; such errors are expected.
func (k Kind) Answer(conn net.Conn, r Request) {
	w := newWire(conn, r)
	k.write(w)
	w.close()
}

// URL paths of inference servers. Stream means an answer that is an event stream.
const (
	Chat       = "/v1/chat/completions"
	Stream     = "/v1/chat/completions/stream"
	Embeddings = "/v1/embeddings"
	Models     = "/v1/models"
	Tokenize   = "/tokenize"
	Metrics    = "/metrics"
)

// dice returns a source of random numbers that depend only on the seed.
func dice(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 13)) } //nolint:gosec // the numbers must be repeatable

// Page returns a kind that answers with status 200 and this body.
func Page(body string) Kind {
	return Kind{Name: "a page", Outcome: Either, write: func(w *wire) { w.body(body) }}
}

// Spy returns a kind that answers honestly and copies the answer to good.
func Spy(good *[]byte) Kind {
	return Kind{Name: "a spy", Outcome: Keeps, write: func(w *wire) { *good = w.Good; w.body(string(w.Good)) }}
}
