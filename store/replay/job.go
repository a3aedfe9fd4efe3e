package replay

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/rowmill/rowmill/store"
)

// A jobLog holds the recent writes of a single job, to repeat them if the store loses them.
type jobLog struct {
	id        string
	writer    *store.WriteCounter // counts the acknowledged writes
	repairing chan struct{}       // holds one item while a repair runs

	mu            sync.Mutex
	claimSession  string        // session of a claim whose outcome may be unknown
	claimSent     time.Time     // when that claim was sent
	fence         store.Fence   // fence of the last claim by this process; empty after this claim was released
	released      store.Fence   // fence with which this process has last released the job; empty after a new claim by this process
	previousEpoch int64         // epoch of the job's previous claim, before the claim of fence; 0 for none
	version       int64         // version of the record after the claim of fence
	claimedRecord *store.Record // the record at the time of the claim
	isEnded       bool          // the store has acknowledged the end of the job
	mustRepeat    bool          // the store lost writes, which must be repeated
	postponed     bool          // a check found lost writes and could not repeat them
	repairs       int           // number of repairs
	missingEnds   int           // number of repairs in which the store had lost the end of the job
	dropped       int64         // loggedWrite.number of the newest write that was dropped from log
	log           []*loggedWrite
}

// A loggedWrite is one change of a job's record, which can be repeated. The store has
// acknowledged the write, or its outcome is not known yet.
type loggedWrite struct {
	at         time.Time
	acked      bool
	number     int64 // how many writes of this process were acknowledged, this one included
	needsFence bool  // only the owner of the job may make this write
	create     bool  // the write submits the job
	releases   bool  // the write releases the job
	// isEnd reports whether a revision shows that this write has ended the job. It is nil if
	// the write does not end the job.
	isEnd func(store.Revision) bool
	do    func(context.Context, store.Fence) error // repeats the write
}

// lockRepair waits until no other repair of the job runs, or ctx ends. The caller must
// call done at the end of its repair.
func (j *jobLog) lockRepair(ctx context.Context) (done func(), err error) {
	select {
	case j.repairing <- struct{}{}:
		return func() { <-j.repairing }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// A requiredState is the minimum that a record must show when it is read later. A record
// that shows less has lost writes.
type requiredState struct {
	writes  int64 // number of acknowledged writes of this process
	created bool  // the record exists
	ended   bool  // the job has ended
	behind  bool  // writes must be repeated even if the record shows all this
}

// computeRequiredState returns the minimum that the record must show. Call computeRequiredState before you
// read the record, because the record may lack writes that are acknowledged after the
// read.
func (j *jobLog) computeRequiredState() requiredState {
	j.mu.Lock()
	defer j.mu.Unlock()
	created := slices.ContainsFunc(j.log, func(w *loggedWrite) bool { return w.create && w.acked })
	return requiredState{j.writer.AckedWrites(), created, j.isEnded, j.mustRepeat}
}

// isUnmetBy reports whether a record with revision m lacks acknowledged writes.
func (s requiredState) isUnmetBy(m store.Revision) bool {
	return s.behind || m.Writes < s.writes || s.ended && !m.Status.IsTerminal() || s.created && m.Version == 0
}

// prune drops the writes that are older than the time before. While lost writes must be
// repeated, prune keeps writes for the time patience longer. The result is true if the
// whole state of this job can be dropped.
func (j *jobLog) prune(before time.Time, patience time.Duration) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.mustRepeat || j.postponed {
		before = before.Add(-patience)
	}
	j.log = slices.DeleteFunc(j.log, func(w *loggedWrite) bool {
		old := w.at.Before(before)
		if old {
			j.dropped = max(j.dropped, w.number)
		}
		return old
	})
	j.mustRepeat = j.mustRepeat && len(j.log) > 0
	return len(j.log) == 0 && (j.isEnded || j.fence.Session == "") && j.claimSent.Before(before)
}

// applyRecord updates j from a record that was just read. The record may show that a claim, a
// submission or an end of the job with an unknown outcome has taken effect.
func (j *jobLog) applyRecord(rec store.Record) {
	j.mu.Lock()
	for _, w := range j.log {
		w.acked = w.acked || w.create
	}
	j.applyEnd(store.Revision{Session: rec.Session, Epoch: rec.Epoch, Status: rec.Job.Status})
	existing := j.fence.Session == rec.Session && j.fence.Epoch == rec.Epoch // the record shows the claim that j already knows
	claimed := j.claimSession != "" && j.claimSession == rec.Session && !existing && !rec.Job.Status.IsTerminal()
	j.mu.Unlock()
	if claimed && j.recordClaim(rec, 0) { // how many writes the store had before this claim is unknown
		j.requireRepeat()
	}
}

// applyEnd marks a write with an unknown outcome as acknowledged when m shows that the
// write ended the job. The caller must have locked j.mu.
func (j *jobLog) applyEnd(m store.Revision) {
	for _, w := range j.log {
		if !w.acked && w.isEnd != nil && m.Status.IsTerminal() && w.isEnd(m) {
			w.acked, j.isEnded = true, true
		}
	}
}

// confirmEnd adds w to the log: a write that ended the job, possibly on another node. It
// adds nothing if the log already has a write that ended the job.
func (j *jobLog) confirmEnd(w *loggedWrite) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.isEnded = true
	if slices.ContainsFunc(j.log, func(other *loggedWrite) bool { return other.isEnd != nil && other.acked }) {
		return
	}
	w.at, w.acked = time.Now(), true
	j.log = append(j.log, w)
}

