package dispatch

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
)

// A suspectedCrash has the rows that lost their connection, until a probe has shown whether the server
// still runs. If the server has crashed, one of the rows in flight may have caused the
// crash. These rows are suspects: each of them is tried while no other row runs on the
// server.
//
//	in flight at a crash ──► suspect ──► tried alone ──► answered
//	                            ▲             │
//	                            └─────────────┴── first crash alone; the second one: failed
//
// After a crash with many rows in flight, groups of suspects are tried first: only the
// group with the bad row crashes the server again.
type suspectedCrash struct {
	at                time.Time   // when the first connection broke; zero if none is broken
	broken            []brokenRow // rows that lost their connection
	rows              int         // number of rows in broken that were in flight at time at
	otherRequests     int         // number of other requests in flight at time at
	otherRequestsLeft int         // number of these other requests that have not ended
	survived          bool        // at least one of these other requests was answered
}

// brokenRow is a row whose connection broke before its answer arrived.
type brokenRow struct {
	task        *RowTask
	fault       *engine.Error
	wasInFlight bool // the row was in flight when the first connection broke
	alone       bool // no other row was in flight
}

const (
	// mostCrashes is the number of crashes after which a row fails. Only crashes while the
	// row ran alone on the server count.
	mostCrashes = 2
	// fewSuspects is the largest number of suspects that are tried one by one. More suspects
	// are first tried in groups.
	fewSuspects = 8
	// trialShare sets the pause after a trial: other rows run trialShare times as long as
	// the trial took.
	trialShare = 4
)

// keepBrokenRows stores the rows of request r whose connection broke, until ResolveCrash
// decides about them.
func (d *Dispatcher) keepBrokenRows(r *request, tasks []brokenRow, now time.Time) {
	c := &d.crash
	if c.at.IsZero() {
		*c = suspectedCrash{at: now, otherRequests: d.requests, otherRequestsLeft: d.requests}
	}
	for _, b := range tasks {
		b.wasInFlight = !r.began.After(c.at)
		b.alone = r.isSuspect && d.trial.size == 1
		if b.wasInFlight {
			c.rows++
		}
		c.broken = append(c.broken, b)
	}
}

// recordRequestEnd records the end of request r, if r was in flight when the first connection
// broke.
func (c *suspectedCrash) recordRequestEnd(r *request, seen requestResult) {
	if c.at.IsZero() || r.began.After(c.at) {
		return
	}
	c.otherRequestsLeft--
	c.survived = c.survived || seen.answered
}

// ResolveCrash processes the result of a probe that started at began. down means that the
// server did not answer the probe. crashed is true if the server crashed with rows in
// flight. probeAgain is true if connections broke after the probe started, so another probe
// is needed.
func (d *Dispatcher) ResolveCrash(began time.Time, down bool) (crashed, probeAgain bool) {
	d.mu.Lock()
	c := d.crash
	if c.at.IsZero() || c.at.After(began) {
		d.mu.Unlock()
		return false, !c.at.IsZero()
	}
	d.crash = suspectedCrash{}
	d.mu.Unlock()
	crashed = down || len(c.broken) > 1 && c.otherRequestsLeft <= 0 && !c.survived
	for _, b := range c.broken {
		b.alone = b.wasInFlight && (b.alone || c.rows == 1 && c.otherRequests == 0)
		b.task.queue.resolveBrokenRow(b, crashed, c.rows)
		b.task.queue.out.put(true, b.task)
	}
	return crashed && c.rows > 0, false
}

// brokenTasks returns the tasks of rows.
func brokenTasks(rows []brokenRow) (tasks []*RowTask) {
	for _, b := range rows {
		tasks = append(tasks, b.task)
	}
	return tasks
}

