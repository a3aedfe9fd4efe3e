package actors

import (
	"hash/fnv"
	"io"
	"time"

	"github.com/asynkron/protoactor-go/actor"
)

// timers sends messages to an actor after a time. The zero value is ready to use. The
// actor must call stop when it gets the message Stopping.
type timers struct {
	pending map[timerName]*time.Timer
}

// A timerName is the name of a timer, and the message that the timer sends after a call of
// sendAfter. An actor has at most one timer with the same name.
type timerName string

// runAfter makes the actor run a step after d.
func (t *timers) runAfter(c actor.Context, d time.Duration, name string, next mailboxStep) {
	t.schedule(c, d, timerName(name), next)
}

// sendAfter makes the actor receive the name of the timer, as a message, after d.
func (t *timers) sendAfter(c actor.Context, d time.Duration, name timerName) {
	t.schedule(c, d, name, name)
}

// schedule makes the actor receive a message after d. A second call with the same name
// replaces the first. After cancel or stop, the message does not arrive.
func (t *timers) schedule(c actor.Context, d time.Duration, name timerName, message any) {
	if t.pending == nil {
		t.pending = make(map[timerName]*time.Timer)
	}
	if old := t.pending[name]; old != nil {
		old.Stop()
	}
	root, self := c.ActorSystem().Root, c.Self()
	var timer *time.Timer
	m := delayedMessage{message, func() bool { return t.pending[name] != timer }}
	timer = time.AfterFunc(d+timerOffset(c.ActorSystem().ID, self.Id, string(name)), func() { root.Send(self, m) })
	t.pending[name] = timer
}

// timerOffset returns an extra delay below 10 µs, different for each timer of each
// actor. Without it, timers with the same time would fire in random order, and a
// simulated run of e2e/virtual could not be repeated exactly.
func timerOffset(names ...string) time.Duration {
	h := fnv.New64a()
	for _, name := range names {
		_, _ = io.WriteString(h, name+"\n") // never fails
	}
	return time.Duration(h.Sum64() % uint64(10*time.Microsecond))
}

// cancel stops the timer with this name; its message does not arrive.
func (t *timers) cancel(name timerName) {
	if timer := t.pending[name]; timer != nil {
		timer.Stop()
		delete(t.pending, name)
	}
}

// stop stops all timers; their messages do not arrive.
func (t *timers) stop() {
	for _, timer := range t.pending {
		timer.Stop()
	}
	t.pending = nil
}
