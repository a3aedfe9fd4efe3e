package virtual

import (
	"time"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
)

// judgeTaken checks that a job took over the committed rows of the job that it continues,
// and did not run them again.
func (j *jobCase) judgeTaken(rec store.Record) {
	if j.of == nil {
		return
	}
	old, err := j.look(j.of.id)
	if err != nil {
		if !j.of.lost() {
			j.wrong("job %d continues job %d, which is gone: %v", j.index, j.of.index, err)
		}
		return
	}
	job := rec.Job
	if job.Continues == nil || *job.Continues != old.Job.ID {
		j.wrong("job %d continues %v, want job %d", j.index, job.Continues, j.of.index)
	}
	source, from, failed := j.source(rec)
	taken := takes(source.asTaken(from, job.RowsTakenOver, failed), failed)
	unsampled := source.Estimate && from.Job.Estimate != nil && from.Job.Estimate.Method == rowmill.EstimateUnsampled // it has no results, and its parts may be removed
	if job.NumRows != nil && job.RowsTakenOver != taken && !unsampled && !j.lostTaken(rec) {
		j.wrong("job %d has taken over %d rows of job %d, want %d", j.index, job.RowsTakenOver, source.index, taken)
	}
	if job.NumRows != nil && old.Job.ContinuedBy == nil && j.world.remembers() {
		j.wrong("the record of job %d does not say that job %d continues it", j.of.index, j.index)
	}
	if source.of != nil {
		return // other jobs may have run its rows before or at the same time
	}
	// Only faults may make rows run again that the first job has committed.
	again, bound := 0, j.world.mayRerun()*len(source.family())
	t := j.world.tally
	t.mu.Lock()
	done := make(map[string]bool)
	for _, row := range source.committed() {
		done[j.texts[row]] = true
	}
	for text := range done {
		again += max(0, t.answered[text]-1)
	}
	t.mu.Unlock()
	if again > bound {
		j.wrong("%d rows were run again that job %d had committed and job %d has taken over, %d may", again, source.index, j.index, bound)
	}
}

// A takeOver is the write that recorded how many rows a job took over.
type takeOver struct {
	at time.Duration
	by *proc
}

// tookOver notes that the process has recorded the number of rows that a job took over.
func (p *proc) tookOver(id string) {
	if a := p.world.account; a != nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.taken[id] = takeOver{p.world.now(), p}
	}
}

// lostTaken reports whether a job may have failed without the rows that it took over: the
// store forgot them, another process claimed the job before the process that took them over,
// and the data of a continued job was removed meanwhile.
func (j *jobCase) lostTaken(rec store.Record) bool {
	job := rec.Job
	if job.RowsTakenOver > 0 || job.FailureReason == nil || job.FailureReason.Code != rowmill.CodeDownloadFailed || !j.bereft() {
		return false
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	taken, ok := j.taken[job.ID]
	return ok && j.forgottenAt(taken.at) && j.takers[job.ID] != taken.by
}

// source returns the job from which a job takes rows over, its record, and whether failed
// rows run again. It is the continued job, or an earlier one if the continued job did not
// take over any rows itself.
func (j *jobCase) source(rec store.Record) (from *jobCase, old store.Record, failed bool) {
	for from = j.of; ; from = from.of {
		failed = failed || rec.Spec.Continue.Failed
		var err error
		if rec, err = j.look(from.id); err != nil || rec.Job.NumRows != nil || from.of == nil {
			return from, rec, failed
		}
	}
}

// paysFor reports whether a job pays for the rows that it has taken over, because an estimate
// ran them.
func (j *jobCase) paysFor(rec store.Record) bool {
	source, _, _ := j.source(rec)
	return source.Estimate
}

// takes returns how many rows are taken over from a job, without its failed rows if these
// run again.
func takes(from store.Record, failed bool) int64 {
	if failed {
		return from.Job.RowsDone - from.Job.FailedRows
	}
	return from.Job.RowsDone
}

// asTaken returns the record of a job from the time when another took rows over from it.
// The record may have other rows now: the store may have forgotten a cancel and parts. Then
// the job ran on, or the cancel was written again before the parts. Or the losers of a split
// ended the job with other rows.
func (j *jobCase) asTaken(now store.Record, rows int64, failed bool) store.Record {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.forgottenAt(j.ended) {
		for _, was := range j.finals {
			if takes(was, failed) == rows {
				return was
			}
		}
	}
	for _, was := range j.losing {
		if takes(was, failed) == rows {
			return was
		}
	}
	return now
}

// remembers reports whether the writers of forgotten records still run and can repeat
// them: no other fault struck beside "forget".
func (w *world) remembers() bool {
	forgets, others := false, false
	for i, f := range w.Faults {
		if w.struck[i] {
			forgets, others = forgets || f.Kind == "forget" || f.Kind == splitBrain, others || f.Kind != "forget"
		}
	}
	return !forgets || !others
}

// family returns a job and all jobs that continue it, directly or not.
func (j *jobCase) family() (all []*jobCase) {
	for _, other := range j.jobs {
		if other.root() == j {
			all = append(all, other)
		}
	}
	return all
}

// answers returns how many answers the rows of a family needed, and how many more may come
// without any fault: rows in flight at the end of a job are lost.
func (j *jobCase) answers() (want, lost int) {
	for _, one := range j.family() {
		rec, err := j.look(one.id)
		switch {
		case one.never:
		case err != nil: // forgotten
			lost += len(j.texts)
		default:
			ran := one.ran(rec)
			want += int(ran.Rows - ran.Failed - rec.Job.DeduplicatedRows)
			if rec.Job.Status != rowmill.StatusSucceeded {
				lost += len(j.world.Nodes) * j.world.inFlight()
			}
		}
	}
	return want, lost
}

// root returns the first job of a chain of continued jobs.
func (j *jobCase) root() *jobCase {
	for j.of != nil {
		j = j.of
	}
	return j
}

// committed returns the rows in the parts of a job.
func (j *jobCase) committed() (rows []int) {
	for _, p := range j.parts(j.id) {
		first := p.Shard * j.world.ShardRows
		if p.Complete {
			for i := range int(p.Rows) {
				rows = append(rows, first+i)
			}
			continue
		}
		accepted := roaring.New()
		if err := accepted.UnmarshalBinary(p.Accepted); err != nil {
			j.wrong("part %s: %v", short(plain(p.Key)), err)
			continue
		}
		for _, i := range accepted.ToArray() {
			rows = append(rows, first+int(i))
		}
	}
	return rows
}

// ran returns the totals of the rows that a job ran itself, for which its account pays.
func (j *jobCase) ran(rec store.Record) store.RowTotals {
	job := rec.Job
	t := store.RowTotals{Rows: job.RowsDone - job.RowsTakenOver, Failed: job.FailedRows}
	switch {
	case j.of == nil:
	case job.NumRows == nil: // it ended while it took rows over
		return store.RowTotals{}
	default:
		if _, old, failed := j.source(rec); !failed && job.RowsTakenOver > 0 {
			t.Failed -= old.Job.FailedRows
		}
	}
	return t
}
