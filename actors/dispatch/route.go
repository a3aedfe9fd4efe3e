package dispatch

import (
	"cmp"
	"slices"
	"time"

	"github.com/rowmill/rowmill/engine"
)

// A route has the state of an engine.Route (a model and a request path) in a Dispatcher.
// A route rests while its breaker is open: no row is sent on it. Each route rests
// independently: if all rows of one model fail, other models may still work.
//
// While the breaker is half-open, a single row is sent. While the route rests or tries a
// row, its queues are in held and take no turns.
type route struct {
	breaker            breaker
	answered           time.Time // when a row of the route was last answered
	trying             bool      // the row that tries the half-open route is in flight
	needsUnrefusedRow  bool      // the half-open route waits for a row that no server has refused
	hasRepeatedRefusal bool      // a row with earlier refusals was refused again since the last answer
	held               []*Queue  // queues that have waiting rows and take no turns
}

// ready reports whether a row may be sent on the route now.
func (r *route) ready() bool {
	return r.breaker.phase == closed || r.breaker.phase == halfOpen && !r.trying && !r.needsUnrefusedRow
}

// recordFailure counts a failed request that took took, and returns the pause if the breaker
// opens. trial means that the request tried the route. The failure does not count if
// the request was sent before the last answer, or before the trial of a half-open
// route.
func (r *route) recordFailure(took time.Duration, trial bool, now time.Time) (pause time.Duration, opens bool) {
	if r.breaker.phase == open || r.breaker.phase == halfOpen && !trial || r.answered.After(now.Add(-took)) {
		return 0, false
	}
	return r.breaker.recordFailure(now)
}

// restForRetryAfter lets the route rest because the server asked for a pause, and returns the
// pause. firstRefusal is requestResult.isFirstRefusal, and trial means that the request tried the
// route. restForRetryAfter returns false if the route already rests, or if the server has only
// refused one row repeatedly: the server may never accept that row.
func (r *route) restForRetryAfter(pause time.Duration, firstRefusal, trial bool) (time.Duration, bool) {
	alone := !firstRefusal && !trial && !r.hasRepeatedRefusal
	r.hasRepeatedRefusal = r.hasRepeatedRefusal || !firstRefusal
	if alone || r.breaker.phase == open || r.breaker.phase == halfOpen && !trial {
		return 0, false
	}
	r.breaker.forceOpen()
	return pause, true
}

// hold adds a queue to held, so that it takes no turns until the route is ready.
func (r *route) hold(q *Queue) {
	if !slices.Contains(r.held, q) {
		r.held = append(r.held, q)
	}
}

// refusals returns how often busy servers have refused the next row of the queue. A row
// with 0 refusals is best for the trial of a route.
func (q *Queue) refusals() int {
	if len(q.waiting) == 0 {
		return 0
	}
	return q.waiting[0].refusals
}

// unholdQueue removes a queue from held.
func (r *route) unholdQueue(q *Queue) {
	r.held = slices.DeleteFunc(r.held, func(other *Queue) bool { return other == q })
}

// routeOf returns the route of queue q.
func (d *Dispatcher) routeOf(q *Queue) *route {
	r := d.routes[q.route]
	if r == nil {
		r = &route{}
		d.routes[q.route] = r
	}
	return r
}

// addToTurns adds q to the queues that take turns, or to r.held if the route of q is not ready.
func (d *Dispatcher) addToTurns(q *Queue) {
	r := d.routeOf(q)
	if r.needsUnrefusedRow && q.refusals() == 0 {
		r.needsUnrefusedRow = false
	} else if !r.ready() {
		r.hold(q)
		return
	}
	d.levels[q.priority].add(q)
}

// holdRoute takes all queues of the route name out of the turns, and adds them to held.
func (d *Dispatcher) holdRoute(name engine.Route) {
	r := d.routes[name]
	for i := range d.levels {
		for _, q := range d.levels[i].removeAll(name) {
			r.hold(q)
		}
	}
}

// release lets the queues in held take turns again if the route is ready.
func (d *Dispatcher) release(r *route) {
	if !r.ready() || len(r.held) == 0 {
		return
	}
	held := r.held
	r.held = nil
	slices.SortStableFunc(held, func(a, b *Queue) int { return cmp.Compare(a.refusals(), b.refusals()) })
	for _, q := range held {
		d.levels[q.priority].add(q)
	}
	d.wake()
}

// ReturnRestingRows gives all waiting rows of a route with an open breaker back to their jobs. This
// costs no attempt.
func (d *Dispatcher) ReturnRestingRows(name engine.Route) {
	d.mu.Lock()
	var back []*RowTask
	if r := d.routes[name]; r != nil && r.breaker.phase == open {
		back = d.takeHeld(r, back)
	}
	d.mu.Unlock()
	giveBack(back)
}

// takeHeld removes the waiting tasks from the queues in held, and appends these tasks
// to back.
func (d *Dispatcher) takeHeld(r *route, back []*RowTask) []*RowTask {
	for _, q := range r.held {
		d.queued -= len(q.waiting)
		back = append(back, q.waiting...)
		q.waiting = nil
	}
	r.held = nil
	return back
}

// giveBack returns tasks to their jobs without counting an attempt.
func giveBack(tasks []*RowTask) {
	for _, t := range tasks {
		t.Outcome = NotCounted
		t.queue.out.put(true, t)
	}
}

// Try lets a single row try the route name after the route's pause.
func (d *Dispatcher) Try(name engine.Route) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r := d.routes[name]; r != nil {
		d.try(r)
	}
}

// unrefusedRowWait is how long a half-open route waits for a row that was never refused.
// Without this wait, a row that its server always refuses could try the route after
// every pause, and all other rows would wait. The workers of other jobs need a few
// milliseconds to send their rows.
const unrefusedRowWait = 100 * time.Millisecond

// try makes a route half-open after its rest. During unrefusedRowWait only a row that was
// never refused may try the route; after unrefusedRowWait any row may.
func (d *Dispatcher) try(r *route) {
	r.breaker.allowTrial(time.Now())
	r.trying = false
	r.needsUnrefusedRow = r.breaker.phase == halfOpen && !slices.ContainsFunc(r.held, func(q *Queue) bool { return q.refusals() == 0 })
	if r.needsUnrefusedRow {
		time.AfterFunc(unrefusedRowWait, func() { d.acceptAnyTrialRow(r) })
	}
	d.release(r)
}

// acceptAnyTrialRow lets any row try the route after unrefusedRowWait. A row that was never refused may
// have arrived and been withdrawn again.
func (d *Dispatcher) acceptAnyTrialRow(r *route) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r.needsUnrefusedRow = false
	d.release(r)
	d.wake() // a suspect may wait for the route too
}
