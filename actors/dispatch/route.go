package dispatch

import (
	"cmp"
	"slices"
	"time"

	"github.com/rowmill/rowmill/engine"
)

// A route has the state of an engine.Route in a Dispatcher. Each route rests alone: if all
// rows of a model fail, this says nothing about other models. A route rests while no row
// is sent on it.
//
// While its breaker is open no row is sent; while it is half-open a single row is sent.
// During this time its queues are held and take no turns.
type route struct {
	breaker  breaker
	answered time.Time // when one of its rows was last answered
	trying   bool      // the row that tries the route is in flight
	picky    bool      // the route is half-open and waits for a row that was never refused
	again    bool      // a row was refused again since the last answer
	held     []*Queue  // queues with waiting rows that take no turns
}

// ready reports whether a row may be sent.
func (r *route) ready() bool {
	return r.breaker.phase == closed || r.breaker.phase == halfOpen && !r.trying && !r.picky
}

// failed notes a failed request that took this long, and returns the pause if the
// breaker opens. The failure does not count if the request was sent before the last
// answer, or before the row that tries the route.
func (r *route) failed(took time.Duration, trial bool, now time.Time) (pause time.Duration, opens bool) {
	if r.breaker.phase == open || r.breaker.phase == halfOpen && !trial || r.answered.After(now.Add(-took)) {
		return 0, false
	}
	return r.breaker.failed(now)
}

// asked lets the route rest because the server asked for a pause, and returns the pause.
// It returns false if the route rests already, or if the server has only refused a single
// row repeatedly: the server may never accept that row.
func (r *route) asked(pause time.Duration, first, trial bool) (time.Duration, bool) {
	alone := !first && !trial && !r.again
	r.again = r.again || !first
	if alone || r.breaker.phase == open || r.breaker.phase == halfOpen && !trial {
		return 0, false
	}
	r.breaker.rest()
	return pause, true
}

// hold keeps a queue out of the turns until the route is ready.
func (r *route) hold(q *Queue) {
	if !slices.Contains(r.held, q) {
		r.held = append(r.held, q)
	}
}

// refusals returns how often busy servers have refused the queue's next row: a row that
// was never refused is better for a trial.
func (q *Queue) refusals() int {
	if len(q.waiting) == 0 {
		return 0
	}
	return q.waiting[0].refusals
}

// drop removes a held queue.
func (r *route) drop(q *Queue) {
	r.held = slices.DeleteFunc(r.held, func(other *Queue) bool { return other == q })
}

// of returns the route of a queue.
func (d *Dispatcher) of(q *Queue) *route {
	r := d.routes[q.route]
	if r == nil {
		r = &route{}
		d.routes[q.route] = r
	}
	return r
}

// enter lets a queue with rows take turns, or holds it if its route is not ready.
func (d *Dispatcher) enter(q *Queue) {
	r := d.of(q)
	if r.picky && q.refusals() == 0 {
		r.picky = false
	} else if !r.ready() {
		r.hold(q)
		return
	}
	d.levels[q.priority].add(q)
}

// hold takes all queues of a route out of the turns.
func (d *Dispatcher) hold(name engine.Route) {
	r := d.routes[name]
	for i := range d.levels {
		for _, q := range d.levels[i].removeAll(name) {
			r.hold(q)
		}
	}
}

// release lets the held queues of a route take turns again, if the route is ready.
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

// Rest gives back all rows that wait for a route with an open breaker. This costs no
// attempt.
func (d *Dispatcher) Rest(name engine.Route) {
	d.mu.Lock()
	var back []*Task
	if r := d.routes[name]; r != nil && r.breaker.phase == open {
		back = d.takeHeld(r, back)
	}
	d.mu.Unlock()
	giveBack(back)
}

// takeHeld takes the waiting tasks of the queues that a route holds, and appends them to
// back.
func (d *Dispatcher) takeHeld(r *route, back []*Task) []*Task {
	for _, q := range r.held {
		d.queued -= len(q.waiting)
		back = append(back, q.waiting...)
		q.waiting = nil
	}
	r.held = nil
	return back
}

// giveBack returns tasks to their jobs, without an attempt.
func giveBack(tasks []*Task) {
	for _, t := range tasks {
		t.Outcome = NotCounted
		t.queue.out.put(true, t)
	}
}

// Try lets a single row of a route through, after the pause of the route.
func (d *Dispatcher) Try(name engine.Route) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r := d.routes[name]; r != nil {
		d.try(r)
	}
}

// pickyTime is how long a half-open route waits for a row that was never refused.
// Otherwise a row that its server always refuses would make all other rows wait, pause
// after pause. The workers of other jobs need a few milliseconds to send their rows.
const pickyTime = 100 * time.Millisecond

// try makes a route half-open after its rest. For pickyTime only a row that was never
// refused may try the route, then any row.
func (d *Dispatcher) try(r *route) {
	r.breaker.try(time.Now())
	r.trying = false
	r.picky = r.breaker.phase == halfOpen && !slices.ContainsFunc(r.held, func(q *Queue) bool { return q.refusals() == 0 })
	if r.picky {
		time.AfterFunc(pickyTime, func() { d.settle(r) })
	}
	d.release(r)
}

// settle lets any row try the route after pickyTime. A row that was never refused may
// have come, but was perhaps withdrawn.
func (d *Dispatcher) settle(r *route) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r.picky = false
	d.release(r)
	d.wake() // a suspect may wait for the route too
}
