// Package registry tracks the state of a node's actors: how many messages wait and for how
// long, the running tasks, and the last warning or error. Mailboxes, task groups and loggers
// report to the registry, and operators read it. It knows no types of actors, and only the
// ids of jobs.
package registry

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/rowmill/rowmill/internal/cache"
	"github.com/rowmill/rowmill/internal/textfmt"
)

// Limits for the data about actors that have ended.
const (
	mostLost   = 32   // maximum number of actors in Registry.lost
	mostStarts = 4096 // minimum number of combinations of kind, job and engine in Registry.starts
)

// maxListed is the maximum number of actors in a listing. It keeps the JSON of a
// listing well below the limit of a message between nodes.
const maxListed = 500

// maxTrouble is the maximum length of Trouble.Text in bytes.
const maxTrouble = 300

// An ActorIdentity says which actor it is: its kind, and the job or the engine for which it works.
type ActorIdentity struct {
	Kind   string `json:"kind"`
	Job    string `json:"job,omitempty"`
	Engine string `json:"engine,omitempty"`
}

// The states of an Actor.
const (
	Running  = "running"
	Panicked = "panicked" // the actor was stopped after a panic
)

// An Actor is the state of an actor at one time, for a listing.
type Actor struct {
	ActorIdentity
	ID       string    `json:"id"`
	State    string    `json:"state"`
	Since    time.Time `json:"since"`
	Restarts int       `json:"restarts"`      // number of earlier actors on this node with the same ActorIdentity
	Depth    int64     `json:"mailbox_depth"` // number of messages that wait or are being handled
	// Oldest is how long the oldest message has waited, or a little less. The message that is
	// being handled counts too.
	Oldest time.Duration `json:"oldest_message"`
	// Tasks is the number of running tasks. Task and TaskTime describe the task that has run
	// for the longest time.
	Tasks    int           `json:"tasks"`
	Task     string        `json:"task,omitempty"`
	TaskTime time.Duration `json:"task_time"`
	Trouble  *Trouble      `json:"trouble,omitempty"`
}

// age returns how long the actor has been busy with its oldest message or longest task.
func (a Actor) age() time.Duration { return max(a.Oldest, a.TaskTime) }

// A Trouble is the last warning or error of an actor.
type Trouble struct {
	Text string    `json:"text"` // the text of the log, without data of clients
	At   time.Time `json:"at"`
}

// A Filter selects actors of a listing. An empty field selects all actors.
type Filter struct {
	Kind   string        `json:"kind,omitempty"`
	Job    string        `json:"job,omitempty"`
	MinAge time.Duration `json:"min_age,omitempty"`
}

// matches reports whether the filter selects an actor.
func (f Filter) matches(a Actor) bool {
	return (f.Kind == "" || f.Kind == a.Kind) && (f.Job == "" || f.Job == a.Job) && a.age() >= f.MinAge
}

// A Listing has the actors of a node that a Filter selects. The actor with the oldest
// message or task comes first.
type Listing struct {
	Actors  []Actor `json:"actors"`
	LeftOut int     `json:"left_out,omitempty"` // number of actors beyond maxListed
}

// A Registry has the actors of a node.
type Registry struct {
	clock func() time.Time
	began time.Time // time 0 of the method now

	mu     sync.Mutex
	live   map[*ActorEntry]struct{}      // the entries of running actors
	lost   []Actor                       // the last actors that were stopped after a panic
	starts cache.LRU[ActorIdentity, int] // number of starts, by ActorIdentity
}

// New returns an empty registry. clock gives the times that people read; ages use a
// monotonic clock.
func New(clock func() time.Time) *Registry {
	return &Registry{clock: clock, began: time.Now(), live: make(map[*ActorEntry]struct{}), starts: cache.LRU[ActorIdentity, int]{Most: mostStarts}}
}

// elapsedNanos returns the nanoseconds since the registry was made, by a monotonic clock. It
// never returns 0, because 0 means that there is no time.
func (r *Registry) elapsedNanos() int64 { return int64(time.Since(r.began)) + 1 }

// NewEntry returns an entry for an actor that will be started.
func (r *Registry) NewEntry(of ActorIdentity) *ActorEntry {
	return &ActorEntry{registry: r, of: of, tasks: make(map[*RunningTask]struct{})}
}

// addEntry adds the entry of an actor that has started.
func (r *Registry) addEntry(e *ActorEntry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.live[e] = struct{}{}
	e.restarts = r.countStart(e.of)
}

// countStart counts a start, and returns the number of earlier starts with the same
// ActorIdentity.
func (r *Registry) countStart(of ActorIdentity) (before int) {
	before, _ = r.starts.Get(of)
	r.starts.Put(of, before+1)
	return before
}

// MarkPanicked records that the actor with this id was stopped after a panic, and the
// reason.
func (r *Registry) MarkPanicked(id, reason string) {
	for _, e := range r.entries() {
		if e.id != id {
			continue
		}
		e.setTrouble(reason)
		a := e.snapshot()
		a.State = Panicked
		a.Depth, a.Oldest, a.Tasks, a.Task, a.TaskTime = 0, 0, 0, "", 0
		e.MarkStopped()
		r.mu.Lock()
		if r.lost = append(r.lost, a); len(r.lost) > mostLost {
			r.lost = slices.Delete(r.lost, 0, 1)
		}
		r.mu.Unlock()
	}
}

// entries returns the entries of all running actors.
func (r *Registry) entries() []*ActorEntry {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]*ActorEntry, 0, len(r.live))
	for e := range r.live {
		all = append(all, e)
	}
	return all
}

// List returns the actors that the filter selects. The actor with the oldest message or
// task comes first.
func (r *Registry) List(f Filter) Listing {
	var l Listing
	for _, e := range r.entries() {
		if a := e.snapshot(); f.matches(a) {
			l.Actors = append(l.Actors, a)
		}
	}
	r.mu.Lock()
	for _, a := range r.lost {
		if f.matches(a) {
			l.Actors = append(l.Actors, a)
		}
	}
	r.mu.Unlock()
	slices.SortFunc(l.Actors, func(a, b Actor) int { return cmp.Or(cmp.Compare(b.age(), a.age()), cmp.Compare(a.ID, b.ID)) })
	if l.LeftOut = len(l.Actors) - maxListed; l.LeftOut > 0 {
		l.Actors = l.Actors[:maxListed]
	} else {
		l.LeftOut = 0
	}
	return l
}

// A KindTotals has the totals over all actors of one kind.
type KindTotals struct {
	Depth  int64 // number of messages that wait or are being handled
	Oldest time.Duration
	Tasks  map[string]time.Duration // by task name: the longest running time
}

// TotalsByKind returns the KindTotals of each kind with running actors, by kind.
func (r *Registry) TotalsByKind() map[string]KindTotals {
	all := make(map[string]KindTotals)
	for _, e := range r.entries() {
		f := all[e.of.Kind]
		f.Depth += e.depth()
		f.Oldest = max(f.Oldest, e.oldest())
		e.eachTask(func(name string, took time.Duration) {
			if f.Tasks == nil {
				f.Tasks = make(map[string]time.Duration)
			}
			f.Tasks[name] = max(f.Tasks[name], took)
		})
		all[e.of.Kind] = f
	}
	return all
}

func shorten(text string) string { return textfmt.Shorten(text, maxTrouble) }
