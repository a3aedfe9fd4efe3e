package actors

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/asynkron/protoactor-go/actor"
)

// A step is work for an actor's own goroutine that comes back to it from
// elsewhere: what is to follow the outcome of slow work, or a time that has
// come. Its Receive calls it.
type step func(c actor.Context)

// A taskGroup runs slow work for an actor outside its mailbox. What is to
// follow comes back as a step, unless the group has been cancelled meanwhile,
// as it is when the actor stops. The system waits for all tasks when it stops.
type taskGroup struct {
	ctx    context.Context
	cancel context.CancelFunc
	all    *sync.WaitGroup
}

func newTaskGroup(parent context.Context, all *sync.WaitGroup) taskGroup {
	ctx, cancel := context.WithCancel(parent)
	return taskGroup{ctx: ctx, cancel: cancel, all: all}
}

func (g taskGroup) run(c actor.Context, task func(ctx context.Context) step) {
	root, self := c.ActorSystem().Root, c.Self()
	g.all.Add(1)
	go func() {
		defer g.all.Done()
		next := task(g.ctx)
		if next == nil {
			return
		}
		root.Send(self, step(func(c actor.Context) {
			if g.ctx.Err() == nil {
				next(c)
			}
		}))
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

func typeName(m any) string { return fmt.Sprintf("%T", m) }
