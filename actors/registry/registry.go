// Package registry has the state of a node's actors: the messages that wait and for how
// long, the running tasks, and the last trouble. Mailboxes, task groups and loggers
// report to it, and operators read it. It knows no actor types, and of a job only the
// id.
package registry

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/rowmill/rowmill/internal/cache"
	"github.com/rowmill/rowmill/internal/textfmt"
)

// Limits for data about actors that have ended.
const (
	mostLost   = 32   // number of listed actors that panicked
	mostStarts = 4096 // number of remembered combinations of kind, job and engine, at least
)

// maxListed is the number of actors in a listing: its JSON stays well below the limit of
// a message between nodes.
const maxListed = 500

// maxTrouble is the maximum length of a trouble in bytes.
const maxTrouble = 300

// An Of identifies an actor: its kind, and the job or the engine that it works for.
type Of struct {
	Kind   string `json:"kind"`
	Job    string `json:"job,omitempty"`
	Engine string `json:"engine,omitempty"`
}

// The states of an Actor.
const (
	Running  = "running"
	Panicked = "panicked" // it was stopped after a panic
)

// An Actor is the state of an actor.
type Actor struct {
	Of
	ID       string    `json:"id"`
	State    string    `json:"state"`
	Since    time.Time `json:"since"`
	Restarts int       `json:"restarts"` // number of earlier actors here with the same Of
	Depth    int64     `json:"mailbox_depth"`
	// Oldest is the time that the oldest message has waited, or a little less. The message
	// that is being handled counts too.
	Oldest time.Duration `json:"oldest_message"`
	// Tasks is the number of running tasks, and Task the name of the longest one.
	Tasks    int           `json:"tasks"`
	Task     string        `json:"task,omitempty"`
	TaskTime time.Duration `json:"task_time"`
	Trouble  *Trouble      `json:"trouble,omitempty"`
}

// age returns how long an actor has been busy with one message or task.
func (a Actor) age() time.Duration { return max(a.Oldest, a.TaskTime) }

// A Trouble is the last warning or error of an actor.
type Trouble struct {
	Text string    `json:"text"` // as in the log, and free of clients' data
	At   time.Time `json:"at"`
}

// A Filter selects actors. An empty field selects all.
type Filter struct {
	Kind   string        `json:"kind,omitempty"`
	Job    string        `json:"job,omitempty"`
	MinAge time.Duration `json:"min_age,omitempty"`
}

func (f Filter) takes(a Actor) bool {
	return (f.Kind == "" || f.Kind == a.Kind) && (f.Job == "" || f.Job == a.Job) && a.age() >= f.MinAge
}

// A Listing has the actors of a node that a Filter selects, the oldest first.
type Listing struct {
	Actors  []Actor `json:"actors"`
	LeftOut int     `json:"left_out,omitempty"` // number of actors beyond maxListed
}

// A Registry has the actors of a node.
type Registry struct {
	clock func() time.Time
	began time.Time // start of the monotonic clock for ages

	mu     sync.Mutex
	live   map[*Entry]struct{}
	lost   []Actor // the last actors that panicked
	starts cache.LRU[Of, int]
}

// New returns an empty registry. clock gives the times that people read.
func New(clock func() time.Time) *Registry {
	return &Registry{clock: clock, began: time.Now(), live: make(map[*Entry]struct{}), starts: cache.LRU[Of, int]{Most: mostStarts}}
}

// now returns the monotonic time since the start. It is never 0: a time of 0 means none.
func (r *Registry) now() int64 { return int64(time.Since(r.began)) + 1 }

// Entry returns the entry for an actor that will be started.
func (r *Registry) Entry(of Of) *Entry {
	return &Entry{registry: r, of: of, tasks: make(map[*Task]struct{})}
}

func (r *Registry) enter(e *Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.live[e] = struct{}{}
	e.restarts = r.start(e.of)
}

// start counts a start, and returns the number of earlier ones.
func (r *Registry) start(of Of) (before int) {
	before, _ = r.starts.Get(of)
	r.starts.Put(of, before+1)
	return before
}

// Panicked notes that the actor with this id panicked, and the reason.
func (r *Registry) Panicked(id, reason string) {
	for _, e := range r.entries() {
		if e.id != id {
			continue
		}
		e.note(reason)
		a := e.actor()
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

func (r *Registry) entries() []*Entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]*Entry, 0, len(r.live))
	for e := range r.live {
		all = append(all, e)
	}
	return all
}

// List lists actors; the actor with the oldest message or task comes first.
func (r *Registry) List(f Filter) Listing {
	var l Listing
	for _, e := range r.entries() {
		if a := e.actor(); f.takes(a) {
			l.Actors = append(l.Actors, a)
		}
	}
	r.mu.Lock()
	for _, a := range r.lost {
		if f.takes(a) {
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

// A Figure has the totals of all actors of a kind.
type Figure struct {
	Depth  int64
	Oldest time.Duration
	Tasks  map[string]time.Duration // by name: the longest
}

// Figures returns a Figure for each kind with running actors.
func (r *Registry) Figures() map[string]Figure {
	all := make(map[string]Figure)
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
