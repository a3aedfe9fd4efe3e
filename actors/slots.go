package actors

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/fair"
)

// slots bound the work of a node that needs much memory, for all jobs together.
// Accounts take turns.
type slots struct {
	merge *fair.Gate // a merge holds a window of every part
	write *fair.Gate // a part holds a row group in columns
	read  *fair.Gate // an input holds the longest record and the longest row
	// stream is for inputs that are read during their download, which may take
	// long. Without a free place, an input is read after its download.
	stream chan struct{}
	// compute is for long computations. A computation takes a processor for a short
	// time and then waits until its turn comes again.
	compute *fair.Gate
}

// streams is how many inputs are read during their download. Beside the memory of
// each input, such a reader holds the last downloaded bytes.
const streams = 2

// streamed takes a place for an input that is read during its download.
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

// gateWaits counts the places that a job waits for at a gate.
type gateWaits struct{ waiting atomic.Int32 }

// enter waits for a place for work of a job; it returns false if ctx ends first.
func (t *gateWaits) enter(ctx context.Context, g *fair.Gate, spec *rowmill.Spec) bool {
	return t.lineUp(g, spec)(ctx)
}

// lineUp takes a place in the queue for work of a job. The caller must call the
// returned function, which waits like enter. Actors call lineUp before they start
// tasks, because tasks would come in any order.
func (t *gateWaits) lineUp(g *fair.Gate, spec *rowmill.Spec) (wait func(context.Context) bool) {
	t.waiting.Add(1)
	turn := g.LineUp(spec.Account, spec.Priority)
	return func(ctx context.Context) bool {
		defer t.waiting.Add(-1)
		return turn.Wait(ctx)
	}
}

// waits reports whether something still waits.
func (t *gateWaits) waits() bool { return t.waiting.Load() > 0 }

// waitsAfter is how long a reason must last before it is written to the record.
const waitsAfter = 5 * time.Second

// A lastingReason keeps the present reason of a wait and its start.
type lastingReason struct {
	what  string
	since time.Time
}

// update takes the present reason, empty for none, and returns it once it has lasted
// long enough.
func (l *lastingReason) update(what string, now time.Time) string {
	if what != l.what {
		l.what, l.since = what, now
	}
	if now.Sub(l.since) < waitsAfter {
		return ""
	}
	return what
}
