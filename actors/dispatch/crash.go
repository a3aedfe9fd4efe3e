package dispatch

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
)

// A crash holds the rows that came back with a broken connection, until a probe has
// shown whether the server still runs. If it does not, one of the rows in flight may
// have caused the crash: these rows are suspects, and each is tried apart from all other
// rows.
//
//	in flight at a crash ──► suspect ──► tried alone ──► answered
//	                            ▲             │
//	                            └─────────────┴── first crash alone; the second: failed
//
// After a crash with many rows in flight, groups of suspects are tried first: only the
// group with the bad row crashes the server again.
type crash struct {
	at       time.Time // when the first connection broke; zero while there is none
	broken   []broken
	rows     int  // number of rows in broken that were in flight at the first break
	beside   int  // number of other requests in flight at that time
	others   int  // how many of these requests have not ended
	survived bool // at least one of these requests was answered
}

// broken is a row that came back with a broken connection.
type broken struct {
	task   *Task
	fault  *engine.Error
	before bool // it was in flight when the first connection broke
	alone  bool // nothing else was in flight
}

const (
	// mostCrashes: a row fails when the server has crashed this often while the row was
	// alone there.
	mostCrashes = 2
	// fewSuspects: up to this number, suspects are tried one by one; otherwise in groups
	// first.
	fewSuspects = 8
	// trialShare: after a trial, other rows run for this multiple of the trial's time.
	trialShare = 4
)

// broke keeps the rows of a request until a probe has shown whether the server runs.
func (d *Dispatcher) broke(r *request, tasks []broken, now time.Time) {
	c := &d.crash
	if c.at.IsZero() {
		*c = crash{at: now, beside: d.requests, others: d.requests}
	}
	for _, b := range tasks {
		b.before = !r.began.After(c.at)
		b.alone = r.apart && d.trial.size == 1
		if b.before {
			c.rows++
		}
		c.broken = append(c.broken, b)
	}
}

// ended notes the end of a request. The request counts if it was in flight when the
// first connection broke.
func (c *crash) ended(r *request, seen requestResult) {
	if c.at.IsZero() || r.began.After(c.at) {
		return
	}
	c.others--
	c.survived = c.survived || seen.answered
}

// Judge takes the result of a probe that started at began. down: the server did not
// answer the probe. crashed: the server crashed with rows in flight. again: connections
// broke after the probe started, so another probe is needed.
func (d *Dispatcher) Judge(began time.Time, down bool) (crashed, again bool) {
	d.mu.Lock()
	c := d.crash
	if c.at.IsZero() || c.at.After(began) {
		d.mu.Unlock()
		return false, !c.at.IsZero()
	}
	d.crash = crash{}
	d.mu.Unlock()
	crashed = down || len(c.broken) > 1 && c.others <= 0 && !c.survived
	for _, b := range c.broken {
		b.alone = b.before && (b.alone || c.rows == 1 && c.beside == 0)
		b.task.queue.judge(b, crashed, c.rows)
		b.task.queue.out.put(true, b.task)
	}
	return crashed && c.rows > 0, false
}

// brokenTasks returns the tasks of rows with broken connections.
func brokenTasks(rows []broken) (tasks []*Task) {
	for _, b := range rows {
		tasks = append(tasks, b.task)
	}
	return tasks
}

// judge decides whether a row with a broken connection is retried or has failed. suspects
// is the number of rows that may have caused the crash.
func (q *Queue) judge(b broken, crashed bool, suspects int) {
	t := b.task
	switch {
	case crashed && b.alone:
		if t.crashed++; t.crashed >= mostCrashes {
			t.Out, t.Outcome = failed(rowmill.RowCrashesServer, fmt.Sprintf("The server crashed %d times while this row alone ran on it: %s", t.crashed, b.fault.Message), "", t.attempts+t.crashed), Final
			return
		}
		t.apart = 1
	case crashed && b.before && t.apart == 0 && suspects > fewSuspects:
		t.apart = int(math.Ceil(math.Sqrt(float64(suspects))))
	case crashed && b.before:
		t.apart = 1
	}
	if !crashed && t.refusals > 0 && q.disp.answeredAt(q).After(t.refusedAt) { // only the connections of this row break
		if t.lost(b.fault); t.Outcome == Final {
			return
		}
	}
	q.refused(t, b.fault, new(requestResult), time.Now())
}

// A trial runs suspects while nothing else is in flight: a group after a crash with many
// rows, or a single row.
type trial struct {
	suspects []*Task
	size     int           // of the groups in this round
	left     int           // number of rows that may still join the group
	running  int           // rows of the group in flight
	began    time.Time     // when the group started
	ended    time.Time     // when the last group ended
	pause    time.Duration // how long other rows run before the next group
}

// put keeps the suspects among tasks, and returns the others.
func (v *trial) put(q *Queue, tasks []*Task) []*Task {
	suspected := func(t *Task) bool { return t.apart > 0 }
	if !slices.ContainsFunc(tasks, suspected) {
		return tasks
	}
	var others []*Task
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

// take removes the suspects of a queue and returns them; nil is every queue.
func (v *trial) take(q *Queue) (tasks []*Task) {
	v.suspects = slices.DeleteFunc(v.suspects, func(t *Task) bool {
		if q != nil && t.queue != q {
			return false
		}
		t.queue.suspects.Add(-1)
		tasks = append(tasks, t)
		return true
	})
	return tasks
}

// end notes the end of a suspect's request, and reports whether other rows may be sent
// now.
func (v *trial) end(now time.Time) bool {
	if v.running--; v.running > 0 {
		return false
	}
	v.left, v.ended, v.pause = 0, now, trialShare*now.Sub(v.began)
	return true
}

// pickSuspect moves the next suspect into r. A trial starts when nothing is in flight,
// and either no other rows wait or the other rows have run long enough. stop: nothing
// else may be sent now.
func (d *Dispatcher) pickSuspect(r *request) (picked, stop bool) {
	v := &d.trial
	next := slices.IndexFunc(v.suspects, func(t *Task) bool {
		return d.of(t.queue).ready() && (v.left == 0 || t.apart >= v.size)
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
		v.size = v.suspects[next].apart
		v.left, v.began = min(v.size, max(d.window.Limit(false), 1)), time.Now()
	}
	t := v.suspects[next]
	v.suspects = slices.Delete(v.suspects, next, next+1)
	t.queue.suspects.Add(-1)
	v.left--
	v.running++
	r.queue, r.apart, r.one[0] = t.queue, true, t
	r.tasks = r.one[:]
	d.markTrial(r)
	return true, true
}
