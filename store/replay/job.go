package replay

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/rowmill/rowmill/store"
)

// A job holds the recent writes of a single job, to repeat them if the store loses them.
type job struct {
	id        string
	writer    *store.Writer // counts the acknowledged writes
	repairing chan struct{} // holds one item while a repair runs

	mu           sync.Mutex
	claimSession string        // session of a claim whose outcome may be unknown
	claimSent    time.Time     // when that claim was sent
	fence        store.Fence   // of the last claim by this process; empty after the release of this claim
	before       int64         // epoch of the claim before fence; 0 for none
	version      int64         // of the record after the claim of fence
	base         *store.Record // the record at the time of the claim
	final        bool          // the store has acknowledged the end of the job
	behind       bool          // the store lost writes, which must be repeated
	postponed    bool          // a check found lost writes and could not repeat them
	repairs      int           // number of repairs
	missingEnds  int           // number of repairs in which the store had lost the end of the job
	dropped      int64         // write.number of the newest write that was dropped from log
	log          []*write
}

// A write was acknowledged by the store, or its outcome is not known yet.
type write struct {
	at         time.Time
	acked      bool
	number     int64 // how many writes of this process were acknowledged, this one included
	needsFence bool  // only the owner may make it
	create     bool
	releases   bool                                     // the write releases the job
	isEnd      func(store.Revision) bool                // reports whether a mark shows the end that this write makes; nil for a write that ends nothing
	do         func(context.Context, store.Fence) error // repeats the write
}

// lockRepair waits until no other repair of the job runs, or ctx ends. done ends this
// repair.
func (j *job) lockRepair(ctx context.Context) (done func(), err error) {
	select {
	case j.repairing <- struct{}{}:
		return func() { <-j.repairing }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// A leastState is what a record must show at least when it is read later.
type leastState struct {
	writes  int64 // number of acknowledged writes of this process
	created bool  // the record exists
	ended   bool  // the job has ended
	behind  bool  // writes must be repeated, whatever the record shows
}

// leastState returns what the record must show at least. Call it before the record is
// read, because the record may lack writes that are acknowledged after the read.
func (j *job) leastState() leastState {
	j.mu.Lock()
	defer j.mu.Unlock()
	created := slices.ContainsFunc(j.log, func(w *write) bool { return w.create && w.acked })
	return leastState{j.writer.Acked(), created, j.final, j.behind}
}

// missingIn reports whether a record with mark m lacks acknowledged writes.
func (s leastState) missingIn(m store.Revision) bool {
	return s.behind || m.Writes < s.writes || s.ended && !m.Status.Terminal() || s.created && m.Version == 0
}

// prune drops the writes that were made before a time. While lost writes must be repeated,
// it keeps writes longer, by patience. It reports whether nothing of this job must be kept.
func (j *job) prune(before time.Time, patience time.Duration) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.behind || j.postponed {
		before = before.Add(-patience)
	}
	j.log = slices.DeleteFunc(j.log, func(w *write) bool {
		old := w.at.Before(before)
		if old {
			j.dropped = max(j.dropped, w.number)
		}
		return old
	})
	j.behind = j.behind && len(j.log) > 0
	return len(j.log) == 0 && (j.final || j.fence.Session == "") && j.claimSent.Before(before)
}

// observe applies a record that was read. The record may show that a claim or a
// submission with an unknown outcome has taken effect.
func (j *job) observe(rec store.Record) {
	j.mu.Lock()
	for _, w := range j.log {
		w.acked = w.acked || w.create
	}
	j.applyEnd(store.Revision{Session: rec.Session, Epoch: rec.Epoch, Status: rec.Job.Status})
	existing := j.fence.Session == rec.Session && j.fence.Epoch == rec.Epoch // from an earlier claim
	claimed := j.claimSession != "" && j.claimSession == rec.Session && !existing && !rec.Job.Status.Terminal()
	j.mu.Unlock()
	if claimed && j.recordClaim(rec, 0) { // how many writes the store had before this claim is unknown
		j.fallBehind()
	}
}

// applyEnd marks a write with an unknown outcome as acknowledged when m shows that it
// ended the job. j.mu must be held.
func (j *job) applyEnd(m store.Revision) {
	for _, w := range j.log {
		if !w.acked && w.isEnd != nil && m.Status.Terminal() && w.isEnd(m) {
			w.acked, j.final = true, true
		}
	}
}

// confirmEnd adds a write that ended the job, possibly by another node.
func (j *job) confirmEnd(w *write) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.final = true
	if slices.ContainsFunc(j.log, func(other *write) bool { return other.isEnd != nil && other.acked }) {
		return
	}
	w.at, w.acked = time.Now(), true
	j.log = append(j.log, w)
}

// confirmCreate adds the submission of the job, unless it is known.
func (j *job) confirmCreate(w *write) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if slices.ContainsFunc(j.log, func(w *write) bool { return w.create && w.acked }) {
		return
	}
	w.at = time.Now()
	j.log = append(j.log, w)
}

// begin adds a write before it is sent, so that it is ordered before later writes.
func (j *job) begin(w *write) (repairs int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	w.at = time.Now()
	j.log = append(j.log, w)
	return j.repairs
}

