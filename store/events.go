package store

import (
	"slices"
	"time"

	"github.com/rowmill/rowmill/internal/spelling"
)

// An Event is what happened to a job that no other member of its record tells.
// Events are noted by writes that are made anyway: claims, releases, and changes
// of what the job says of itself.
type Event struct {
	At      int64  `json:"at"` // ms since 1970; of a claim its epoch
	What    string `json:"what"`
	Node    string `json:"node,omitempty"`    // who claimed it: the name, for a person
	Process string `json:"process,omitempty"` // who claimed it, see Adopter
	For     string `json:"for,omitempty"`     // what it waited for, for a person
	Until   int64  `json:"until,omitempty"`   // ms since 1970: when a wait ended; 0 while it lasts
	Lost    bool   `json:"lost,omitempty"`    // the owner before the claim had not given the job back
}

// What events tell.
const (
	EventClaimed  = "claimed"
	EventReleased = "released" // its owner gave it back
	EventWaits    = "waits"
)

const (
	// MostEvents bounds a record's list. With one more the oldest wait goes, else the
	// oldest of all: a job whose servers come and go still tells who owned it. Each
	// write of the embedded store rewrites the list.
	MostEvents = 40
	// MaxFor is how many bytes are kept of what a job waited for: it quotes servers.
	MaxFor = 300
)

// Time is when it happened.
func (e Event) Time() time.Time { return time.UnixMilli(e.At).UTC() }

// Note adds an event to the record's.
func (rec *Record) Note(e Event) {
	events := slices.Clone(rec.Events)
	if len(events) >= MostEvents {
		gone := max(0, slices.IndexFunc(events, func(e Event) bool { return e.What == EventWaits }))
		events = slices.Delete(events, gone, gone+1)
	}
	rec.Events = append(events, e)
}

// Say tells a client what the job does from now on, or what it waits for. A wait
// is one event, however often it is told.
func (rec *Record) Say(message string, waits bool, now time.Time) {
	rec.Job.Message = message
	what := ""
	if waits {
		what = spelling.Shorten(message, MaxFor)
	}
	i := len(rec.Events) - 1
	for i >= 0 && rec.Events[i].What != EventWaits {
		i--
	}
	if i >= 0 && rec.Events[i].Until == 0 {
		if rec.Events[i].For == what {
			return
		}
		rec.Events = slices.Clone(rec.Events)
		rec.Events[i].Until = max(now.UnixMilli(), rec.Events[i].At)
	}
	if what != "" {
		rec.Note(Event{At: now.UnixMilli(), What: EventWaits, For: what})
	}
}

// Owner is the claim of the present owner; ok is false where the job has none, or a
// version of the program claimed it that notes nothing.
func (rec *Record) Owner() (claim Event, ok bool) {
	i := slices.IndexFunc(rec.Events, func(e Event) bool { return e.What == EventClaimed && e.At == rec.Epoch })
	if i < 0 || rec.Session == "" {
		return Event{}, false
	}
	return rec.Events[i], true
}
