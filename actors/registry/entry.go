package registry

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// cacheLine is the unit, in bytes, in which processors exchange memory.
const cacheLine = 64

// An Entry has the state of an actor. Its mailbox reports messages to it, as to an
// actor.MailboxMiddleware. This costs a few atomic operations per message and takes no
// lock.
//
// Only one waiting message is watched at a time: the first that arrives while no message
// is watched, or the newest one when the watched message has been handled. So the
// reported age of the oldest message is never too large, and too small by at most the
// wait of a message: if an actor hangs, the age grows with the clock.
type Entry struct {
	registry *Registry
	of       Of

	// Set by MarkStarted.
	id       string
	since    time.Time
	restarts int

	// Senders write posted, the actor writes handled, both read watched. Each has its
	// own cache line, or each message would move the line between processors.
	_       [cacheLine]byte
	posted  atomic.Int64
	_       [cacheLine]byte
	handled atomic.Int64
	_       [cacheLine]byte
	watched atomic.Int64 // number of the watched message; 0 for none
	came    atomic.Int64 // when the watched message arrived, in Registry.now

	trouble atomic.Pointer[Trouble]
	again   atomic.Int64 // number of restarts by the actor itself

	mu    sync.Mutex
	tasks map[*Task]struct{}
}

// MarkStarted notes that the actor has started, with its id.
func (e *Entry) MarkStarted(id string) {
	e.id, e.since = id, e.registry.clock().UTC()
	e.registry.enter(e)
}

// MarkStopped notes that the actor has stopped.
func (e *Entry) MarkStopped() {
	e.registry.mu.Lock()
	defer e.registry.mu.Unlock()
	delete(e.registry.live, e)
}

// MailboxStarted does nothing.
func (e *Entry) MailboxStarted() {}

// MessagePosted notes that a message has arrived.
func (e *Entry) MessagePosted(any) {
	n := e.posted.Add(1)
	if e.watched.Load() == 0 {
		e.watch(n)
	}
}

// MessageReceived notes that a message has been handled.
func (e *Entry) MessageReceived(any) {
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

// MailboxEmpty does nothing.
func (e *Entry) MailboxEmpty() {}

// watch starts to watch message n, unless another message is watched.
func (e *Entry) watch(n int64) {
	if e.watched.CompareAndSwap(0, n) {
		e.came.Store(e.registry.now())
	}
}

func (e *Entry) depth() int64 { return max(0, e.posted.Load()-e.handled.Load()) }

func (e *Entry) oldest() time.Duration {
	came := e.came.Load()
	if e.watched.Load() == 0 || e.depth() == 0 || came == 0 {
		return 0
	}
	return max(0, time.Duration(e.registry.now()-came))
}

// Restarted notes that the actor has restarted by itself, and the reason.
func (e *Entry) Restarted(why string) {
	e.note(why)
	e.registry.mu.Lock()
	defer e.registry.mu.Unlock()
	e.registry.start(e.of)
	e.again.Add(1)
}

// note keeps the last trouble of the actor.
func (e *Entry) note(text string) {
	e.trouble.Store(&Trouble{shorten(text), e.registry.clock().UTC()})
}

func (e *Entry) actor() Actor {
	a := Actor{
		Of: e.of, ID: e.id, State: Running, Since: e.since, Restarts: e.restarts + int(e.again.Load()),
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

// A Task is work for an actor that runs outside of the actor.
type Task struct {
	entry *Entry
	name  string
	began int64
}

// Begin notes the start of a task. Use few and constant names, because they are
// labels of metrics.
func (e *Entry) Begin(name string) *Task {
	task := &Task{e, name, e.registry.now()}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tasks[task] = struct{}{}
	return task
}

// End notes that a task has ended.
func (task *Task) End() {
	task.entry.mu.Lock()
	defer task.entry.mu.Unlock()
	delete(task.entry.tasks, task)
}

func (e *Entry) eachTask(do func(name string, took time.Duration)) {
	now := e.registry.now()
	e.mu.Lock()
	defer e.mu.Unlock()
	for task := range e.tasks {
		do(task.name, max(0, time.Duration(now-task.began)))
	}
}

// key is the key of a context's value: the task that runs with the context.
type key struct{}

// On returns a context for the work of a task: Met and Doing recognize the task.
func (task *Task) On(ctx context.Context) context.Context {
	return context.WithValue(ctx, key{}, task)
}

// Met notes an error as the last trouble of an actor, if a task of the actor runs with
// this context.
func Met(ctx context.Context, err error) {
	if task, ok := ctx.Value(key{}).(*Task); ok {
		task.entry.note(err.Error())
	}
}

// Doing returns the name of the task that runs with this context; empty if there is
// none.
func Doing(ctx context.Context) string {
	if task, ok := ctx.Value(key{}).(*Task); ok {
		return task.name
	}
	return ""
}
