package store

import (
	"fmt"
	"slices"
	"time"

	"github.com/rowmill/rowmill"
)

// A Claim names a process that claimed a job. The job's record keeps the claims until the
// job makes progress. If the processes of several claims crash one after the other, the
// job may be the cause.
type Claim struct {
	Node    string `json:"node"`            // node name, for people
	Process string `json:"process"`         // process id, unique across restarts of the node
	Alone   bool   `json:"alone,omitempty"` // the process owns no other job as long as it owns this one
	Epoch   int64  `json:"epoch"`           // epoch of the claim; the store sets it
}

// ClaimedAt returns the time of the claim by the store's clock.
func (c Claim) ClaimedAt() time.Time { return time.UnixMilli(c.Epoch).UTC() }

// MaxClaims limits the claims of a record. If the list is full, the next claim
// starts a new list.
const MaxClaims = 16

// AddClaim makes session the owner of rec from epoch on. It adds by to the claims, notes
// the event and clears Job.ParkedUntil.
func (rec *Record) AddClaim(session string, epoch int64, claim Claim) {
	n := len(rec.Claims)
	if n >= MaxClaims {
		n = 0
	}
	lost := rec.Session != ""
	rec.Job.ParkedUntil = nil
	claim.Epoch = epoch
	rec.Claims = append(rec.Claims[:n:n], claim)
	rec.Session, rec.Epoch = session, epoch
	rec.AddEvent(JobEvent{At: epoch, What: EventClaimed, Node: claim.Node, Process: claim.Process, Lost: lost})
}

// Park applies Jobs.Park to rec. It removes the claim of the present owner and keeps only
// the last two of the earlier claims, so that the next owner also runs the job alone.
// Park sets Alone to false in these two claims: they no longer count as evidence that the
// job crashes nodes.
func (rec *Record) Park(pause time.Duration, now time.Time, message string) {
	until := now.Add(pause).UTC()
	rec.Job.ParkedUntil, rec.Session = &until, ""
	rec.SetMessage(message, true, now)
	rec.RemoveOwnersClaim()
	rec.Claims = slices.Clone(rec.Claims[max(0, len(rec.Claims)-2):])
	for i := range rec.Claims {
		rec.Claims[i].Alone = false
	}
}

// Unpark applies Jobs.Unpark to rec and reports whether rec changed.
func (rec *Record) Unpark(now time.Time) (changed bool, err error) {
	switch until := rec.Job.ParkedUntil; {
	case until == nil:
		return false, fmt.Errorf("unpark job %s, which is not parked: %w", rec.Job.ID, rowmill.ErrConflict)
	case !until.After(now):
		return false, nil
	}
	now = now.UTC()
	rec.Job.ParkedUntil = &now
	return true, nil
}

// Reschedule applies Jobs.Reschedule to rec and reports whether rec changed.
func (rec *Record) Reschedule(s Schedule, now time.Time) (changed bool, err error) {
	job := &rec.Job
	if job.Status.IsTerminal() {
		return false, fmt.Errorf("reschedule job %s, which is %s: %w", job.ID, job.Status, rowmill.ErrTerminal)
	}
	at := now.UnixMilli()
	if p := s.Priority; p != nil && p.Priority != job.Priority {
		rec.AddEvent(JobEvent{At: at, What: EventPriorityChanged, Reason: fmt.Sprintf("from %d to %d", job.Priority, p.Priority)})
		job.Priority, rec.Spec.Priority, changed = p.Priority, p.Priority, true
		rec.Spec.RowQuota, rec.Spec.TokenQuota = p.RowQuota, p.TokenQuota
	}
	if s.Paused != nil && *s.Paused != job.Paused {
		job.Paused, changed = *s.Paused, true
		what := EventPauseEnded
		if job.Paused {
			what = EventPaused
		}
		rec.AddEvent(JobEvent{At: at, What: what})
	}
	return changed, nil
}

// HasOwnersClaim reports whether rec.Claims contains the claim of the present owner: the job has
// made no progress since that claim, and may still crash the owner.
func (rec *Record) HasOwnersClaim() bool {
	n := len(rec.Claims)
	return n > 0 && rec.Claims[n-1].Epoch == rec.Epoch
}

// RemoveOwnersClaim removes the claim of the present owner from rec.Claims, because the job has not
// crashed this owner. Earlier claims stay in the list.
func (rec *Record) RemoveOwnersClaim() {
	if rec.HasOwnersClaim() {
		rec.Claims = slices.Clip(rec.Claims[:len(rec.Claims)-1])
	}
}

// dropEarlierClaims drops the claims of earlier owners if the download of the input has
// started or finished since before, or the input was cut into shards. These steps never
// repeat, and the earlier owners ended before the step, so the step did not crash them.
// The claim of the present owner stays, because the step may still crash this owner.
func (rec *Record) dropEarlierClaims(before fixedFields) {
	started, finished := rec.DownloadStarted != nil, rec.DownloadFinished != nil
	if started == before.started && finished == before.finished && rec.Shards == before.shards {
		return
	}
	earlier := len(rec.Claims)
	if rec.HasOwnersClaim() {
		earlier--
	}
	rec.Claims = rec.Claims[earlier:]
}
