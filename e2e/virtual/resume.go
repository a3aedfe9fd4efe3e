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
		j.wrong("job %d continues job %d, which is gone: %v", j.index, j.of.index, err)
		return
	}
	job := rec.Job
	if job.Continues == nil || *job.Continues != old.Job.ID {
		j.wrong("job %d continues %v, want job %d", j.index, job.Continues, j.of.index)
	}
	source, from, failed := j.source(rec)
	taken := from.Job.RowsDone
	if failed {
		taken -= from.Job.FailedRows
	}
	if job.NumRows != nil && job.RowsTakenOver != taken {
		j.wrong("job %d has taken over %d rows of job %d, want %d", j.index, job.RowsTakenOver, source.index, taken)
	}
	if job.NumRows != nil && old.Job.ContinuedBy == nil {
		j.wrong("the record of job %d does not say that job %d continues it", j.of.index, j.index)
	}
	// What a fault has run again before it was committed is bounded by
	// judgeReruns; nothing but a fault has rows run again that are.
	again, bound := 0, j.world.mayRerun()
	for _, other := range j.jobs {
		if other.of != nil && other.root() == j.root() {
			bound += j.world.mayRerun()
		}
	}
	t := j.world.tally
	t.mu.Lock()
	for _, row := range source.committed() {
		again += max(0, t.answered[j.texts[row]]-1)
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
	if j.of == nil || job.Status == rowmill.StatusSucceeded {
		t := store.Totals{Rows: job.RowsDone - job.RowsTakenOver, Failed: job.FailedRows}
		if j.of != nil {
			if _, old, failed := j.source(rec); !failed {
				t.Failed -= old.Job.FailedRows
			}
		}
		return t
	}
	var t store.Totals
	for _, p := range j.parts(j.id) { // it may have ended while it took rows over
		if !p.Carried {
			t = t.Plus(p.Totals)
		}
	}
	return t
}
