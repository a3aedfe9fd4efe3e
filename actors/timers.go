package actors

import (
	"hash/fnv"
	"io"
	"time"

	"github.com/asynkron/protoactor-go/actor"
)

// timers send an actor messages later. The zero value is ready; stop belongs
// into Stopping.
type timers struct {
	pending map[string]*time.Timer // by name
}

// after has the actor take a step once d has passed; it is tell for a step.
func (t *timers) after(c actor.Context, d time.Duration, name string, next step) {
	t.tell(c, d, name, next)
}

// tell sends the actor a message once d has passed, unless it is stopped or
// moved before: by a second call for the same name.
func (t *timers) tell(c actor.Context, d time.Duration, name string, message any) {
	if t.pending == nil {
		t.pending = make(map[string]*time.Timer)
	}
	if old := t.pending[name]; old != nil {
		old.Stop()
	}
	root, self := c.ActorSystem().Root, c.Self()
	var timer *time.Timer
	due := delayed{message, func() bool { return t.pending[name] != timer }}
	timer = time.AfterFunc(d+apart(c.ActorSystem().ID, self.Id, name), func() { root.Send(self, due) })
	t.pending[name] = timer
}

// apart is less than 10 µs, and another for each timer of each actor: timers of one moment
// fire in random order, and a schedule of e2e/virtual would not repeat.
func apart(names ...string) time.Duration {
	h := fnv.New64a()
	for _, name := range names {
		_, _ = io.WriteString(h, name+"\n") // never fails
	}
	return time.Duration(h.Sum64() % uint64(10*time.Microsecond))
}

// cancel drops the message of a name.
func (t *timers) cancel(name string) {
	if timer := t.pending[name]; timer != nil {
		timer.Stop()
		delete(t.pending, name)
	}
}

func (t *timers) stop() {
	for _, timer := range t.pending {
		timer.Stop()
	}
	t.pending = nil
}