// end records the outcome of a write. If a repair ran meanwhile, the store may have
// lost this write together with the others. A submission or an end with an unknown
// outcome stays in the log; it counts when a record shows it.
func (j *job) end(w *write, err error, repairs int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if (w.create || w.isEnd != nil) && errors.Is(err, store.ErrOutcomeUnknown) {
		return
	}
	if err != nil {
		j.log = slices.DeleteFunc(j.log, func(other *write) bool { return other == w })
		return
	}
	w.acked, w.number = true, j.writer.Acked()
	j.behind = j.behind || j.repairs != repairs
}

// restartAge makes a write that was repeated as young as a new write: the store may lose
// the repeated write too.
func (j *job) restartAge(w *write) {
	j.mu.Lock()
	defer j.mu.Unlock()
	w.at = time.Now()
}

// startRepair counts a repair and returns the acknowledged writes, to repeat them.
func (j *job) startRepair() []*write {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.repairs++
	return slices.DeleteFunc(slices.Clone(j.log), func(w *write) bool { return !w.acked })
}

func (j *job) state() (fence store.Fence, final bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.fence, j.final
}

// origin returns the data from which the job can be created again: its record at the time
// of the claim, and the write that submitted it. Each is nil if it is not known.
func (j *job) origin() (base *store.Record, created *write) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if i := slices.IndexFunc(j.log, func(w *write) bool { return w.create }); i >= 0 {
		created = j.log[i]
	}
	return j.base, created
}

// fallBehind records that writes must be repeated, and reports whether that was known.
func (j *job) fallBehind() (before bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	before, j.behind = j.behind, true
	return before
}

// setPostponed records whether a check found lost writes but could not repeat them.
func (j *job) setPostponed(postponed bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.postponed = postponed
}

// endRepair records that all writes were repeated under a fence. If the fence is empty,
// the writes that need a fence are still missing, if a process here was the owner.
func (j *job) endRepair(fence store.Fence) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if fence.Session == "" {
		j.behind = j.fence.Session != ""
		return
	}
	j.fence, j.behind = fence, false
}

// countMissingEnd counts a repair in which the job's end was missing.
func (j *job) countMissingEnd() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.missingEnds++
	return j.missingEnds
}

// setReopened records that the job is open again and has no owner here.
func (j *job) setReopened() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.fence, j.final, j.missingEnds = store.Fence{}, false, 0
}

// hasGap reports whether a record with this number of writes lacks a write that was dropped
// from the log. Later writes of the owner must not be repeated without this write.
func (j *job) hasGap(writes int64) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return writes < j.dropped
}

// loseOwnership records that the job has another owner, who continues from the stored
// parts.
func (j *job) loseOwnership() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.fence, j.behind, j.dropped = store.Fence{}, false, 0
	j.log = slices.DeleteFunc(j.log, func(w *write) bool { return w.needsFence })
}

// syncWith applies the mark of a record that lacks no writes.
func (j *job) syncWith(m store.Revision) {
	j.mu.Lock()
	other := j.fence.Session != "" && m.Epoch > j.fence.Epoch
	j.final, j.postponed = j.final || m.Status.Terminal(), false
	j.applyEnd(m)
	j.mu.Unlock()
	if other {
		j.loseOwnership()
	}
}

// owns reports whether f is the fence of the last claim by this process.
func (j *job) owns(f store.Fence) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.fence.Session != "" && f.Session == j.fence.Session && f.Epoch == j.fence.Epoch
}

// recordClaim records a claim. holds is the number of this process's writes in the record
// after the claim. again reports whether earlier writes are missing and must be repeated:
// then holds is not larger than the number of acknowledged writes.
func (j *job) recordClaim(rec store.Record, holds int64) (again bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	again = j.behind || holds <= j.writer.Acked()
	if j.overtaken(rec) {
		j.log = slices.DeleteFunc(j.log, func(w *write) bool { return w.needsFence })
	}
	j.before, j.version = claimBefore(rec), rec.Version
	j.claimSession, j.fence = "", store.Fence{JobID: j.id, Session: rec.Session, Epoch: rec.Epoch}
	j.final, j.missingEnds = false, 0 // the new owner runs the job again, so no lost end must be repeated
	j.log = slices.DeleteFunc(j.log, func(w *write) bool { return w.releases })
	if j.base == nil {
		j.base = &rec
	}
	if !again {
		j.writer.Ack(holds)
	}
	return again
}

// overtaken reports whether another owner may have written between the last claim by this
// process and its new claim rec. The new claim shows that the store has lost the last one.
// The other owner may have run the rows of the lost parts again. j.mu must be held.
func (j *job) overtaken(rec store.Record) bool {
	switch claimBefore(rec) {
	case j.fence.Epoch:
		return false
	case j.before:
		return rec.Version > j.version
	}
	return true
}

// claimBefore returns the epoch of the claim before the last claim in rec; 0 for none.
func claimBefore(rec store.Record) int64 {
	for _, e := range slices.Backward(rec.Events) {
		if e.What == store.EventClaimed && e.At < rec.Epoch {
			return e.At
		}
	}
	return 0
}

// isAsLeft reports whether no other owner may have changed the job. rec is a new claim of
// this process, which made it to repeat the end of the job.
func (j *job) isAsLeft(rec store.Record) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return !j.overtaken(rec)
}

// repairCount returns the number of repairs.
func (j *job) repairCount() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.repairs
}

// setEnded records that the end of the job was acknowledged.
func (j *job) setEnded() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.final = true
}
