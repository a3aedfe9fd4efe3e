package virtual

import (
	"slices"
	"strings"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
)

// Some jobs reuse the rows of another job that has succeeded: they take over the answers to its rows,
// in another order, and run rows of their own.

// reuses has one to three jobs reuse the rows of another job, sometimes with a fault while they take
// over rows.
func (g *generator) reuses() {
	var plain []int
	for i, j := range g.Jobs {
		if j.Continues == 0 && j.Reads == 0 && j.Poison == "" && j.Equal == 0 && j.Broken == 0 && !j.Estimate && j.Limit == 0 && !j.Schema && j.Rows > 0 {
			plain = append(plain, i)
		}
	}
	if len(plain) == 0 || g.IntN(4) == 0 {
		return
	}
	i := plain[g.IntN(len(plain))]
	j := &g.Jobs[i]
	j.Cancel, j.Remove = 0, 0
	if len(g.Jobs) < 8 && g.IntN(2) == 0 {
		j.Rows = max(j.Rows, 20+g.IntN(60))
	}
	for range 1 + g.IntN(3) {
		taker := Job{At: g.upTo(time.Second), Node: g.IntN(len(g.Nodes)), Rows: 1 + g.IntN(j.Rows+j.Rows/3+1), Spooled: g.IntN(2) == 0, Reuses: i + 1}
		if g.IntN(5) == 0 {
			taker.Pause, taker.Paused = taker.At+g.upTo(40*time.Second), g.upTo(15*time.Second)
		}
		g.Jobs = append(g.Jobs, taker)
	}
	for range g.IntN(3) {
		g.faultAt(g.IntN(len(g.Nodes)), g.one("blob.put", "blob.open", "store.update", "store.claim", "store.commit-parts", "store.replace-parts", "store.finish"))
		g.Faults[len(g.Faults)-1].Nth += g.IntN(12)
	}
}

// reuseRowsOf makes the rows of a job that reuses rows of the other job: three of four are rows of the
// other job, from its last on.
func (j *jobCase) reuseRowsOf(other *jobCase) {
	j.reuses, j.Account = other, other.Account
	for r, text := range j.input {
		if from := len(other.texts) - 1 - r; r%4 != 3 && from >= 0 {
			text = other.texts[from]
			j.shared = append(j.shared, text)
		}
		j.texts = append(j.texts, text)
	}
	j.input = j.texts
}

// cannotReuse reports whether a node refused to reuse rows of the other job, and checks the reason.
// again is true if the request may succeed later.
func (j *jobCase) cannotReuse(text []byte) (refused, again bool) {
	said := string(text)
	j.mu.Lock()
	forgot := len(j.forgets) > 0
	failed := slices.ContainsFunc(j.reuses.finals, func(r store.Record) bool { return r.Job.Status != rowmill.StatusSucceeded })
	j.mu.Unlock()
	switch {
	case strings.Contains(said, "does not exist"):
		return forgot, !j.reuses.lawfullyGone()
	case strings.Contains(said, "wait until it has succeeded"):
		return forgot, true
	case strings.Contains(said, "and so has no results"):
		return failed, false
	}
	return false, false
}

// judgeReused checks that the job took over all rows that the other job has run, unless the store or
// the bucket lost something.
func (j *jobCase) judgeReused(rec store.Record) {
	job := rec.Job
	if j.reuses == nil || job.NumRows == nil {
		return
	}
	if want := int64(len(j.shared)); job.RowsTakenOver > want || job.RowsTakenOver < want && !j.mayMissRows() {
		j.wrong("job %d took over %d rows of job %d, want %d", j.index, job.RowsTakenOver, j.reuses.index, want)
	}
}

// mayMissRows reports whether the results of the other job, or the rows that were taken over, may
// have been lost.
func (j *jobCase) mayMissRows() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.forgets) > 0 || slices.ContainsFunc(j.world.Faults, func(f Fault) bool { return f.Kind == unstored })
}

// lostRows returns how many rows the job ran although the other job has run them.
func (j *jobCase) lostRows(job *rowmill.Job) int {
	return len(j.shared) - int(min(job.RowsTakenOver, int64(len(j.shared))))
}

// ranAgain returns how many rows of the job were run again by itself, or by the jobs that reuse
// them, because they could not be taken over.
func (j *jobCase) ranAgain() (rows int) {
	for _, taker := range j.jobs {
		if taker.reuses == nil || taker != j && taker.reuses != j {
			continue
		}
		if rec, err := j.look(taker.known()); err == nil {
			rows += taker.lostRows(&rec.Job)
		}
	}
	return rows
}

// reuseSubmission waits for the end of the other job and returns the body of the request to reuse its
// rows, and the time of that end; nil if the other job was never created.
func (j *jobCase) reuseSubmission() (body []byte, began time.Duration) {
	id, began := j.reuses.awaitEnd()
	if id == "" {
		return nil, 0
	}
	time.Sleep(time.Duration(j.At))
	return j.submission(map[string]any{"reuse": map[string]string{"from": id}}), began
}
