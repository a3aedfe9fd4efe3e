package actors

import (
	"sync"
	"time"

	"github.com/rowmill/rowmill/engine"
)

// A dispatcher shares one inference server among the jobs that use it. Rows
// wait in one lane per job; whenever the window has room, the next row is
// picked: priority 0 before priority 1, within a priority the accounts in turn
// by the bytes they send (deficit round robin, Shreedhar and Varghese 1995),
// within an account the jobs in turn. Rows run on goroutines of the
// dispatcher, which take their next row as they finish one. It is safe for
// concurrent use.
type dispatcher struct {
	metrics *engineMetrics

	mu       sync.Mutex
	more     *sync.Cond // a waiting goroutine may find work
	window   *engine.Window
	levels   [2]level
	inFlight int       // rows
	queued   int       // rows in lanes
	waiting  int       // goroutines waiting for work and not yet woken
	answered time.Time // when the server last answered a row
	paused   bool
	closed   bool
	done     sync.WaitGroup
}

// A level holds the lanes of one priority by account.
type level struct{ accounts []*account }

type account struct {
	name    string
	lanes   []*lane
	deficit int64
}

// quantum is what an account may send before the next has its turn, bytes.
const quantum = 16 << 10

// rowCost is what a row costs beyond its bytes, so that tiny rows count.
const rowCost = 256

// A request is what goes to the server at once: one row, or a group of texts
// to embed.
type request struct {
	lane  *lane
	tasks []*task
	one   [1]*task // backs tasks for a single row
}

func newDispatcher(slots int, m *engineMetrics) *dispatcher {
	d := &dispatcher{window: engine.NewWindow(slots), metrics: m, paused: true}
	d.more = sync.NewCond(&d.mu)
	return d
}

// put queues tasks on a lane.
func (d *dispatcher) put(l *lane, tasks []*task) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(l.queue) == 0 && len(tasks) > 0 {
		d.levels[l.priority].add(l)
	}
	l.queue = append(l.queue, tasks...)
	d.queued += len(tasks)
	d.wake()
}

// withdraw takes back what waits in a lane.
func (d *dispatcher) withdraw(l *lane) []*task {
	d.mu.Lock()
	defer d.mu.Unlock()
	tasks := l.queue
	if len(tasks) > 0 {
		d.levels[l.priority].remove(l)
		d.queued -= len(tasks)
	}
	l.queue = nil
	return tasks
}

// observe passes a reading of the server's gauges to the window.
func (d *dispatcher) observe(g engine.Gauges, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.window.Observe(g, d.inFlight, now)
	d.wake()
}

// resume starts dispatching to a server with that many slots. A server whose
// slots changed gets a fresh window.
func (d *dispatcher) resume(slots int, fresh bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if fresh {
		d.window = engine.NewWindow(slots)
	}
	d.paused = false
	d.wake()
}

// pause stops dispatching and hands back all that waits, by lane.
func (d *dispatcher) pause() map[*lane][]*task {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.paused = true
	back := make(map[*lane][]*task)
	for i := range d.levels {
		for _, a := range d.levels[i].accounts {
			for _, l := range a.lanes {
				back[l], l.queue = l.queue, nil
			}
		}
		d.levels[i].accounts = nil
	}
	d.queued = 0
	return back
}

// close stops the goroutines once their requests are over, and waits.
func (d *dispatcher) close() {
	d.mu.Lock()
	d.closed = true
	d.more.Broadcast()
	d.mu.Unlock()
	d.done.Wait()
}

// alive reports whether the server has answered a row since then.
func (d *dispatcher) alive(since time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.answered.After(since)
}

// load returns the window's limit, the rows in flight and those that wait.
func (d *dispatcher) load() (limit, inFlight, queued int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.window.Limit(), d.inFlight, d.queued
}

// wake lets as many goroutines look for work as there is room and work for.
func (d *dispatcher) wake() {
	room := min(d.window.Limit()-d.inFlight, d.queued)
	if d.paused || d.closed {
		return
	}
	woken := min(room, d.waiting)
	d.waiting -= max(woken, 0)
	for range woken {
		d.more.Signal()
	}
	for range room - woken {
		d.done.Add(1)
		go d.work()
	}
}

// work runs requests until the dispatcher is closed.
func (d *dispatcher) work() {
	defer d.done.Done()
	var r request
	for d.next(&r) {
		d.metrics.inFlight.Add(float64(len(r.tasks)))
		how := r.lane.run(&r)
		d.metrics.inFlight.Sub(float64(len(r.tasks)))
		d.finish(len(r.tasks), how)
		r = request{} // an idle goroutine must not keep rows alive
	}
}

// next waits for a request and takes it.
func (d *dispatcher) next(r *request) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for {
		if d.closed {
			return false
		}
		if !d.paused && d.inFlight < d.window.Limit() && d.pick(r) {
			d.inFlight += len(r.tasks)
			d.queued -= len(r.tasks)
			return true
		}
		d.waiting++
		d.more.Wait() // whoever wakes it has counted it out of waiting
	}
}

func (d *dispatcher) finish(rows int, how outcome) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	switch {
	case how.overloaded:
		d.window.Refused(now)
	case how.answered:
		d.answered = now
		d.window.Answered(rows, d.inFlight, now)
	}
	d.inFlight -= rows
}

// pick moves the next tasks into r.
func (d *dispatcher) pick(r *request) bool {
	for i := range d.levels {
		if l := d.levels[i].next(); l != nil {
			r.take(l)
			d.levels[i].charge(l, r.tasks)
			return true
		}
	}
	return false
}

func (r *request) take(l *lane) {
	r.lane = l
	if l.group > 1 {
		n := min(l.group, len(l.queue))
		r.tasks = append([]*task(nil), l.queue[:n]...)
		l.queue = l.queue[n:]
		return
	}
	r.one[0] = l.queue[0]
	r.tasks = r.one[:]
	l.queue = l.queue[1:]
}

// add brings a lane that has work into turn.
func (v *level) add(l *lane) {
	for _, a := range v.accounts {
		if a.name == l.account {
			a.lanes = append(a.lanes, l)
			return
		}
	}
	v.accounts = append(v.accounts, &account{name: l.account, lanes: []*lane{l}})
}

// next returns the lane whose turn it is, the first lane of the first account,
// or nil. An account that has used up its share goes to the back.
func (v *level) next() *lane {
	for len(v.accounts) > 0 {
		a := v.accounts[0]
		if a.deficit > 0 {
			return a.lanes[0]
		}
		a.deficit += quantum
		v.accounts = append(v.accounts[1:], a)
		if len(v.accounts) == 1 && a.deficit > 0 {
			return a.lanes[0]
		}
	}
	return nil
}

// charge counts what lane l, the first of the first account, has just sent,
// and passes the turn to the account's next lane.
func (v *level) charge(l *lane, tasks []*task) {
	a := v.accounts[0]
	for _, t := range tasks {
		a.deficit -= int64(len(t.row.Text)) + rowCost
	}
	a.lanes = a.lanes[1:]
	if len(l.queue) > 0 {
		a.lanes = append(a.lanes, l)
	}
	if len(a.lanes) == 0 {
		v.accounts = v.accounts[1:]
	}
}

// remove takes a lane out of turn.
func (v *level) remove(l *lane) {
	for i, a := range v.accounts {
		for j, other := range a.lanes {
			if other != l {
				continue
			}
			a.lanes = append(a.lanes[:j:j], a.lanes[j+1:]...)
			if len(a.lanes) == 0 {
				v.accounts = append(v.accounts[:i:i], v.accounts[i+1:]...)
			}
			return
		}
	}
}
