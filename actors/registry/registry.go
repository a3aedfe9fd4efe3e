// Package registry knows which actors live on a node and how each is: what
// waits in its mailbox and for how long, which errands it has out, and the last
// trouble it met. It is told by mailboxes, task groups and loggers, and asked by
// operators. It knows no actor, and no job beyond its name.
package registry

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/rowmill/rowmill/internal/spelling"
)

// What is remembered of actors that are gone.
const (
	mostLost   = 32   // actors that panicked, which are listed until others have
	mostStarts = 4096 // what actors were started for
)

// maxListed is how many actors of a node are listed at most: their JSON stays
// well below what one node takes from another.
const maxListed = 500

// maxTrouble bounds the text of a trouble, in bytes.
const maxTrouble = 300

// An Of says what an actor is, and what for.
type Of struct {
	Kind   string `json:"kind"`
	Job    string `json:"job,omitempty"`
	Engine string `json:"engine,omitempty"`
}

// The states of an Actor.
const (
	Running  = "running"
	Panicked = "panicked" // and was stopped
)

// An Actor is how one is.
type Actor struct {
	Of
	ID       string    `json:"id"`
	State    string    `json:"state"`
	Since    time.Time `json:"since"`
	Restarts int       `json:"restarts"` // earlier actors here of the same kind, for the same
	Depth    int64     `json:"mailbox_depth"`
	// Oldest is for how long a message has waited at the least; the one that is
	// being handled waits too.
	Oldest time.Duration `json:"oldest_message"`
	// Errands are how many tasks are out, Errand names the one that has been for
	// longest.
	Errands    int           `json:"errands"`
	Errand     string        `json:"errand,omitempty"`
	ErrandTime time.Duration `json:"errand_time"`
	Trouble    *Trouble      `json:"trouble,omitempty"`
}

// age is for how long an actor has been busy with one thing, or has not come to
// it.
func (a Actor) age() time.Duration { return max(a.Oldest, a.ErrandTime) }

// Trouble is the last that an actor met.
type Trouble struct {
	Text string    `json:"text"` // as in the log, and as free of what is the clients'
	At   time.Time `json:"at"`
}

// A Filter chooses actors. What is empty chooses all.
type Filter struct {
	Kind   string        `json:"kind,omitempty"`
	Job    string        `json:"job,omitempty"`
	MinAge time.Duration `json:"min_age,omitempty"`
}

func (f Filter) takes(a Actor) bool {
	return (f.Kind == "" || f.Kind == a.Kind) && (f.Job == "" || f.Job == a.Job) && a.age() >= f.MinAge
}

// A Listing is the actors of one node that a Filter takes, the oldest first.
type Listing struct {
	Actors  []Actor `json:"actors"`
	LeftOut int     `json:"left_out,omitempty"` // beyond maxListed
}

// A Registry is the actors of one node.
type Registry struct {
	clock func() time.Time
	began time.Time // ages count from it, on the monotonic clock

	mu      sync.Mutex
	live    map[*Entry]struct{}
	lost    []Actor // the last that panicked
	starts  map[Of]int
	started []Of // the keys of starts, in the order of their first
}

// New makes an empty registry. The clock is for what people read.
func New(clock func() time.Time) *Registry {
	return &Registry{clock: clock, began: time.Now(), live: make(map[*Entry]struct{}), starts: make(map[Of]int)}
}

// now is the time on the monotonic clock; never 0, which means none.
func (r *Registry) now() int64 { return int64(time.Since(r.began)) + 1 }

// Entry makes the entry of an actor that is to be spawned.
func (r *Registry) Entry(of Of) *Entry {
	return &Entry{registry: r, of: of, errands: make(map[*Errand]struct{})}
}

func (r *Registry) enter(e *Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.live[e] = struct{}{}
	e.restarts = r.starts[e.of]
	if e.restarts == 0 {
		if len(r.started) == mostStarts {
			delete(r.starts, r.started[0])
			r.started = r.started[1:]
		}
		r.started = append(r.started, e.of)
	}
	r.starts[e.of]++
}

// Panicked notes that an actor panicked, by its id, and why.
func (r *Registry) Panicked(id, reason string) {
	for _, e := range r.entries() {
		if e.id != id {
			continue
		}
		e.note(reason)
		a := e.actor()
		a.State = Panicked
		a.Depth, a.Oldest, a.Errands, a.Errand, a.ErrandTime = 0, 0, 0, "", 0
		e.Left()
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

// List lists actors, those that have been at one thing for longest first.
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

// A Figure is how the actors of one kind are together.
type Figure struct {
	Depth   int64
	Oldest  time.Duration
	Errands map[string]time.Duration // the longest of each name
}

// Figures are those of each kind of which an actor lives.
func (r *Registry) Figures() map[string]Figure {
	all := make(map[string]Figure)
	for _, e := range r.entries() {
		f := all[e.of.Kind]
		f.Depth += e.depth()
		f.Oldest = max(f.Oldest, e.oldest())
		e.eachErrand(func(name string, took time.Duration) {
			if f.Errands == nil {
				f.Errands = make(map[string]time.Duration)
			}
			f.Errands[name] = max(f.Errands[name], took)
		})
		all[e.of.Kind] = f
	}
	return all
}

func shorten(text string) string { return spelling.Shorten(text, maxTrouble) }
