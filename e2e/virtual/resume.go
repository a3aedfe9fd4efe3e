package virtual

import (
	"github.com/RoaringBitmap/roaring/v2"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
)

// judgeTaken wants a job that continues another to have taken over what that has
// committed, and not to have run it again.
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
	if job.NumRows != nil && job.RowsTakenOver != taken {
		j.wrong("job %d has taken over %d rows of job %d, want %d", j.index, job.RowsTakenOver, source.index, taken)
	}
	if job.NumRows != nil && old.Job.ContinuedBy == nil && j.world.remembers() {
		j.wrong("the record of job %d does not say that job %d continues it", j.of.index, j.index)
	}
	if source.of != nil {
		return // what it has run others may have run before, and beside it
	}
	// Nothing but a fault has rows run again that the first has committed.
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

// source is the job whose rows a job takes over, with its record, and whether it
// runs those again that have failed: the job that it continues, or where that
// had not taken over anything itself, the one before.
func (j *jobCase) source(rec store.Record) (from *jobCase, old store.Record, failed bool) {
	for from = j.of; ; from = from.of {
		failed = failed || rec.Spec.Continue.Failed
		var err error
		if rec, err = j.look(from.id); err != nil || rec.Job.NumRows != nil || from.of == nil {
			return from, rec, failed
		}
	}
}

// takes is how many rows are taken over from a job, of those that failed none
// where they are run again.
func takes(from store.Record, failed bool) int64 {
	if failed {
		return from.Job.RowsDone - from.Job.FailedRows
	}
	return from.Job.RowsDone
}

// asTaken is a job as another took so many rows over from it. Where the store has
// forgotten a cancel, and it was written again before the parts that were forgotten
// with it, the record has fewer now.
func (j *jobCase) asTaken(now store.Record, rows int64, failed bool) store.Record {
	j.mu.Lock()
	defer j.mu.Unlock()
	if now.Job.Status == rowmill.StatusCancelled && j.forgottenAt(j.ended) {
		for _, was := range j.finals {
			if takes(was, failed) == rows {
				return was
			}
		}
	}
	return now
}

// remembers reports whether whoever wrote something lived to see whether the
// store forgot it.
func (w *world) remembers() bool {
	forgets, others := false, false
	for i, f := range w.Faults {
		if w.struck[i] {
			forgets, others = forgets || f.Kind == "forget", others || f.Kind != "forget"
		}
	}
	return !forgets || !others
}

// family are a job and all that continue it, one after the other or side by side.
func (j *jobCase) family() (all []*jobCase) {
	for _, other := range j.jobs {
		if other.root() == j {
			all = append(all, other)
		}
	}
	return all
}

// answers is how often the rows of a family were to be answered, and how often
// more than that they may have been without any fault: what is in flight at the
// end of a job is lost.
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

// root is the job whose rows those of a job were first.
func (j *jobCase) root() *jobCase {
	for j.of != nil {
		j = j.of
	}
	return j
}

// committed are the rows that the parts of a job hold.
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

// ran are the rows that a job has run itself, which its account pays for.
func (j *jobCase) ran(rec store.Record) store.Totals {
	job := rec.Job
	t := store.Totals{Rows: job.RowsDone - job.RowsTakenOver, Failed: job.FailedRows}
	switch {
	case j.of == nil:
	case job.NumRows == nil: // it ended while it took rows over
		return store.Totals{}
	default:
		if _, old, failed := j.source(rec); !failed {
			t.Failed -= old.Job.FailedRows
		}
	}
	return t
}
