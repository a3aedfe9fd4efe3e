package dispatch

import (
	"cmp"
	"slices"
	"time"

	"github.com/rowmill/rowmill/engine"
)

// A route is what a Dispatcher knows of one way through its server. It rests by
// itself: what fails every row of one model has nothing to say of the others.
//
// While its breaker is open none of its rows go out, while that is half-open one
// does. Its queues are held back for so long, and not in turn.
type route struct {
	breaker  breaker
	answered time.Time // when a row of it was last answered
	trying   bool      // the row that tries it is in flight
	picky    bool      // it is half-open, and waits for a row that was never refused
	again    bool      // a row was refused again since the last answer
	held     []*Queue  // with rows that wait, and not in turn
}

// ready reports whether a row may go out.
func (r *route) ready() bool {
	return r.breaker.phase == closed || r.breaker.phase == halfOpen && !r.trying && !r.picky
}

// failed takes a failure of a request that took so long, and returns for how long
// the route rests where that is enough. One that was sent before the last answer,
// or before the row that tries the route, is none.
func (r *route) failed(took time.Duration, trial bool, now time.Time) (pause time.Duration, opens bool) {
	if r.breaker.phase == open || r.breaker.phase == halfOpen && !trial || r.answered.After(now.Add(-took)) {
		return 0, false
	}
	return r.breaker.failed(now)
}

// asked has the route rest for as long as the server asks, unless it rests. A row that
// was refused before is not enough by itself: it may be more than the server ever takes.
func (r *route) asked(pause time.Duration, first, trial bool) (time.Duration, bool) {
	alone := !first && !trial && !r.again
	r.again = r.again || !first
	if alone || r.breaker.phase == open || r.breaker.phase == halfOpen && !trial {
		return 0, false
	}
	r.breaker.rest()
	return pause, true
}

// hold keeps a queue until the route is ready.
func (r *route) hold(q *Queue) {
	if !slices.Contains(r.held, q) {
		r.held = append(r.held, q)
	}
}

// refusals is how often the queue's next row was refused by busy servers: one that was
// not is the better trial.
func (q *Queue) refusals() int {
	if len(q.waiting) == 0 {
		return 0
	}
	return q.waiting[0].refusals
}

// drop forgets a queue that is held.
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

// enter brings a queue that has work into turn, or has it held.
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

// hold takes the queues of a route out of turn.
func (d *Dispatcher) hold(name engine.Route) {
	r := d.routes[name]
	for i := range d.levels {
		for _, q := range d.levels[i].removeAll(name) {
			r.hold(q)
		}
	}
}

// release brings the queues of a route into turn where it is ready.
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

// Rest gives back all that waits for a route whose breaker has opened, without
// blame.
func (d *Dispatcher) Rest(name engine.Route) {
	d.mu.Lock()
	var back []returned
	if r := d.routes[name]; r != nil && r.breaker.phase == open {
		back = d.takeHeld(r, back)
	}
	d.mu.Unlock()
	giveBack(back)
}

// returned are tasks that go back to the job of their queue.
type returned struct {
	queue *Queue
	tasks []*Task
}

// takeHeld appends what waits in the queues that a route holds to back.
func (d *Dispatcher) takeHeld(r *route, back []returned) []returned {
	for _, q := range r.held {
		d.queued -= len(q.waiting)
		back = append(back, returned{q, q.waiting})
		q.set(nil)
	}
	r.held = nil
	return back
}

// giveBack returns tasks to their jobs, without blame.
func giveBack(back []returned) {
	for _, b := range back {
		for _, t := range b.tasks {
			t.Outcome = Unblamed
		}
		b.queue.out.put(true, b.tasks...)
	}
}

// Try lets a single row of a route through, once its pause is over.
func (d *Dispatcher) Try(name engine.Route) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r := d.routes[name]; r != nil {
		d.try(r)
	}
}

// pickyTime is how long a route that may be tried waits for a row that was never
// refused. A row that its server refuses for ever would keep all others waiting, pause
// after pause; the workers of other jobs need a few milliseconds to send theirs.
const pickyTime = 100 * time.Millisecond

func (d *Dispatcher) try(r *route) {
	r.breaker.try(time.Now())
	r.trying = false
	r.picky = r.breaker.phase == halfOpen && !slices.ContainsFunc(r.held, func(q *Queue) bool { return q.refusals() == 0 })
	if r.picky {
		time.AfterFunc(pickyTime, func() { d.settle(r) })
	}
	d.release(r)
}

// settle lets any row try a route, if none does: the row that was chosen may have been
// withdrawn.
func (d *Dispatcher) settle(r *route) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r.picky = false
	d.release(r)
	d.wake() // a suspect may wait for the route too
}
