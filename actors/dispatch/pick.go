package dispatch

import (
	"time"

	"github.com/rowmill/rowmill"
)

// A request is sent to the server as a unit: one row, or a group of texts to embed.
type request struct {
	queue *Queue
	tasks []*Task
	began time.Time
	trial bool     // it tries a route after the route's rest
	apart bool     // its row is a suspect
	one   [1]*Task // backing array of tasks for a single row
}

// pick moves the next tasks into r if the window has room for them.
func (d *Dispatcher) pick(r *request) bool {
	if picked, stop := d.pickSuspect(r); picked || stop {
		return picked
	}
	if limit := d.window.Limit(true); d.inFlight >= limit && d.inFlight < limit+d.aside(limit) {
		if q := d.newcomer(); q != nil {
			d.levels[rowmill.Prototyping].advance(q)
			d.take(r, q)
			return true
		}
	}
	for i := range d.levels {
		urgent := rowmill.Priority(i).Urgent()
		limit := d.window.Limit(urgent)
		if !urgent && d.urgent > 0 {
			limit = max(1, limit*besideUrgent/100)
		}
		if d.inFlight >= limit {
			continue
		}
		q := d.levels[i].next()
		if q == nil {
			continue
		}
		if !d.fits(q.waiting[0], urgent) {
			return false // a later row may fit, but then the large row would never be sent
		}
		d.take(r, q)
		return true
	}
	return false
}

// take moves the next tasks of the queue into r. The queue must be next in turn.
func (d *Dispatcher) take(r *request, q *Queue) {
	r.take(q)
	d.levels[q.priority].charge(q, r.tokens())
	d.markTrial(r)
}

// markTrial marks r as the trial of its route if the route has rested. Then the route's
// other queues must wait for the result.
func (d *Dispatcher) markTrial(r *request) {
	route := d.of(r.queue)
	if r.trial = route.breaker.phase == halfOpen; r.trial {
		route.trying = true
		d.hold(r.queue.route)
	}
}

// newcomer returns an urgent queue of an account with no row in flight here; nil if there
// is none.
func (d *Dispatcher) newcomer() *Queue {
	for _, a := range d.levels[rowmill.Prototyping].accounts {
		if d.flying[a.name] == 0 {
			return a.queues[0]
		}
	}
	return nil
}

// aside returns how many rows of newcomers may run in addition to a full window of this
// size: the first rows of an account do not wait for long answers of another account.
func (d *Dispatcher) aside(limit int) int {
	return max(1, limit/8)
}

// besideUrgent is the percentage of the window for all rows while urgent rows are in
// flight: in a smaller batch each row is faster. Below 70 the other rows lose more than
// the urgent rows gain, see B10 in bench/README.md.
const besideUrgent = 70

// fits reports whether the server's KV cache has room for a task. Urgent tasks may use a
// quarter more than the limit.
func (d *Dispatcher) fits(t *Task, urgent bool) bool {
	bound := d.window.Tokens()
	if urgent {
		bound += bound / 4
	}
	return bound == 0 || d.inFlight < fewRows || d.tokens+t.expect <= bound
}

// fewRows is the number of rows that may always be in flight, because the expected cost
// may be wrong.
const fewRows = 16

// tokens returns the expected cost of the request's rows.
func (r *request) tokens() (n int64) {
	for _, t := range r.tasks {
		n += t.expect
	}
	return n
}

// take moves the next tasks of the queue into the request.
func (r *request) take(q *Queue) {
	r.queue = q
	if n := min(q.group, len(q.waiting)); n > 1 {
		r.tasks = append([]*Task(nil), q.waiting[:n]...)
		q.waiting = q.waiting[n:]
		return
	}
	r.one[0] = q.waiting[0]
	r.tasks = r.one[:]
	q.waiting = q.waiting[1:]
}
