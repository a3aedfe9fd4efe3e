package store

import (
	"fmt"
	"slices"
	"time"

	"github.com/rowmill/rowmill"
)

// An Adopter is an owner of a job that has made no progress since its claim. Such a job
// may be the cause when its owners crash.
type Adopter struct {
	Node    string `json:"node"`            // node name, for people
	Process string `json:"process"`         // process id, unique across restarts of the node
	Alone   bool   `json:"alone,omitempty"` // the process owns no other job in this time
	Epoch   int64  `json:"epoch"`           // epoch of the claim; the store sets it
}

// Claimed returns the time of the claim by the store's clock.
func (a Adopter) Claimed() time.Time { return time.UnixMilli(a.Epoch).UTC() }

// MaxAdopters limits the list. A claim that would exceed it starts a new list.
const MaxAdopters = 16

// Adopt applies a Claim to rec. It appends the new owner to the earlier owners whose
// sessions ended without a Release. After a Release the list starts with the new owner.
func (rec *Record) Adopt(session string, epoch int64, by Adopter) {
	n := len(rec.Tried())
	if n >= MaxAdopters {
		n = 0
	}
	lost := rec.Session != ""
	rec.Job.ParkedUntil = nil
	by.Epoch = epoch
	rec.Adopters = append(rec.Adopters[:n:n], by)
	rec.Session, rec.Epoch = session, epoch
	rec.Note(Event{At: epoch, What: EventClaimed, Node: by.Node, Process: by.Process, Lost: lost})
}

// Park applies Jobs.Park to rec. The record keeps the last two owners, so that the next
// owner also runs the job alone. They no longer count as proof against the job.
func (rec *Record) Park(rest time.Duration, now time.Time, message string) {
	until := now.Add(rest).UTC()
	rec.Job.ParkedUntil, rec.Session = &until, ""
	rec.Say(message, true, now)
	kept := rec.Adopters[:max(0, len(rec.Adopters)-1)] // without the owner that parks the job
	rec.Adopters = slices.Clone(kept[max(0, len(kept)-2):])
	for i := range rec.Adopters {
		rec.Adopters[i].Alone = false
	}
}

// Unpark applies Jobs.Unpark to rec and reports whether rec changed.
func (rec *Record) Unpark(now time.Time) (changed bool, err error) {
	switch until := rec.Job.ParkedUntil; {
	case until == nil:
		return false, fmt.Errorf("release job %s, which is not parked: %w", rec.Job.ID, rowmill.ErrConflict)
	case !until.After(now):
		return false, nil
	}
	now = now.UTC()
	rec.Job.ParkedUntil = &now
	return true, nil
}

// Tried returns the consecutive owners that made no progress, oldest first, or nil when
// the last owner released the job without parking it.
func (rec *Record) Tried() []Adopter {
	if rec.Session == "" && rec.Job.ParkedUntil == nil {
		return nil
	}
	return rec.Adopters
}

// dropEarlierAdopters drops all adopters but the last after a step of the input that is never
// repeated. The earlier owners ended before this step; the last owner may still crash
// on it.
func (rec *Record) dropEarlierAdopters(before fixedFields) {
	started, finished := rec.DownloadStarted != nil, rec.DownloadFinished != nil
	if n := len(rec.Adopters); n > 0 && (started != before.started || finished != before.finished || rec.Shards != before.shards) {
		rec.Adopters = rec.Adopters[n-1:]
	}
}