// resolveBrokenRow decides whether a row whose connection broke is retried or has failed. crashed
// means that the server crashed. suspects is the number of rows that may have caused
// the crash.
func (q *Queue) resolveBrokenRow(b brokenRow, crashed bool, suspects int) {
	t := b.task
	switch {
	case crashed && b.alone:
		if t.soloCrashes++; t.soloCrashes >= mostCrashes {
			t.Out, t.Outcome = failedOutput(rowmill.RowCrashesServer, fmt.Sprintf("The server crashed %d times while this row alone ran on it: %s", t.soloCrashes, b.fault.Message), "", t.attempts+t.soloCrashes), Final
			return
		}
		t.trialGroup = 1
	case crashed && b.wasInFlight && t.trialGroup == 0 && suspects > fewSuspects:
		t.trialGroup = int(math.Ceil(math.Sqrt(float64(suspects))))
	case crashed && b.wasInFlight:
		t.trialGroup = 1
	}
	if !crashed && t.refusals > 0 && q.disp.answeredAt(q).After(t.refusedAt) { // only the connections of this row break
		if t.countLostRequest(b.fault); t.Outcome == Final {
			return
		}
	}
	q.handleRefusal(t, b.fault, new(requestResult), time.Now())
}

// A suspectTrial runs suspects while no other row is in flight on the server: a group of
// suspects after a crash with many rows, or a single suspect.
type suspectTrial struct {
	suspects []*RowTask    // suspects that wait for a trial
	size     int           // maximum number of rows in the current group
	left     int           // number of rows that may still join the current group
	running  int           // number of rows of the current group in flight
	began    time.Time     // when the current group started
	ended    time.Time     // when the last group ended
	pause    time.Duration // how long other rows run before the next group
}

// addSuspects stores the suspects among the tasks of a queue, and returns the other tasks.
func (v *suspectTrial) addSuspects(q *Queue, tasks []*RowTask) []*RowTask {
	suspected := func(t *RowTask) bool { return t.trialGroup > 0 }
	if !slices.ContainsFunc(tasks, suspected) {
		return tasks
	}
	var others []*RowTask
	for _, t := range tasks {
		if suspected(t) {
			v.suspects = append(v.suspects, t)
		} else {
			others = append(others, t)
		}
	}
	q.suspects.Add(int64(len(tasks) - len(others)))
	return others
}

// removeSuspects removes and returns the waiting suspects of queue q, or of all queues if q is
// nil.
func (v *suspectTrial) removeSuspects(q *Queue) (tasks []*RowTask) {
	v.suspects = slices.DeleteFunc(v.suspects, func(t *RowTask) bool {
		if q != nil && t.queue != q {
			return false
		}
		t.queue.suspects.Add(-1)
		tasks = append(tasks, t)
		return true
	})
	return tasks
}

// endRequest records the end of a suspect's request. It returns true if the group has ended,
// so that other rows may be sent.
func (v *suspectTrial) endRequest(now time.Time) bool {
	if v.running--; v.running > 0 {
		return false
	}
	v.left, v.ended, v.pause = 0, now, trialShare*now.Sub(v.began)
	return true
}

// pickSuspect moves the next suspect into r. A trial starts when no row is in flight,
// and either no other rows wait or other rows have run for the pause. stop is true if
// no other row may be sent now.
func (d *Dispatcher) pickSuspect(r *request) (picked, stop bool) {
	v := &d.trial
	next := slices.IndexFunc(v.suspects, func(t *RowTask) bool {
		return d.routeOf(t.queue).ready() && (v.left == 0 || t.trialGroup >= v.size)
	})
	switch others := d.queued > len(v.suspects); {
	case !d.crash.at.IsZero(): // no probe has shown yet whether the server runs
		return false, v.running > 0
	case v.left == 0 && v.running > 0:
		return false, true
	case next < 0:
		v.left = 0
		return false, v.running > 0
	case v.left > 0:
	case others && time.Since(v.ended) < v.pause:
		return false, false
	case d.inFlight > 0:
		return false, true
	default:
		v.size = v.suspects[next].trialGroup
		v.left, v.began = min(v.size, max(d.window.RowLimit(false), 1)), time.Now()
	}
	t := v.suspects[next]
	v.suspects = slices.Delete(v.suspects, next, next+1)
	t.queue.suspects.Add(-1)
	v.left--
	v.running++
	r.queue, r.isSuspect, r.one[0] = t.queue, true, t
	r.tasks = r.one[:]
	d.markTrial(r)
	return true, true
}
