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

// Adopt applies a Claim to rec: it appends the new owner to the adopters.
func (rec *Record) Adopt(session string, epoch int64, by Adopter) {
	n := len(rec.Adopters)
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
	rec.Acquit()
	rec.Adopters = slices.Clone(rec.Adopters[max(0, len(rec.Adopters)-2):])
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

// Watched reports whether the owner is among the adopters: it has claimed the job and the
// job may still crash it.
func (rec *Record) Watched() bool {
	n := len(rec.Adopters)
	return n > 0 && rec.Adopters[n-1].Epoch == rec.Epoch
}

// Acquit removes the owner from the adopters. The job has not crashed it. The earlier
// owners stay in the list.
func (rec *Record) Acquit() {
	if rec.Watched() {
		rec.Adopters = slices.Clip(rec.Adopters[:len(rec.Adopters)-1])
	}
}

// dropEarlierAdopters drops the earlier owners after a step of the input that is never
// repeated: they ended before this step. The owner may still crash on it.
func (rec *Record) dropEarlierAdopters(before fixedFields) {
	started, finished := rec.DownloadStarted != nil, rec.DownloadFinished != nil
	if started == before.started && finished == before.finished && rec.Shards == before.shards {
		return
	}
	earlier := len(rec.Adopters)
	if rec.Watched() {
		earlier--
	}
	rec.Adopters = rec.Adopters[earlier:]
}
