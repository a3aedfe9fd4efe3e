package actors

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill/actors/registry"
	"github.com/rowmill/rowmill/internal/panics"
)

func bitmap(rows ...uint32) *roaring.Bitmap { return roaring.BitmapOf(rows...) }

// stage runs a test inside an actor that only takes steps, in virtual time.
func stage(t *testing.T, play func(t *testing.T, take func(mailboxStep))) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		system := actor.NewActorSystem(
			actor.WithDeadLetterThrottleInterval(time.Millisecond),
			actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.DiscardHandler) }),
		)
		pid := system.Root.Spawn(actor.PropsFromFunc(func(c actor.Context) {
			if next, ok := c.Message().(mailboxStep); ok {
				next(c)
			}
		}, actor.WithReceiverMiddleware(unwrapDelayed)))
		play(t, func(next mailboxStep) {
			done := make(chan struct{})
			system.Root.Send(pid, mailboxStep(func(c actor.Context) { next(c); close(done) }))
			<-done
		})
		if err := system.Root.StopFuture(pid).Wait(); err != nil {
			t.Error(err)
		}
		system.Shutdown()
		time.Sleep(time.Second) // of virtual time: remaining goroutines end
	})
}

func TestTheOutcomeOfATaskIsDroppedOnceItsGroupIsCancelled(t *testing.T) {
	t.Parallel()
	stage(t, func(t *testing.T, take func(mailboxStep)) {
		var all sync.WaitGroup
		g := newTaskGroup(t.Context(), &all, registry.New(time.Now).NewEntry(registry.ActorIdentity{}))
		var taken []string
		task := func(name string, d time.Duration) mailboxStep {
			return func(c actor.Context) {
				g.run(c, "a task", func(ctx context.Context) mailboxStep {
					time.Sleep(d)
					return func(actor.Context) { taken = append(taken, name) }
				})
			}
		}
		take(task("early", time.Second))
		take(task("late", time.Minute))
		take(func(c actor.Context) { g.run(c, "a task", func(context.Context) mailboxStep { return nil }) })
		time.Sleep(2 * time.Second)
		take(func(actor.Context) { g.cancel() })
		time.Sleep(time.Hour)
		take(func(actor.Context) {
			if !slices.Equal(taken, []string{"early"}) {
				t.Errorf("taken: %q", taken)
			}
		})
	})
}

func TestTimersMoveAndStop(t *testing.T) {
	t.Parallel()
	stage(t, func(t *testing.T, take func(mailboxStep)) {
		var timers timers
		var taken []string
		note := func(name string) mailboxStep { return func(actor.Context) { taken = append(taken, name) } }
		take(func(c actor.Context) {
			timers.runAfter(c, time.Second, "a", note("first"))
			timers.runAfter(c, 3*time.Second, "a", note("moved"))
			timers.runAfter(c, 2*time.Second, "b", note("b"))
			timers.runAfter(c, time.Hour, "c", note("never"))
		})
		time.Sleep(10 * time.Second)
		take(func(c actor.Context) {
			timers.runAfter(c, time.Second, "a", note("again"))
		})
		time.Sleep(10 * time.Second)
		take(func(actor.Context) { timers.stop() })
		time.Sleep(2 * time.Hour)
		take(func(actor.Context) {
			if !slices.Equal(taken, []string{"b", "moved", "again"}) {
				t.Errorf("taken: %q", taken)
			}
		})
	})
}

// A task that panics stops its actor, as a message does, unless its group has a
// function for panics.
func TestAPanicOfATask(t *testing.T) {
	t.Parallel()
	stage(t, func(t *testing.T, take func(mailboxStep)) {
		var all sync.WaitGroup
		g := newTaskGroup(t.Context(), &all, registry.New(time.Now).NewEntry(registry.ActorIdentity{}))
		broken := func(context.Context) mailboxStep { panic("a task") }
		var heard *panics.Panic
		copied := g
		copied.panicked = func(p *panics.Panic) { heard = p }
		take(func(c actor.Context) { copied.run(c, "a task", broken) })
		synctest.Wait()
		if heard == nil || heard.Reason != "a task" {
			t.Errorf("panicked was called with %v", heard)
		}
		stopped := make(chan any, 1)
		take(func(c actor.Context) {
			c.ActorSystem().EventStream.Subscribe(func(e any) {
				failed, ok := e.(*actor.SupervisorEvent)
				if !ok {
					return
				}
				select {
				case stopped <- failed.Reason:
				default: // the restarted actor fails again
				}
			})
			child := c.Spawn(actor.PropsFromFunc(func(c actor.Context) {
				switch m := c.Message().(type) {
				case *actor.Started:
					g.run(c, "a task", broken)
				case mailboxStep:
					m(c)
				}
			}, actor.WithReceiverMiddleware(unwrapDelayed)))
			c.Watch(child)
		})
		synctest.Wait()
		select {
		case reason := <-stopped:
			if !strings.Contains(stackOf(reason), "TestAPanicOfATask") {
				t.Errorf("the actor was stopped for %v, %s", reason, stackOf(reason))
			}
		default:
			t.Error("the actor did not stop")
		}
	})
}

// Between nodes one message is on its way at a time. Of the waiting messages only
// the newest is sent.
func TestALinkKeepsTheNewest(t *testing.T) {
	t.Parallel()
	stage(t, func(t *testing.T, take func(mailboxStep)) {
		var all sync.WaitGroup
		g := newTaskGroup(t.Context(), &all, registry.New(time.Now).NewEntry(registry.ActorIdentity{}))
		slow := &slowPeers{}
		var failures []error
		l := &messageLink{transport: &peerTransport{peers: slow}, address: "b:1", failed: func(_ *messageLink, err error) { failures = append(failures, err) }}
		take(func(c actor.Context) {
			for _, job := range []string{"1", "2", "3"} {
				l.send(c, g, &hint{Job: job})
			}
		})
		time.Sleep(time.Minute)
		synctest.Wait()
		slow.err = errors.New("nobody there")
		take(func(c actor.Context) { l.send(c, g, &hint{Job: "4"}) })
		time.Sleep(time.Minute)
		take(func(actor.Context) {
			if got := slow.jobs; !slices.Equal(got, []string{"1", "3", "4"}) {
				t.Errorf("sent: %q", got)
			}
			if len(failures) != 1 || !errors.Is(failures[0], slow.err) || l.busy {
				t.Errorf("failures: %v, busy: %v", failures, l.busy)
			}
		})
	})
}
