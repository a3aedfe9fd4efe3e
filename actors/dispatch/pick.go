package dispatch

import (
	"time"

	"github.com/rowmill/rowmill"
)

// A request is what the Dispatcher sends to the server at a time: one row, or a group
// of texts to embed.
type request struct {
	queue     *Queue
	tasks     []*RowTask
	began     time.Time   // when the request was sent
	trial     bool        // the request tries a route after the rest of the route
	isSuspect bool        // the row of the request is a suspect
	one       [1]*RowTask // memory for tasks if the request has a single row
}

// pick moves the next tasks into r if the window has room for them. It returns false if
// no request can be sent now.
func (d *Dispatcher) pick(r *request) bool {
	if picked, stop := d.pickSuspect(r); picked || stop {
		return picked
	}
	if limit := d.window.RowLimit(true); d.inFlight >= limit && d.inFlight < limit+d.newcomerRoom(limit) {
		if q := d.newcomer(); q != nil {
			d.levels[rowmill.Prototyping].moveToFront(q)
			d.fillRequest(r, q)
			return true
		}
	}
	for i := range d.levels {
		urgent := rowmill.Priority(i).IsUrgent()
		limit := d.window.RowLimit(urgent)
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
		d.fillRequest(r, q)
		return true
	}
	return false
}

// fillRequest moves the next tasks of queue q into r. It must be the turn of q.
func (d *Dispatcher) fillRequest(r *request, q *Queue) {
	r.takeTasks(q)
	d.levels[q.priority].charge(q, r.tokens())
	d.markTrial(r)
}

// markTrial makes r the trial of its route, if the route's breaker is half-open. The
// other queues of the route must then wait for the result.
func (d *Dispatcher) markTrial(r *request) {
	route := d.routeOf(r.queue)
	if r.trial = route.breaker.phase == halfOpen; r.trial {
		route.trying = true
		d.holdRoute(r.queue.route)
	}
}

// newcomer returns a queue of an account that has urgent rows waiting and no row in
// flight at this server; nil if there is none.
func (d *Dispatcher) newcomer() *Queue {
	for _, a := range d.levels[rowmill.Prototyping].accounts {
		if d.inFlightByAccount[a.name] == 0 {
			return a.queues[0]
		}
	}
	return nil
}

// newcomerRoom returns how many rows of newcomers may run in addition to a full window of
// limit rows. So the first rows of an account do not wait for long answers of another
// account.
func (d *Dispatcher) newcomerRoom(limit int) int {
	return max(1, limit/8)
}

// besideUrgent is the percentage of the window that all rows together may use while
// urgent rows are in flight: in a smaller batch each row is faster. Below 70 the other
// rows lose more than the urgent rows gain, see B10 in bench/README.md.
const besideUrgent = 70

// fits reports whether the server's KV cache has room for a task.
func (d *Dispatcher) fits(t *RowTask, urgent bool) bool {
	bound := d.tokenLimit(urgent)
	return bound == 0 || d.inFlight < fewRows || d.tokens+t.expect <= bound
}

// tokenLimit returns the maximum expected tokens in flight; 0 for no limit. Urgent tasks
// may exceed the window's limit by a quarter.
func (d *Dispatcher) tokenLimit(urgent bool) int64 {
	bound := d.window.TokenLimit()
	if urgent {
		bound += bound / 4
	}
	return bound
}

// fewRows is the number of rows that may always be in flight, even if their expected
// tokens exceed the limit: the expectation may be wrong.
const fewRows = 16

// tokens returns the expected tokens of the request's prompts and answers.
func (r *request) tokens() (n int64) {
	for _, t := range r.tasks {
		n += t.expect
	}
	return n
}

// takeTasks moves the next tasks of queue q into the request.
func (r *request) takeTasks(q *Queue) {
	r.queue = q
	if n := min(q.group, len(q.waiting)); n > 1 {
		r.tasks = append([]*RowTask(nil), q.waiting[:n]...)
		q.waiting = q.waiting[n:]
		return
	}
	r.one[0] = q.waiting[0]
	r.tasks = r.one[:]
	q.waiting = q.waiting[1:]
}