// confirmCreate adds w, the submission of the job, to the log, unless the log already has
// an acknowledged submission.
func (j *jobLog) confirmCreate(w *loggedWrite) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if slices.ContainsFunc(j.log, func(w *loggedWrite) bool { return w.create && w.acked }) {
		return
	}
	w.at = time.Now()
	j.log = append(j.log, w)
}

// logWrite adds a write to the log before it is sent, so that the log has the writes in the
// order of sending. It returns the number of repairs so far, which the caller passes to
// recordOutcome.
func (j *jobLog) logWrite(w *loggedWrite) (repairs int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	w.at = time.Now()
	j.log = append(j.log, w)
	return j.repairs
}

// recordOutcome records the outcome err of a write; repairs is the result of logWrite. If a
// repair ran meanwhile, the store may have lost this write together with earlier writes. A
// submission or an end with an unknown outcome stays in the log; it counts as acknowledged
// when a record shows it.
func (j *jobLog) recordOutcome(w *loggedWrite, err error, repairs int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if (w.create || w.isEnd != nil) && errors.Is(err, store.ErrOutcomeUnknown) {
		return
	}
	if err != nil {
		j.log = slices.DeleteFunc(j.log, func(other *loggedWrite) bool { return other == w })
		return
	}
	w.acked, w.number = true, j.writer.AckedWrites()
	j.mustRepeat = j.mustRepeat || j.repairs != repairs
}

// restartAge sets the time of a repeated write to now, so that the log keeps it as long
// as a new write: the store may lose the repeated write too.
func (j *jobLog) restartAge(w *loggedWrite) {
	j.mu.Lock()
	defer j.mu.Unlock()
	w.at = time.Now()
}

// startRepair counts a repair and returns the acknowledged writes, to repeat them.
func (j *jobLog) startRepair() []*loggedWrite {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.repairs++
	return slices.DeleteFunc(slices.Clone(j.log), func(w *loggedWrite) bool { return !w.acked })
}

func (j *jobLog) currentFence() (fence store.Fence, final bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.fence, j.isEnded
}

// recreateSources returns the data from which the job can be created again: base is its record at
// the time of the claim, created is the write that submitted the job. Both may be nil if
// unknown.
func (j *jobLog) recreateSources() (base *store.Record, created *loggedWrite) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if i := slices.IndexFunc(j.log, func(w *loggedWrite) bool { return w.create }); i >= 0 {
		created = j.log[i]
	}
	return j.claimedRecord, created
}

// requireRepeat records that writes must be repeated. already tells whether this was
// recorded before.
func (j *jobLog) requireRepeat() (already bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	already, j.mustRepeat = j.mustRepeat, true
	return already
}

// setPostponed records whether a check found lost writes but could not repeat them.
func (j *jobLog) setPostponed(postponed bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.postponed = postponed
}

// endRepair records that lost writes were repeated: with a fence all of them, with an
// empty fence only the writes that need no fence. Then the writes that this process made as
// the owner of the job are still missing.
func (j *jobLog) endRepair(fence store.Fence) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if fence.Session == "" {
		j.mustRepeat = j.fence.Session != ""
		return
	}
	j.fence, j.mustRepeat = fence, false
}

// countMissingEnd counts a repair in which the job's end was missing.
func (j *jobLog) countMissingEnd() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.missingEnds++
	return j.missingEnds
}

