package store

import (
	"fmt"
	"slices"
	"time"

	"github.com/rowmill/rowmill"
)

// An Adopter is a process that claimed a job and then made no progress with the job. If
// the adopters of a job crash one after the other, the job may be the cause.
type Adopter struct {
	Node    string `json:"node"`            // node name, for people
	Process string `json:"process"`         // process id, unique across restarts of the node
	Alone   bool   `json:"alone,omitempty"` // the process owns no other job as long as it owns this one
	Epoch   int64  `json:"epoch"`           // epoch of the claim; the store sets it
}

// Claimed returns the time of the claim by the store's clock.
func (a Adopter) Claimed() time.Time { return time.UnixMilli(a.Epoch).UTC() }

// MaxAdopters limits the adopters of a record. If the list is full, the next claim
// starts a new list.
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

// Park applies Jobs.Park to rec. The record keeps the last two adopters other than the
// present owner, so that the next owner also runs the job alone. These two no longer
// count as evidence that the job crashes nodes: their Alone becomes false.
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

// Watched reports whether the present owner is among the adopters: the job has made no
// progress since the owner's claim, and may still crash the owner.
func (rec *Record) Watched() bool {
	n := len(rec.Adopters)
	return n > 0 && rec.Adopters[n-1].Epoch == rec.Epoch
}

// Acquit removes the present owner from the adopters, because the job has not crashed
// the owner. The earlier owners stay in the list.
func (rec *Record) Acquit() {
	if rec.Watched() {
		rec.Adopters = slices.Clip(rec.Adopters[:len(rec.Adopters)-1])
	}
}

// dropEarlierAdopters drops the earlier owners from the adopters after a step of the
// input that is never repeated: the earlier owners ended before this step, so the step did
// not crash them. It keeps the present owner, because the step may still crash this owner.
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
