package actors

import (
	"fmt"
	"time"

	"github.com/asynkron/protoactor-go/actor"
)

// timers send an actor messages to itself. The zero value is ready; stop
// belongs into Stopping.
type timers struct {
	pending map[any]*time.Timer // by message, or name of a step
}

// after sends message, a comparable value, once d has passed. A second call
// for the same message moves the first.
func (t *timers) after(c actor.Context, d time.Duration, message any) { t.set(c, d, message, message) }

// run has the actor take a step once d has passed. A second call for the same
// name moves the first.
func (t *timers) run(c actor.Context, d time.Duration, name string, next step) {
	t.set(c, d, name, next)
}

func (t *timers) set(c actor.Context, d time.Duration, key, message any) {
	if t.pending == nil {
		t.pending = make(map[any]*time.Timer)
	}
	if old := t.pending[key]; old != nil {
		old.Stop()
	}
	root, self := c.ActorSystem().Root, c.Self()
	t.pending[key] = time.AfterFunc(d, func() { root.Send(self, message) })
}

func (t *timers) stop() {
	for _, timer := range t.pending {
		timer.Stop()
	}
	t.pending = nil
}

func typeName(m any) string { return fmt.Sprintf("%T", m) }
