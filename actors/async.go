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

// A mailboxStep is a function that an actor gets as a message; the actor's Receive calls the
// function. Slow work sends a step when the work is done, and a timer sends a step when
// the timer fires.
type mailboxStep func(c actor.Context)

// A taskGroup runs slow work for an actor outside the actor's mailbox. The result of a
// task comes back as a message or a step. A group is cancelled when its actor stops,
// and then drops all results. The System waits for all tasks when the System stops.
//
// If a task panics, the actor panics too, and the actor's job fails. If panicked is
// set, the group calls panicked instead.
type taskGroup struct {
	ctx      context.Context
	cancel   context.CancelFunc
	all      *sync.WaitGroup      // all tasks of the System
	panicked func(*panics.Panic)  // called with a task's panic; nil: the actor panics
	entry    *registry.ActorEntry // the actor's entry, which shows the running tasks
}

func newTaskGroup(parent context.Context, all *sync.WaitGroup, entry *registry.ActorEntry) taskGroup {
	ctx, cancel := context.WithCancel(parent)
	return taskGroup{ctx: ctx, cancel: cancel, all: all, entry: entry}
}

// A delayedMessage is a message from slow work or from a timer. The actor receives body,
// unless the work or the timer was stopped in the meantime: then stopped returns true.
type delayedMessage struct {
	body    any
	stopped func() bool
}

// unwrapDelayed is the middleware that unwraps the delayed messages of an actor.
func unwrapDelayed(next actor.ReceiverFunc) actor.ReceiverFunc {
	return func(c actor.ReceiverContext, e *actor.MessageEnvelope) {
		if m, is := e.Message.(delayedMessage); is {
			if m.stopped() {
				return
			}
			e = actor.WrapEnvelope(m.body)
		}
		next(c, e)
	}
}

// runAndSend runs a task and sends its result to the actor, unless the result is nil. name
// identifies the task in metrics and in the list of actors for operators.
func (g taskGroup) runAndSend(c actor.Context, name string, task func(ctx context.Context) any) {
	root, self := c.ActorSystem().Root, c.Self()
	began := g.entry.Begin(name)
	g.all.Go(func() {
		defer began.End()
		if next := g.perform(began.NewContext(g.ctx), task); next != nil {
			root.Send(self, delayedMessage{next, func() bool { return g.ctx.Err() != nil }})
		}
	})
}

// run runs a task that returns a step; the actor then runs the step.
func (g taskGroup) run(c actor.Context, name string, task func(ctx context.Context) mailboxStep) {
	g.runAndSend(c, name, func(ctx context.Context) any {
		if next := task(ctx); next != nil {
			return next
		}
		return nil
	})
}

// perform runs a task and returns its result.
func (g taskGroup) perform(ctx context.Context, task func(ctx context.Context) any) (message any) {
	err := panics.Catch(func() error {
		message = task(ctx)
		return nil
	})
	var caught *panics.Panic
	switch {
	case !errors.As(err, &caught):
		return message
	case g.panicked != nil:
		g.panicked(caught)
		return nil
	}
	return mailboxStep(func(actor.Context) { panic(caught) })
}

// runWithResult calls do through run and returns the value and the error. run is panics.Catch,
// or a function that waits while storage is unavailable.
func runWithResult[T any](run func(do func() error) error, do func() (T, error)) (value T, err error) {
	err = run(func() (err error) {
		value, err = do()
		return err
	})
	return value, err
}

// logUnhandled logs a message that the actor has no code for. It ignores lifecycle
// messages.
func logUnhandled(c actor.Context, log *slog.Logger) {
	switch m := c.Message().(type) {
	case *actor.Started, *actor.Stopping, *actor.Stopped, *actor.Restarting, *actor.Terminated:
	case *actor.DeadLetterResponse: // the receiver of a request has stopped; the sender notices this by other means
	default:
		log.Warn("actor got a message that it does not handle", "actor", c.Self().GetId(), "message", typeName(m))
	}
}

func typeName(m any) string { return fmt.Sprintf("%T", m) }

// stackOf returns the stack trace if a task panicked; empty if the actor itself
// panicked.
func stackOf(reason any) string {
	if caught, ok := reason.(*panics.Panic); ok {
		return string(caught.Stack)
	}
	return ""
}
