package registry

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// cacheLine is the size in bytes of the blocks in which processors exchange memory.
const cacheLine = 64

// An ActorEntry has the state of one actor. The actor's mailbox reports each message to it, as to
// an actor.MailboxMiddleware. A report costs a few atomic operations and takes no lock.
//
// Only one waiting message is watched at a time: the first that arrives while no message
// is watched, or the newest one when the watched message has been handled. So the
// reported age of the oldest message is never too large, and too small by at most the
// wait of one message. If an actor hangs, the age grows with the clock.
type ActorEntry struct {
	registry *Registry
	of       ActorIdentity

	// MarkStarted sets these fields.
	id       string
	since    time.Time
	restarts int

	// Senders write posted, the actor writes handled, and both read watched. Each field has
	// its own cache line. In a shared line, each message would move the line between processors.
	_       [cacheLine]byte
	posted  atomic.Int64 // number of messages that have arrived
	_       [cacheLine]byte
	handled atomic.Int64 // number of messages that were handled
	_       [cacheLine]byte
	watched atomic.Int64 // number of the watched message; 0 for none
	came    atomic.Int64 // when the watched message arrived, in the time of Registry.elapsedNanos; 0 for none

	trouble atomic.Pointer[Trouble] // the last trouble; nil for none
	again   atomic.Int64            // number of times that the actor restarted by itself

	mu    sync.Mutex
	tasks map[*RunningTask]struct{}
}

// MarkStarted records that the actor has started, and its id.
func (e *ActorEntry) MarkStarted(id string) {
	e.id, e.since = id, e.registry.clock().UTC()
	e.registry.addEntry(e)
}

// MarkStopped records that the actor has stopped.
func (e *ActorEntry) MarkStopped() {
	e.registry.mu.Lock()
	defer e.registry.mu.Unlock()
	delete(e.registry.live, e)
}

// MailboxStarted does nothing. An actor.MailboxMiddleware must have this method.
func (e *ActorEntry) MailboxStarted() {}

// MessagePosted records that a message has arrived.
func (e *ActorEntry) MessagePosted(any) {
	n := e.posted.Add(1)
	if e.watched.Load() == 0 {
		e.watch(n)
	}
}

// MessageReceived records that a message was handled.
func (e *ActorEntry) MessageReceived(any) {
	handled := e.handled.Add(1)
	watched := e.watched.Load()
	if watched == 0 || handled < watched {
		return
	}
	e.came.Store(0) // another goroutine may read the age meanwhile
	if !e.watched.CompareAndSwap(watched, 0) {
		return
	}
	if posted := e.posted.Load(); posted > handled {
		e.watch(posted)
	}
}

// MailboxEmpty does nothing. An actor.MailboxMiddleware must have this method.
func (e *ActorEntry) MailboxEmpty() {}

// watch makes message number n the watched message, unless another message is watched.
func (e *ActorEntry) watch(n int64) {
	if e.watched.CompareAndSwap(0, n) {
		e.came.Store(e.registry.elapsedNanos())
	}
}

// depth returns the number of messages that wait or are being handled.
func (e *ActorEntry) depth() int64 { return max(0, e.posted.Load()-e.handled.Load()) }

// oldest returns the approximate time that the oldest message has waited; 0 if there is
// none.
func (e *ActorEntry) oldest() time.Duration {
	came := e.came.Load()
	if e.watched.Load() == 0 || e.depth() == 0 || came == 0 {
		return 0
	}
	return max(0, time.Duration(e.registry.elapsedNanos()-came))
}

// MarkRestarted records that the actor has restarted by itself, and the reason why.
func (e *ActorEntry) MarkRestarted(why string) {
	e.setTrouble(why)
	e.registry.mu.Lock()
	defer e.registry.mu.Unlock()
	e.registry.countStart(e.of)
	e.again.Add(1)
}

// setTrouble stores a text as the last trouble of the actor.
func (e *ActorEntry) setTrouble(text string) {
	e.trouble.Store(&Trouble{shorten(text), e.registry.clock().UTC()})
}

// snapshot returns the state of the actor for a listing.
func (e *ActorEntry) snapshot() Actor {
	a := Actor{
		ActorIdentity: e.of, ID: e.id, State: Running, Since: e.since, Restarts: e.restarts + int(e.again.Load()),
		Depth: e.depth(), Oldest: e.oldest(), Trouble: e.trouble.Load(),
	}
	e.eachTask(func(name string, took time.Duration) {
		a.Tasks++
		if a.Task == "" || took > a.TaskTime {
			a.Task, a.TaskTime = name, took
		}
	})
	return a
}

// A RunningTask is work for an actor that runs outside of the actor's mailbox.
type RunningTask struct {
	entry *ActorEntry
	name  string
	began int64 // start time, in the time of Registry.elapsedNanos
}

// Begin records the start of a task. Use few, constant names, because they become
// labels of metrics.
func (e *ActorEntry) Begin(name string) *RunningTask {
	task := &RunningTask{e, name, e.registry.elapsedNanos()}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tasks[task] = struct{}{}
	return task
}

// End records that the task has ended.
func (task *RunningTask) End() {
	task.entry.mu.Lock()
	defer task.entry.mu.Unlock()
	delete(task.entry.tasks, task)
}

// eachTask calls do with the name and the running time of each running task.
func (e *ActorEntry) eachTask(do func(name string, took time.Duration)) {
	now := e.registry.elapsedNanos()
	e.mu.Lock()
	defer e.mu.Unlock()
	for task := range e.tasks {
		do(task.name, max(0, time.Duration(now-task.began)))
	}
}

// key is the key of a context value. The value is the *Task that runs with the context.
type key struct{}

// NewContext returns a context for the work of a task. NoteTrouble and TaskName find the task in this
// context.
func (task *RunningTask) NewContext(ctx context.Context) context.Context {
	return context.WithValue(ctx, key{}, task)
}

// NoteTrouble stores an error as the last trouble of an actor, if ctx belongs to a task of the
// actor.
func NoteTrouble(ctx context.Context, err error) {
	if task, ok := ctx.Value(key{}).(*RunningTask); ok {
		task.entry.setTrouble(err.Error())
	}
}

// TaskName returns the name of the task to which ctx belongs; empty if ctx belongs to
// none.
func TaskName(ctx context.Context) string {
	if task, ok := ctx.Value(key{}).(*RunningTask); ok {
		return task.name
	}
	return ""
}
