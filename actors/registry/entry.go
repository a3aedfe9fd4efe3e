package registry

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// cacheLine is what processors take from each other at once, in bytes.
const cacheLine = 64

// An Entry is what is known of one actor. Its mailbox tells it of messages, as
// an actor.MailboxMiddleware does, which costs a few atomic operations each and
// takes no lock.
//
// Of the messages that wait one is watched at a time: the first that comes while
// none is, or the last one there is when the watched one has been handled. So
// the age of the oldest is never told too long, and too short by at most what
// one message has waited before: an actor that stands still ages with the clock.
type Entry struct {
	registry *Registry
	of       Of

	// Set by Entered.
	id       string
	since    time.Time
	restarts int

	// Senders write posted, the actor handled; both read watched. Each has a cache
	// line of its own, or every message would take it from the other processor.
	_       [cacheLine]byte
	posted  atomic.Int64
	_       [cacheLine]byte
	handled atomic.Int64
	_       [cacheLine]byte
	watched atomic.Int64 // the number of a message; 0 for none
	came    atomic.Int64 // when it came, by Registry.now

	trouble atomic.Pointer[Trouble]
	again   atomic.Int64 // how often it has begun again by itself

	mu      sync.Mutex
	errands map[*Errand]struct{}
}

// Entered notes that the actor has started, under its id.
func (e *Entry) Entered(id string) {
	e.id, e.since = id, e.registry.clock().UTC()
	e.registry.enter(e)
}

// Left notes that it has stopped.
func (e *Entry) Left() {
	e.registry.mu.Lock()
	defer e.registry.mu.Unlock()
	delete(e.registry.live, e)
}

// MailboxStarted is not noted.
func (e *Entry) MailboxStarted() {}

// MessagePosted notes a message that came.
func (e *Entry) MessagePosted(any) {
	n := e.posted.Add(1)
	if e.watched.Load() == 0 {
		e.watch(n)
	}
}

// MessageReceived notes one that has been handled.
func (e *Entry) MessageReceived(any) {
	handled := e.handled.Add(1)
	watched := e.watched.Load()
	if watched == 0 || handled < watched {
		return
	}
	e.came.Store(0) // an age is read in between
	if !e.watched.CompareAndSwap(watched, 0) {
		return
	}
	if posted := e.posted.Load(); posted > handled {
		e.watch(posted)
	}
}

// MailboxEmpty is not noted.
func (e *Entry) MailboxEmpty() {}

// watch watches message n, unless another is.
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

// Restarted notes that the actor has begun again by itself, and why.
func (e *Entry) Restarted(why string) {
	e.note(why)
	e.registry.mu.Lock()
	defer e.registry.mu.Unlock()
	e.registry.starts[e.of]++
	e.again.Add(1)
}

// note keeps a trouble of the actor.
func (e *Entry) note(text string) {
	e.trouble.Store(&Trouble{shorten(text), e.registry.clock().UTC()})
}

func (e *Entry) actor() Actor {
	a := Actor{
		Of: e.of, ID: e.id, State: Running, Since: e.since, Restarts: e.restarts + int(e.again.Load()),
		Depth: e.depth(), Oldest: e.oldest(), Trouble: e.trouble.Load(),
	}
	e.eachErrand(func(name string, took time.Duration) {
		a.Errands++
		if a.Errand == "" || took > a.ErrandTime {
			a.Errand, a.ErrandTime = name, took
		}
	})
	return a
}

// An Errand is work that an actor has out.
type Errand struct {
	entry *Entry
	name  string
	began int64
}

// Begin notes an errand. Names are few and constant: metrics are labelled by
// them.
func (e *Entry) Begin(name string) *Errand {
	errand := &Errand{e, name, e.registry.now()}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.errands[errand] = struct{}{}
	return errand
}

// End notes that an errand is over.
func (errand *Errand) End() {
	errand.entry.mu.Lock()
	defer errand.entry.mu.Unlock()
	delete(errand.entry.errands, errand)
}

func (e *Entry) eachErrand(do func(name string, took time.Duration)) {
	now := e.registry.now()
	e.mu.Lock()
	defer e.mu.Unlock()
	for errand := range e.errands {
		do(errand.name, max(0, time.Duration(now-errand.began)))
	}
}

type key struct{}

// On is the context of what is done on an errand.
func (errand *Errand) On(ctx context.Context) context.Context {
	return context.WithValue(ctx, key{}, errand)
}

// Met notes an error for the actor on whose errand ctx is, if it is on one.
func Met(ctx context.Context, err error) {
	if errand, ok := ctx.Value(key{}).(*Errand); ok {
		errand.entry.note(err.Error())
	}
}

// Doing is the name of the errand that ctx is on, empty where it is on none.
func Doing(ctx context.Context) string {
	if errand, ok := ctx.Value(key{}).(*Errand); ok {
		return errand.name
	}
	return ""
}
