package hostile

import (
	"math/rand/v2"
	"net"
	"slices"
	"sync"
)

// An Outcome is what a careful reader makes of an answer.
type Outcome uint8

// The outcomes.
const (
	// Breaks: there is no answer that could be accepted.
	Breaks Outcome = iota
	// Keeps: the honest answer is there, in a form that HTTP and JSON allow.
	Keeps
	// Either: it may be taken for an answer, and then is not the honest one.
	Either
)

// A Kind is one way to misbehave.
type Kind struct {
	Name    string
	Outcome Outcome

	// Text is the content of an answer that is whole.
	Text string

	// Bulky kinds send as much as is taken, up to MostBytes.
	Bulky bool

	// Waits says that it ends only when the reader goes away.
	Waits bool

	of    []string // paths that it answers; none: all
	write func(w *wire)
}

// A Request is what is to be answered.
type Request struct {
	Path string // such as /v1/chat/completions
	Type string // content type of the honest answer
	Good []byte // body of the honest answer
	Seed uint64
}

// Kinds returns all that can answer a path, in a fixed order. A stream of events
// is answered by those of /v1/chat/completions/stream, which is no path of a
// server.
func Kinds(path string) []Kind {
	return slices.DeleteFunc(slices.Clone(all()), func(k Kind) bool { return len(k.of) > 0 && !slices.Contains(k.of, path) })
}

// all makes the kinds once: some have texts of megabytes.
var all = sync.OnceValue(func() []Kind {
	return slices.Concat(framings(), bodies(), contents(), usages(), lists(), gauges())
})

// Own returns those of Kinds that misuse what the path is about, and not HTTP.
func Own(path string) []Kind {
	return slices.DeleteFunc(Kinds(path), func(k Kind) bool { return len(k.of) == 0 })
}

// Certain returns the kinds of which it is known what a reader makes of them:
// an error, or the honest answer.
func Certain(path string) []Kind {
	return slices.DeleteFunc(Kinds(path), func(k Kind) bool { return k.Outcome == Either || k.Waits })
}

// Draw chooses one of the kinds for a request; a bulky one is drawn a tenth as
// often as another.
func Draw(kinds []Kind, seed uint64) Kind {
	d := dice(seed)
	for {
		k := kinds[d.IntN(len(kinds))]
		if !k.Bulky || d.IntN(10) == 0 {
			return k
		}
	}
}

// Answer writes the answer of kind k on a connection from which the request has
// been read, and closes it. An error of the connection ends it, and is what is
// to be expected.
func (k Kind) Answer(conn net.Conn, r Request) {
	w := newWire(conn, r)
	k.write(w)
	w.close()
}

// Paths of servers, and what stands for a stream.
const (
	Chat       = "/v1/chat/completions"
	Stream     = "/v1/chat/completions/stream"
	Embeddings = "/v1/embeddings"
	Models     = "/v1/models"
	Tokenize   = "/tokenize"
	Metrics    = "/metrics"
)

// dice are thrown for a seed.
func dice(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 13)) } //nolint:gosec // it has to be repeated

// Page is a kind that answers with a body.
func Page(body string) Kind {
	return Kind{Name: "a page", Outcome: Either, write: func(w *wire) { w.body(body) }}
}

// Spy is a kind that answers honestly, and keeps what it answered.
func Spy(good *[]byte) Kind {
	return Kind{Name: "a spy", Outcome: Keeps, write: func(w *wire) { *good = w.Good; w.body(string(w.Good)) }}
}