// setReopened records that the job is open again and that this process does not own it.
func (j *jobLog) setReopened() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.fence, j.isEnded, j.missingEnds = store.Fence{}, false, 0
}

// hasGap reports whether a record with this number of writes lacks a write that was dropped
// from the log. Later writes of the owner must not be repeated without this write.
func (j *jobLog) hasGap(writes int64) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return writes < j.dropped
}

// loseOwnership records that the job has another owner, who continues from the stored
// parts. The release of the job stays in the log: if the store loses it together with the
// claim of the other owner, the record names this process as the owner again.
func (j *jobLog) loseOwnership() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.fence, j.mustRepeat, j.dropped = store.Fence{}, false, 0
	j.log = slices.DeleteFunc(j.log, func(w *loggedWrite) bool { return w.needsFence && !w.releases })
}

// setReleased records that this process has released the job with a fence.
func (j *jobLog) setReleased(f store.Fence) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.released = f
}

// hasReleased reports whether this process has released the job with the fence that the record with
// revision m shows, and returns the fence.
func (j *jobLog) hasReleased(m store.Revision) (f store.Fence, released bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.released, j.released.Session != "" && m.Session == j.released.Session && m.Epoch == j.released.Epoch && !m.Status.IsTerminal()
}

// applyRevision updates j from the revision of a record that has all acknowledged writes.
func (j *jobLog) applyRevision(m store.Revision) {
	j.mu.Lock()
	other := j.fence.Session != "" && m.Epoch > j.fence.Epoch
	j.isEnded, j.postponed = j.isEnded || m.Status.IsTerminal(), false
	j.applyEnd(m)
	j.mu.Unlock()
	if other {
		j.loseOwnership()
	}
}

// isCurrentFence reports whether f is the fence of the last claim by this process.
func (j *jobLog) isCurrentFence(f store.Fence) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.fence.Session != "" && f.Session == j.fence.Session && f.Epoch == j.fence.Epoch
}

// recordClaim records a claim by this process; rec is the record after the claim. recordedWrites
// is the number of this process's writes in rec. mustRepeat reports whether earlier writes
// are missing and must be repeated: then recordedWrites is not larger than the number of
// acknowledged writes.
func (j *jobLog) recordClaim(rec store.Record, recordedWrites int64) (mustRepeat bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	mustRepeat = j.mustRepeat || recordedWrites <= j.writer.AckedWrites()
	if j.wasOvertaken(rec) {
		j.log = slices.DeleteFunc(j.log, func(w *loggedWrite) bool { return w.needsFence })
	}
	j.previousEpoch, j.version = previousClaimEpoch(rec), rec.Version
	j.claimSession, j.fence, j.released = "", store.Fence{JobID: j.id, Session: rec.Session, Epoch: rec.Epoch}, store.Fence{}
	j.isEnded, j.missingEnds = false, 0 // the new owner runs the job again, so no lost end must be repeated
	j.log = slices.DeleteFunc(j.log, func(w *loggedWrite) bool { return w.releases })
	if j.claimedRecord == nil {
		j.claimedRecord = &rec
	}
	if !mustRepeat {
		j.writer.Ack(recordedWrites)
	}
	return mustRepeat
}

// wasOvertaken reports whether another owner may have written between the last claim by this
// process and its new claim rec. The new claim shows that the store has lost the last
// one. The other owner may have run the rows of the lost parts again. The caller must
// have locked j.mu.
func (j *jobLog) wasOvertaken(rec store.Record) bool {
	switch previousClaimEpoch(rec) {
	case j.fence.Epoch:
		return false
	case j.previousEpoch:
		return rec.Version > j.version
	}
	return true
}

// previousClaimEpoch returns the epoch of the claim before the last claim in rec; 0 for none.
func previousClaimEpoch(rec store.Record) int64 {
	for _, e := range slices.Backward(rec.Events) {
		if e.What == store.EventClaimed && e.At < rec.Epoch {
			return e.At
		}
	}
	return 0
}

// isUntouched reports whether the job is as this process left it, so that no other owner can
// have changed it. rec is the record after a new claim, which this process made to repeat
// the end of the job.
func (j *jobLog) isUntouched(rec store.Record) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return !j.wasOvertaken(rec)
}

// repairCount returns the number of repairs.
func (j *jobLog) repairCount() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.repairs
}

// setEnded records that the end of the job was acknowledged.
func (j *jobLog) setEnded() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.isEnded = true
}
