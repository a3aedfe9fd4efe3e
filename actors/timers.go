package actors

import (
	"fmt"
	"time"

	"github.com/asynkron/protoactor-go/actor"
)

// timers send an actor messages to itself. The zero value is ready; stop
// belongs into Stopping.
type timers struct {
	pending map[any]*time.Timer // by message
}

// after sends message, a comparable value, once d has passed. A second call
// for the same message moves the first.
func (t *timers) after(c actor.Context, d time.Duration, message any) {
	if t.pending == nil {
		t.pending = make(map[any]*time.Timer)
	}
	if old := t.pending[message]; old != nil {
		old.Stop()
	}
	root, self := c.ActorSystem().Root, c.Self()
	t.pending[message] = time.AfterFunc(d, func() { root.Send(self, message) })
}

func (t *timers) stop() {
	for _, timer := range t.pending {
		timer.Stop()
	}
	t.pending = nil
}

func typeName(m any) string { return fmt.Sprintf("%T", m) }
