package actors

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/fair"
)

// slots bound the work of a node that takes memory of its own, all jobs
// together. Accounts take turns.
type slots struct {
	merge *fair.Gate // merges hold a window of every part
	write *fair.Gate // parts hold a row group in columns
	read  *fair.Gate // inputs hold a record and a row as long as may be
	// stream is for inputs that are read while they are downloaded, for however long
	// that takes: who finds no place reads later.
	stream chan struct{}
	// compute is for who would keep a processor for long: each takes it for a moment
	// and lines up again.
	compute *fair.Gate
}

// streams is how many inputs are read while they are downloaded: each holds what has
// come last of it, beside what an input holds.
const streams = 2

// streamed takes a place for an input that is read while it is downloaded.
func (s slots) streamed() (leave func(), ok bool) {
	select {
	case s.stream <- struct{}{}:
		return func() { <-s.stream }, true
	default:
		return nil, false
	}
}

func newSlots(readers int) slots {
	return slots{
		merge: fair.NewGate(1, 0), write: fair.NewGate(2, 0), read: fair.NewGate(readers, (readers+1)/2), stream: make(chan struct{}, streams),
		compute: fair.NewGate(runtime.GOMAXPROCS(0), 1),
	}
}

// turns are those that a job waits for at a gate.
type turns struct{ waiting atomic.Int32 }

// enter waits for a place for work of a job; it returns false when ctx ends first.
func (t *turns) enter(ctx context.Context, g *fair.Gate, spec *rowmill.Spec) bool {
	return t.lineUp(g, spec)(ctx)
}

// lineUp takes a place in the line for work of a job. What it returns must be called: it
// waits as enter does. Actors line up before they begin tasks, which would come in any
// order.
func (t *turns) lineUp(g *fair.Gate, spec *rowmill.Spec) (wait func(context.Context) bool) {
	t.waiting.Add(1)
	turn := g.LineUp(spec.Account, spec.Priority)
	return func(ctx context.Context) bool {
		defer t.waiting.Add(-1)
		return turn.Wait(ctx)
	}
}

// waits reports whether there is something that is not let in.
func (t *turns) waits() bool { return t.waiting.Load() > 0 }

// waitsAfter is how long something is waited for without a break before it is
// worth a word, and a write to the record.
const waitsAfter = 5 * time.Second

// A lasting wait is one that goes on.
type lasting struct {
	what  string
	since time.Time
}

// of takes in what is waited for now, empty for nothing, and returns it once it
// has been that for long enough.
func (l *lasting) of(what string, now time.Time) string {
	if what != l.what {
		l.what, l.since = what, now
	}
	if now.Sub(l.since) < waitsAfter {
		return ""
	}
	return what
}
