package actors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill/actors/registry"
	"github.com/rowmill/rowmill/internal/contain"
)

// A step is work for an actor's own goroutine that comes back to it from
// elsewhere: what is to follow the outcome of slow work, or a time that has
// come. Its Receive calls it.
type step func(c actor.Context)

// A taskGroup runs slow work for an actor outside its mailbox. What is to
// follow comes back as a step, unless the group has been cancelled meanwhile,
// as it is when the actor stops. The system waits for all tasks when it stops.
//
// A task that panics takes its actor along, as a message does, and so the job or
// the part of it that the actor stands for; where panicked is set it hears of that
// instead.
type taskGroup struct {
	ctx      context.Context
	cancel   context.CancelFunc
	all      *sync.WaitGroup
	panicked func(*contain.Panic)
	entry    *registry.Entry // of the actor
}

func newTaskGroup(parent context.Context, all *sync.WaitGroup, entry *registry.Entry) taskGroup {
	ctx, cancel := context.WithCancel(parent)
	return taskGroup{ctx: ctx, cancel: cancel, all: all, entry: entry}
}

// run runs a task; operators and metrics know it by its name.
func (g taskGroup) run(c actor.Context, name string, task func(ctx context.Context) step) {
	root, self := c.ActorSystem().Root, c.Self()
	errand := g.entry.Begin(name)
	g.all.Add(1)
	go func() {
		defer g.all.Done()
		defer errand.End()
		next := g.perform(errand.On(g.ctx), task)
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

// perform runs a task and returns what is to follow.
func (g taskGroup) perform(ctx context.Context, task func(ctx context.Context) step) (next step) {
	err := contain.Run(func() error {
		next = task(ctx)
		return nil
	})
	var caught *contain.Panic
	switch {
	case !errors.As(err, &caught):
		return next
	case g.panicked != nil:
		g.panicked(caught)
		return nil
	}
	return func(actor.Context) { panic(caught) }
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
