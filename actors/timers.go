package actors

import (
	"time"

	"github.com/asynkron/protoactor-go/actor"
)

// timers have an actor take steps later. The zero value is ready; stop belongs
// into Stopping.
type timers struct {
	pending map[string]*time.Timer // by name
}

// after has the actor take a step once d has passed, unless it is stopped or
// moved before: by a second call for the same name.
func (t *timers) after(c actor.Context, d time.Duration, name string, next step) {
	if t.pending == nil {
		t.pending = make(map[string]*time.Timer)
	}
	if old := t.pending[name]; old != nil {
		old.Stop()
	}
	root, self := c.ActorSystem().Root, c.Self()
	var timer *time.Timer
	due := step(func(c actor.Context) {
		if t.pending[name] == timer {
			next(c)
		}
	})
	timer = time.AfterFunc(d, func() { root.Send(self, due) })
	t.pending[name] = timer
}

// cancel drops the step of a name.
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
