package actors

import (
	"sync"
	"time"

	"github.com/rowmill/rowmill/engine"
)

// A dispatcher shares one inference server among the jobs that use it. Rows
// wait in one lane per job; whenever the window has room, the next row is
// picked: priority 0 before priority 1, within a priority the accounts in turn
// by the tokens they cost (deficit round robin, Shreedhar and Varghese 1995),
// within an account the jobs in turn. Rows run on goroutines of the
// dispatcher, which take their next row as they finish one. It is safe for
// concurrent use.
type dispatcher struct {
	metrics *engineMetrics
	tripped func(error) // the breaker opened; must not block
	filled  func()      // the window is full and could grow; must not block

	mu       sync.Mutex
	more     *sync.Cond // a waiting goroutine may find work
	window   *engine.Window
	breaker  breaker
	pace     pace
	levels   [2]level
	inFlight int       // rows
	urgent   int       // of them, those of priority 0
	tokens   int64     // expected of them
	queued   int       // rows in lanes
	workers  int       // goroutines: as many as the window ever allowed
	waiting  int       // of them, those waiting for work and not yet woken
	answered time.Time // when the server last answered a row
	growing  bool      // filled was called since the last reading of gauges
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

// quantum is what an account may send before the next has its turn, tokens of
// prompts and expected answers: a few rows of the usual size.
const quantum = 4096

// A request is what goes to the server at once: one row, or a group of texts
// to embed.
type request struct {
	lane  *lane
	tasks []*task
	one   [1]*task // backs tasks for a single row
}

func newDispatcher(m *engineMetrics) *dispatcher {
	d := &dispatcher{window: engine.NewWindow(0), metrics: m, paused: true}
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
	d.growing = false
	d.window.Observe(g, d.inFlight, d.tokens, now)
	d.wake()
}

// renew gives a server that came, or came back as another, a fresh window.
func (d *dispatcher) renew(slots int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.window, d.pace = engine.NewWindow(slots), pace{}
}

// nextReading is when the gauges should be read again.
func (d *dispatcher) nextReading() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.window.Next(d.inFlight)
}

// resume starts dispatching. After the breaker was open a single row must be
// answered before others follow.
func (d *dispatcher) resume() {
	d.mu.Lock()
	defer d.mu.Unlock()
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
	return d.limit(false), d.inFlight, d.queued
}

// demand is how many rows of a priority the server should have from us, in
// flight and waiting here: enough that it never idles for want of a message.
func (d *dispatcher) demand(priority int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	limit := d.limit(priority == 0)
	most := max(limit/2, leastAhead)
	if d.window.Grows(limit) || d.pace.gap == 0 { // it may grow by as much before a row ends
		return limit + most
	}
	return limit + min(most, max(leastAhead, d.pace.within(aheadTime)))
}

// What waits in a lane covers aheadTime of answers: longer than it takes to
// hand over more, and no more, since it can go to no other server meanwhile.
const (
	aheadTime  = 50 * time.Millisecond
	leastAhead = 4
)

// patience is how long an answer of at most so many tokens may take before the
// request is taken for hung; 0 while that is unknown.
func (d *dispatcher) patience(tokens int) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.pace.patience(tokens)
}

// cacheTokens is the size of the server's KV cache; 0 when unknown.
func (d *dispatcher) cacheTokens() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.window.CacheTokens()
}

func (d *dispatcher) limit(urgent bool) int {
	if d.breaker.trial {
		return 1
	}
	return d.window.Limit(urgent)
}

// wake lets as many goroutines look for work as there is room and work for.
func (d *dispatcher) wake() {
	if d.paused || d.closed {
		return
	}
	limit := d.limit(len(d.levels[0].accounts) > 0)
	room := min(limit-d.inFlight, d.queued)
	woken := max(0, min(room, d.waiting))
	d.waiting -= woken
	for range woken {
		d.more.Signal()
	}
	for range min(room-woken, limit-d.workers) {
		d.workers++
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
		rows, tokens := len(r.tasks), r.tokens() // its tasks are another's once they have run
		how := r.lane.run(&r, d.patience)
		d.metrics.inFlight.Sub(float64(rows))
		d.finish(rows, tokens, r.lane.priority == 0, how)
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
		if !d.paused && d.pick(r) {
			d.inFlight += len(r.tasks)
			if r.lane.priority == 0 {
				d.urgent += len(r.tasks)
			}
			d.tokens += r.tokens()
			d.queued -= len(r.tasks)
			if d.waiting > 0 && d.queued > 0 && d.inFlight < d.limit(false) { // one end may make room for several
				d.waiting--
				d.more.Signal()
			}
			return true
		}
		if !d.growing && d.queued > 0 && !d.paused && d.window.Grows(d.inFlight) {
			d.growing = true
			d.filled()
		}
		d.waiting++
		d.more.Wait() // whoever wakes it has counted it out of waiting
	}
}

func (d *dispatcher) finish(rows int, tokens int64, urgent bool, how outcome) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	d.inFlight -= rows
	d.tokens -= tokens
	if urgent {
		if d.urgent -= rows; d.urgent == 0 {
			d.wake()
		}
	}
	switch {
	case how.answered:
		d.answered = now
		trial := d.breaker.trial
		d.breaker.answered()
		d.pace.answered(rows, how.tokens, how.took, now)
		d.window.Answered(rows, how.prompts, how.tokens, d.inFlight+rows, now)
		if trial {
			d.wake()
		}
	case how.overloaded && d.window.Limit(false) > 1:
		d.window.Refused(now)
	case how.err != nil && !d.paused && !d.answered.After(now.Add(-how.took)): // nothing was answered since it was sent
		if d.breaker.failed() {
			d.paused = true
			d.tripped(how.err)
		}
	}
}

// pick moves the next tasks into r, where the window has room for them.
func (d *dispatcher) pick(r *request) bool {
	for i := range d.levels {
		limit := d.limit(i == 0)
		if i > 0 && d.urgent > 0 {
			limit = max(1, limit*besideUrgent/100)
		}
		if d.inFlight >= limit {
			continue
		}
		l := d.levels[i].next()
		if l == nil {
			continue
		}
		if !d.fits(l.queue[0], i == 0) {
			return false // a later row may be smaller, but then the large one would never go
		}
		r.take(l)
		d.levels[i].charge(l, r.tokens())
		return true
	}
	return false
}

// besideUrgent is the percentage of the window that is filled while rows of
// priority 0 are in flight: in a smaller batch every row is faster. At 70 the
// other rows begin to lose more than the urgent ones take, see B10 in
// bench/README.md.
const besideUrgent = 70

// fits reports whether the server's KV cache has room for a task. Urgent ones
// need not wait until others have left it.
func (d *dispatcher) fits(t *task, urgent bool) bool {
	bound := d.window.Tokens()
	if urgent {
		bound += bound / 4
	}
	return bound == 0 || d.inFlight < fewRows || d.tokens+t.expect <= bound
}

// fewRows go to a server whatever they are expected to take: it may be wrong.
const fewRows = 16

// tokens is what the request's rows are expected to cost.
func (r *request) tokens() (n int64) {
	for _, t := range r.tasks {
		n += t.expect
	}
	return n
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

// charge counts the tokens of what lane l, the first of the first account, has
// just sent, and passes the turn to the account's next lane.
func (v *level) charge(l *lane, tokens int64) {
	a := v.accounts[0]
	a.deficit -= tokens
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
