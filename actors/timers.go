package actors

import (
	"hash/fnv"
	"io"
	"time"

	"github.com/asynkron/protoactor-go/actor"
)

// timers send messages to an actor later. The zero value is ready; call stop in
// Stopping.
type timers struct {
	pending map[due]*time.Timer
}

// A due is the name of a timer, and the message that send sends. A timer is replaced and
// cancelled by its name.
type due string

// after makes the actor run a step after d.
func (t *timers) after(c actor.Context, d time.Duration, name string, next step) {
	t.tell(c, d, due(name), next)
}

// send sends the actor the name of the timer after d.
func (t *timers) send(c actor.Context, d time.Duration, name due) { t.tell(c, d, name, name) }

// tell sends the actor a message after d. A second call for the same name replaces
// the first; cancel and stop drop the message.
func (t *timers) tell(c actor.Context, d time.Duration, name due, message any) {
	if t.pending == nil {
		t.pending = make(map[due]*time.Timer)
	}
	if old := t.pending[name]; old != nil {
		old.Stop()
	}
	root, self := c.ActorSystem().Root, c.Self()
	var timer *time.Timer
	m := delayed{message, func() bool { return t.pending[name] != timer }}
	timer = time.AfterFunc(d+timerOffset(c.ActorSystem().ID, self.Id, string(name)), func() { root.Send(self, m) })
	t.pending[name] = timer
}

// timerOffset returns less than 10 µs, different for each timer of each actor. Timers
// with the same time fire in random order, so a schedule of e2e/virtual would not
// repeat.
func timerOffset(names ...string) time.Duration {
	h := fnv.New64a()
	for _, name := range names {
		_, _ = io.WriteString(h, name+"\n") // never fails
	}
	return time.Duration(h.Sum64() % uint64(10*time.Microsecond))
}

// cancel drops the message of the timer with this name.
func (t *timers) cancel(name due) {
	if timer := t.pending[name]; timer != nil {
		timer.Stop()
		delete(t.pending, name)
	}
}

// stop drops the messages of all timers.
func (t *timers) stop() {
	for _, timer := range t.pending {
		timer.Stop()
	}
	t.pending = nil
}
