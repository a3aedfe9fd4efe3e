package actors

import (
	"context"
	"log/slog"
	"sync"

	"github.com/asynkron/protoactor-go/actor"
)

// A step is work for an actor's own goroutine that comes back to it from
// elsewhere: what is to follow the outcome of slow work, or a time that has
// come. Its Receive calls it.
type step func(c actor.Context)

// An errand runs slow work for an actor outside its mailbox: what the work
// returns comes back as a message, unless it is nil. Its context ends when the
// actor stops. The system waits for all errands when it stops.
type errand struct {
	ctx    context.Context
	cancel context.CancelFunc
	all    *sync.WaitGroup
}

func newErrand(parent context.Context, all *sync.WaitGroup) errand {
	ctx, cancel := context.WithCancel(parent)
	return errand{ctx: ctx, cancel: cancel, all: all}
}

func (e errand) run(c actor.Context, work func(ctx context.Context) any) {
	root, self := c.ActorSystem().Root, c.Self()
	e.all.Add(1)
	go func() {
		defer e.all.Done()
		if m := work(e.ctx); m != nil {
			root.Send(self, m)
		}
	}()
}

// unhandled logs a message that an actor has no case for; lifecycle messages
// pass.
func unhandled(c actor.Context, log *slog.Logger) {
	switch m := c.Message().(type) {
	case *actor.Started, *actor.Stopping, *actor.Stopped, *actor.Restarting, *actor.Terminated:
	default:
		log.Warn("unhandled message", "actor", c.Self().GetId(), "message", typeName(m))
	}
}
