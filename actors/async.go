package actors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill/actors/registry"
	"github.com/rowmill/rowmill/internal/panics"
)

// A step is a function that an actor runs as a message. Slow work and timers send
// steps: the actor continues there after the work, or when a time has come. The
// actor's Receive calls the step.
type step func(c actor.Context)

// A taskGroup runs slow work for an actor outside its mailbox. The result comes
// back as a message or a step. A cancelled group drops the result; a group is
// cancelled when its actor stops. The System waits for all tasks when it stops.
//
// A task that panics makes its actor panic, as a message does. The actor then fails
// its job or its share of the job. If panicked is set, the group calls panicked
// instead.
type taskGroup struct {
	ctx      context.Context
	cancel   context.CancelFunc
	all      *sync.WaitGroup
	panicked func(*panics.Panic)
	entry    *registry.Entry // the actor's entry, which shows the running tasks
}

func newTaskGroup(parent context.Context, all *sync.WaitGroup, entry *registry.Entry) taskGroup {
	ctx, cancel := context.WithCancel(parent)
	return taskGroup{ctx: ctx, cancel: cancel, all: all, entry: entry}
}

// A delayed message comes from slow work or from a timer. The actor gets its body,
// unless the work or the timer was stopped in the meantime.
type delayed struct {
	body    any
	stopped func() bool
}

// unwrapDelayed is the middleware that unwraps the delayed messages of an actor.
func unwrapDelayed(next actor.ReceiverFunc) actor.ReceiverFunc {
	return func(c actor.ReceiverContext, e *actor.MessageEnvelope) {
		if m, is := e.Message.(delayed); is {
			if m.stopped() {
				return
			}
			e = actor.WrapEnvelope(m.body)
		}
		next(c, e)
	}
}

// tell runs a task and sends its result to the actor, unless the result is nil.
// Operators and metrics know the task by its name.
func (g taskGroup) tell(c actor.Context, name string, task func(ctx context.Context) any) {
	root, self := c.ActorSystem().Root, c.Self()
	began := g.entry.Begin(name)
	g.all.Add(1)
	go func() {
		defer g.all.Done()
		defer began.End()
		if next := g.perform(began.On(g.ctx), task); next != nil {
			root.Send(self, delayed{next, func() bool { return g.ctx.Err() != nil }})
		}
	}()
}

// run runs a task that returns a step; the actor then runs the step.
func (g taskGroup) run(c actor.Context, name string, task func(ctx context.Context) step) {
	g.tell(c, name, func(ctx context.Context) any {
		if next := task(ctx); next != nil {
			return next
		}
		return nil
	})
}

// perform runs a task and returns its result.
func (g taskGroup) perform(ctx context.Context, task func(ctx context.Context) any) (next any) {
	err := panics.Catch(func() error {
		next = task(ctx)
		return nil
	})
	var caught *panics.Panic
	switch {
	case !errors.As(err, &caught):
		return next
	case g.panicked != nil:
		g.panicked(caught)
		return nil
	}
	return step(func(actor.Context) { panic(caught) })
}

// result calls do through run and returns the value and the error. run is panics.Catch,
// or a function that waits while storage is unavailable.
func result[T any](run func(do func() error) error, do func() (T, error)) (value T, err error) {
	err = run(func() (err error) {
		value, err = do()
		return err
	})
	return value, err
}

// unhandled logs a message that the actor has no code for. It ignores lifecycle
// messages.
func unhandled(c actor.Context, log *slog.Logger) {
	switch m := c.Message().(type) {
	case *actor.Started, *actor.Stopping, *actor.Stopped, *actor.Restarting, *actor.Terminated:
	case *actor.DeadLetterResponse: // the receiver of a request has ended; the sender learns this in other ways
	default:
		log.Warn("actor got a message that it does not handle", "actor", c.Self().GetId(), "message", typeName(m))
	}
}

func typeName(m any) string { return fmt.Sprintf("%T", m) }

// stackOf returns the stack of a task's panic; empty for a panic in a message.
func stackOf(reason any) string {
	if caught, ok := reason.(*panics.Panic); ok {
		return string(caught.Stack)
	}
	return ""
}
