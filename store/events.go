package store

import (
	"slices"
	"time"

	"github.com/rowmill/rowmill/internal/textfmt"
)

// A JobEvent is a step in a job's history that no other field of the job's record shows.
// Events cost no extra write: the writes of claims, of releases, of the job's message and of its
// schedule add them.
type JobEvent struct {
	At      int64  `json:"at"`                // ms since 1970; for EventClaimed, the epoch of the claim
	What    string `json:"what"`              // one of the kinds below
	Node    string `json:"node,omitempty"`    // name of the node that claimed the job, for people
	Process string `json:"process,omitempty"` // process that claimed the job, see Claim
	Reason  string `json:"for,omitempty"`     // reason why the job waits, or the change of its priority, as text for people
	Until   int64  `json:"until,omitempty"`   // ms since 1970: when the wait ended; 0 while it lasts
	Lost    bool   `json:"lost,omitempty"`    // the previous owner had not released the job
}

// The kinds of events.
const (
	EventClaimed  = "claimed"
	EventReleased = "released" // the owner released the job
	EventWaits    = "waits"    // the job waits for something, see JobEvent.Reason

	// A client changed the schedule of the job.
	EventPaused          = "paused"
	EventPauseEnded      = "pause_ended"
	EventPriorityChanged = "priority_changed" // see JobEvent.Reason
)

const (
	// MaxEvents limits the events of a record. When the list is full, AddEvent drops the
	// oldest event that is no EventClaimed and no EventReleased, or the oldest event if all are
	// of these kinds. So a job that waits or is paused often does not lose the events about its
	// owners. The limit is low because every write of the embedded store rewrites the list.
	MaxEvents = 40
	// MaxReasonBytes limits JobEvent.Reason in bytes, because the text may quote an inference server.
	MaxReasonBytes = 300
)

// Time returns when the event happened.
func (e JobEvent) Time() time.Time { return time.UnixMilli(e.At).UTC() }

// AddEvent adds an event to the record.
func (rec *Record) AddEvent(e JobEvent) {
	events := slices.Clone(rec.Events)
	if len(events) >= MaxEvents {
		gone := max(0, slices.IndexFunc(events, func(e JobEvent) bool { return e.What != EventClaimed && e.What != EventReleased }))
		events = slices.Delete(events, gone, gone+1)
	}
	rec.Events = append(events, e)
}

// SetMessage sets the message that clients see: the job's present step, or, if waits is true, the
// reason why the job waits. A wait is recorded as an event. Repeated calls with the same
// reason record one event.
func (rec *Record) SetMessage(message string, waits bool, now time.Time) {
	rec.Job.Message = message
	reason := ""
	if waits {
		reason = textfmt.Shorten(message, MaxReasonBytes)
	}
	i := len(rec.Events) - 1
	for i >= 0 && rec.Events[i].What != EventWaits {
		i--
	}
	if i >= 0 && rec.Events[i].Until == 0 {
		if rec.Events[i].Reason == reason {
			return
		}
		rec.Events = slices.Clone(rec.Events)
		rec.Events[i].Until = max(now.UnixMilli(), rec.Events[i].At)
	}
	if reason != "" {
		rec.AddEvent(JobEvent{At: now.UnixMilli(), What: EventWaits, Reason: reason})
	}
}

// OwnerClaim returns the claim event of the present owner. ok is false when the job has no
// owner, or when a version of the program without events claimed the job.
func (rec *Record) OwnerClaim() (claim JobEvent, ok bool) {
	i := slices.IndexFunc(rec.Events, func(e JobEvent) bool { return e.What == EventClaimed && e.At == rec.Epoch })
	if i < 0 || rec.Session == "" {
		return JobEvent{}, false
	}
	return rec.Events[i], true
}
