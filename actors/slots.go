package actors

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/fair"
)

// taskSlots limits how many tasks that need much memory or processor time run on a node at
// the same time, for all jobs together. Accounts take turns.
type taskSlots struct {
	merge *fair.Gate // limits merges, because a merge has a section of every part in memory
	write *fair.Gate // limits writes of parts, because each has a row group in memory
	read  *fair.Gate // limits reads of inputs, because each has its longest record and row in memory
	// stream limits the inputs that are read during their download, which may take
	// long. If all places are taken, an input is read after its download.
	stream chan struct{}
	// compute limits long computations. Each computation runs for a short time and then
	// waits for its next turn.
	compute *fair.Gate
}

// streams is how many inputs are read during their download at the same time. Such a
// read needs more memory than other reads, because it also has the last downloaded
// bytes in memory.
const streams = 2

// takeStream takes a place in stream. leave gives the place back; ok is false if all
// places are taken.
func (s taskSlots) takeStream() (leave func(), ok bool) {
	select {
	case s.stream <- struct{}{}:
		return func() { <-s.stream }, true
	default:
		return nil, false
	}
}

func newTaskSlots(readers int) taskSlots {
	return taskSlots{
		merge: fair.NewGate(1, 0), write: fair.NewGate(2, 0), read: fair.NewGate(readers, (readers+1)/2), stream: make(chan struct{}, streams),
		compute: fair.NewGate(runtime.GOMAXPROCS(0), 1),
	}
}

// gateWaiters counts the tasks of a job that wait for their turn at a fair.Gate, which
// limits how many tasks run at the same time.
type gateWaiters struct{ waiting atomic.Int32 }

// waitForTurn waits until a task of a job may start; it returns false if ctx ends first.
func (t *gateWaiters) waitForTurn(ctx context.Context, g *fair.Gate, spec *rowmill.Spec) bool {
	return t.joinQueue(g, spec)(ctx)
}

// joinQueue puts a task of a job into the queue of a gate. The caller must call the
// returned function wait, which waits like waitForTurn. Actors call joinQueue before they
// start tasks, because the tasks themselves would enter the queue in random order.
func (t *gateWaiters) joinQueue(g *fair.Gate, spec *rowmill.Spec) (wait func(context.Context) bool) {
	t.waiting.Add(1)
	turn := g.LineUp(spec.Account, spec.Priority)
	return func(ctx context.Context) bool {
		defer t.waiting.Add(-1)
		return turn.Wait(ctx)
	}
}

// isWaiting reports whether a task of the job waits now.
func (t *gateWaiters) isWaiting() bool { return t.waiting.Load() > 0 }

// waitsAfter is how long a job must wait for the same reason before the job's record
// shows the reason.
const waitsAfter = 5 * time.Second

// A lastingWaitReason is the present reason of a wait and the start of the wait.
type lastingWaitReason struct {
	what  string
	since time.Time
}

// update sets the present reason of the wait; empty means no wait. It returns the
// reason if it has lasted for waitsAfter, and otherwise an empty text.
func (l *lastingWaitReason) update(what string, now time.Time) string {
	if what != l.what {
		l.what, l.since = what, now
	}
	if now.Sub(l.since) < waitsAfter {
		return ""
	}
	return what
}
