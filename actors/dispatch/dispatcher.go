package dispatch

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rowmill/rowmill/actors/fair"
	"github.com/rowmill/rowmill/engine"
)

// Config is what a Dispatcher needs.
type Config struct {
	Engine     string        // the server's name, kept with each output
	Node       string        // the node's, kept with the attempts at rows that were not accepted at the first
	RowTimeout time.Duration // the least a request is waited for, once it is known how fast the server is
	Wait       time.Duration // the most that a row waits for a server that is busy
	Pace       engine.Pace   // the most that is sent
	Weights    fair.Weights  // what accounts have beside each other
	Metrics    Metrics
}

// Metrics are the figures of one server.
type Metrics struct {
	InFlight prometheus.Gauge
	Seconds  prometheus.Observer // of requests
	Retries  prometheus.Counter
}

// Hooks are how a Dispatcher says what it learns of its server. They must not
// block.
type Hooks struct {
	Opened  func(r engine.Route, pause time.Duration, err error) // the breaker of a route opened, for want of answers
	Filled  func()                                               // the window is full and could grow
	Suspect func(error)                                          // a connection broke
	// Panicked hears of a *contain.Panic that a row has caused, which has failed.
	Panicked func(error)
}

// A Dispatcher shares one inference server among the jobs that use it. Rows
// wait in one queue per job; whenever the window has room, the next row is
// picked: priority 0 before priority 1, within a priority the accounts in turn
// by the tokens they cost and their weights (deficit round robin, Shreedhar and Varghese 1995),
// within an account the jobs in turn. Rows run on goroutines of the
// Dispatcher, which take their next row as they finish one. It is safe for
// concurrent use.
type Dispatcher struct {
	cfg   Config
	hooks Hooks

	mu       sync.Mutex
	more     *sync.Cond // a waiting goroutine may find work
	window   *engine.Window
	routes   map[engine.Route]*route
	latency  latency
	levels   [2]level
	crash    crash
	trial    trial
	pace     pace
	requests int            // in flight
	inFlight int            // rows
	urgent   int            // of them, those of priority 0
	flying   map[string]int // of them, by account
	tokens   int64          // expected of them
	queued   int            // rows in queues
	workers  int            // goroutines: as many as the window ever allowed
	waiting  int            // of them, those waiting for work and not yet woken
	answered time.Time      // when the server last answered a row
	growing  bool           // Filled was called since the last reading of gauges
	paused   bool
	closed   bool
	done     sync.WaitGroup
}

// A request is what goes to the server at once: one row, or a group of texts
// to embed.
type request struct {
	queue *Queue
	tasks []*Task
	began time.Time
	trial bool     // it tries a route that rested
	apart bool     // it is a suspect's
	one   [1]*Task // backs tasks for a single row
}

// New returns a Dispatcher that is paused.
func New(cfg Config) *Dispatcher {
	d := &Dispatcher{cfg: cfg, window: engine.NewWindow(0), pace: newPace(cfg.Pace), paused: true, flying: make(map[string]int), routes: make(map[engine.Route]*route)}
	d.more = sync.NewCond(&d.mu)
	for i := range d.levels {
		d.levels[i].weights = cfg.Weights
	}
	return d
}

// Watch says who hears of the server. It comes before the first Resume.
func (d *Dispatcher) Watch(h Hooks) { d.hooks = h }

// put queues tasks.
func (d *Dispatcher) put(q *Queue, tasks []*Task) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.queued += len(tasks)
	others := d.trial.put(q, tasks)
	first := len(q.waiting) == 0 && len(others) > 0
	q.set(append(q.waiting, others...))
	if first {
		d.enter(q)
	}
	q.full.Store(q.left.Load())
	d.wake()
}

// withdraw takes back what waits in a queue.
func (d *Dispatcher) withdraw(q *Queue) []*Task {
	d.mu.Lock()
	defer d.mu.Unlock()
	tasks := q.waiting
	if len(tasks) > 0 {
		d.levels[q.priority].remove(q)
		d.of(q).drop(q)
		d.queued -= len(tasks)
	}
	q.set(nil)
	for _, s := range d.trial.take(q) {
		tasks = append(tasks, s.task)
		d.queued--
	}
	return tasks
}

// Observe passes a reading of the server's gauges to the window.
func (d *Dispatcher) Observe(g engine.Gauges, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.growing = false
	d.window.Observe(g, d.inFlight, d.tokens, now)
	d.wake()
}

// Renew gives a server that came, or came back as another, a fresh window, and
// tries the routes that rest.
func (d *Dispatcher) Renew(slots int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.window, d.latency = engine.NewWindow(slots), latency{}
	for _, r := range d.routes {
		d.try(r)
	}
}

// NextReading is when the gauges should be read again.
func (d *Dispatcher) NextReading() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.window.Next(d.inFlight)
}

// Resume starts dispatching.
func (d *Dispatcher) Resume() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.paused = false
	d.wake()
}

// Pause stops dispatching and gives all that waits back to those it is from,
// without blame.
func (d *Dispatcher) Pause() { giveBack(d.pause()) }

func (d *Dispatcher) pause() (back []returned) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.paused = true
	for i := range d.levels {
		for _, a := range d.levels[i].accounts {
			for _, q := range a.queues {
				back = append(back, returned{q, q.waiting})
				q.set(nil)
			}
		}
		d.levels[i].accounts = nil
	}
	for _, name := range slices.Sorted(maps.Keys(d.routes)) {
		back = d.takeHeld(d.routes[name], back)
	}
	for _, s := range d.trial.take(nil) {
		back = append(back, returned{s.queue, []*Task{s.task}})
	}
	for _, b := range d.crash.broken {
		back = append(back, returned{b.queue, []*Task{b.task}})
	}
	d.crash = crash{}
	d.queued = 0
	return back
}

// Close stops the goroutines once their requests are over, and waits.
func (d *Dispatcher) Close() {
	d.mu.Lock()
	d.closed = true
	if d.pace.timer != nil {
		d.pace.timer.Stop()
	}
	giveBackBroken(d.crash.broken)
	d.crash = crash{}
	d.more.Broadcast()
	d.mu.Unlock()
	d.done.Wait()
}

// Alive reports whether the server has answered a row since then.
func (d *Dispatcher) Alive(since time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.answered.After(since)
}

// Load returns the window's limit, the rows in flight and those that wait.
func (d *Dispatcher) Load() (limit, inFlight, queued int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.window.Limit(false), d.inFlight, d.queued
}

// demand is how many rows of a queue the server should have from us, in flight
// and waiting here: enough that it never idles for want of a message.
func (d *Dispatcher) demand(q *Queue) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.of(q).breaker.phase != closed {
		return leastAhead
	}
	limit := d.window.Limit(q.priority == 0)
	half := max(limit/2, leastAhead)
	most := half
	if d.latency.settled() {
		most = max(half, amplyAhead)
	}
	ahead := min(most, max(leastAhead, d.latency.within(aheadTime)))
	if d.window.Grows(limit) || d.latency.gap == 0 { // it may grow by as much before a row ends
		ahead = max(ahead, half)
	}
	return limit + ahead
}

// What waits in a queue covers aheadTime of answers: longer than it takes to
// hand over more, and no more, since it can go to no other server meanwhile.
// Servers whose answers come many at once seem quicker than they are, so that it
// is half a window at most, or amplyAhead: enough that the worker is not needed
// before gatherTasks have come back.
const (
	aheadTime  = 50 * time.Millisecond
	leastAhead = 4
	amplyAhead = 3 * gatherTasks
)

// timeout is how long an answer of at most so many tokens may take before the
// request is taken for hung; 0 while that is unknown.
func (d *Dispatcher) timeout(tokens int) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.latency.timeout(tokens)
}

// cacheTokens is the size of the server's KV cache; 0 when unknown.
func (d *Dispatcher) cacheTokens() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.window.CacheTokens()
}

// wake lets as many goroutines look for work as there is room and work for.
func (d *Dispatcher) wake() {
	if d.paused || d.closed {
		return
	}
	limit := d.window.Limit(len(d.levels[0].accounts) > 0)
	if d.newcomer() != nil {
		limit += d.aside(limit)
	}
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
func (d *Dispatcher) work() {
	defer d.done.Done()
	var r request
	for d.next(&r) {
		d.cfg.Metrics.InFlight.Add(float64(len(r.tasks)))
		rows, tokens := len(r.tasks), r.tokens() // its tasks are another's once they have run
		seen := r.queue.run(&r)
		seen.trial = r.trial
		d.cfg.Metrics.InFlight.Sub(float64(rows))
		d.finish(&r, rows, tokens, seen)
		r = request{} // an idle goroutine must not keep rows alive
	}
}

// next waits for a request and takes it.
func (d *Dispatcher) next(r *request) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for {
		if d.closed {
			return false
		}
		if !d.paused && !d.holds(time.Now()) && d.pick(r) {
			r.began = time.Now()
			d.pace.sent(r.tokens())
			d.requests++
			d.inFlight += len(r.tasks)
			if r.queue.priority == 0 {
				d.urgent += len(r.tasks)
			}
			d.flying[r.queue.account] += len(r.tasks)
			d.tokens += r.tokens()
			d.queued -= len(r.tasks)
			if d.waiting > 0 && d.queued > 0 && d.inFlight < d.window.Limit(false) { // one end may make room for several
				d.waiting--
				d.more.Signal()
			}
			return true
		}
		if !d.growing && d.queued > 0 && !d.paused && d.window.Grows(d.inFlight) {
			d.growing = true
			d.hooks.Filled()
		}
		d.waiting++
		d.more.Wait() // whoever wakes it has counted it out of waiting
	}
}

// finish takes the end of a request, whose tasks may be another's now.
func (d *Dispatcher) finish(sent *request, rows int, tokens int64, seen evidence) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now, q := time.Now(), sent.queue
	d.requests--
	d.pace.ended(tokens, &seen)
	d.crash.ended(sent, seen)
	switch {
	case len(seen.broken) == 0:
	case d.closed: // nobody probes any more
		giveBackBroken(seen.broken)
	default:
		d.broke(sent, seen.broken, now)
		d.hooks.Suspect(seen.err)
	}
	d.inFlight -= rows
	d.tokens -= tokens
	if d.flying[q.account] -= rows; d.flying[q.account] <= 0 {
		delete(d.flying, q.account)
	}
	if q.priority == 0 {
		if d.urgent -= rows; d.urgent == 0 {
			d.wake()
		}
	}
	r := d.of(q)
	if seen.trial {
		r.trying = false
	}
	switch {
	case seen.answered:
		d.answered, r.answered, r.again = now, now, false
		r.breaker.answered()
		d.latency.answered(rows, seen.tokens, seen.took, now)
		d.window.Answered(rows, seen.prompts, seen.tokens, d.inFlight+rows, now)
	case seen.err != nil:
		d.failed(r, q.route, seen, now)
	}
	d.release(r)
	if sent.apart && d.trial.end(now) {
		d.wake()
	}
}

// busyPause is the longest that a route rests which its server keeps refusing without a
// word for how long: other rows may be taken at once.
const busyPause = 5 * time.Second

// failed takes a request that failed. Its route rests where the server has asked for
// that, and where one request after the other fails.
func (d *Dispatcher) failed(r *route, name engine.Route, seen evidence, now time.Time) {
	others := d.inFlight > 0 // a row that is refused alone says nothing of the window
	crowded := seen.overloaded && others && d.window.Limit(false) > 1
	if seen.overloaded && others {
		d.window.Refused(now)
	}
	var pause time.Duration
	var rests bool
	switch {
	case d.paused:
	case seen.asked > 0:
		pause, rests = r.asked(seen.asked, seen.first, seen.trial)
	case !crowded && (!seen.busy || seen.first || seen.trial): // a row that is refused again may be the only one
		pause, rests = r.failed(seen.took, seen.trial, now)
		if seen.busy {
			pause = min(pause, busyPause)
		}
	}
	if rests {
		d.hold(name)
		d.hooks.Opened(name, pause, seen.err)
	}
}

// answeredAt is when the server last answered a row of the queue's route.
func (d *Dispatcher) answeredAt(q *Queue) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.of(q).answered
}

// pick moves the next tasks into r, where the window has room for them.
func (d *Dispatcher) pick(r *request) bool {
	if picked, stop := d.pickSuspect(r); picked || stop {
		return picked
	}
	if limit := d.window.Limit(true); d.inFlight >= limit && d.inFlight < limit+d.aside(limit) {
		if q := d.newcomer(); q != nil {
			d.levels[0].advance(q)
			d.take(r, q)
			return true
		}
	}
	for i := range d.levels {
		limit := d.window.Limit(i == 0)
		if i > 0 && d.urgent > 0 {
			limit = max(1, limit*besideUrgent/100)
		}
		if d.inFlight >= limit {
			continue
		}
		q := d.levels[i].next()
		if q == nil {
			continue
		}
		if !d.fits(q.waiting[0], i == 0) {
			return false // a later row may be smaller, but then the large one would never go
		}
		d.take(r, q)
		return true
	}
	return false
}

// take moves the next tasks of a queue whose turn it is into r.
func (d *Dispatcher) take(r *request, q *Queue) {
	r.take(q)
	d.levels[q.priority].charge(q, r.tokens())
	d.tries(r)
}

// tries notes a request that tries a route which rested.
func (d *Dispatcher) tries(r *request) {
	route := d.of(r.queue)
	if r.trial = route.breaker.phase == halfOpen; r.trial {
		route.trying = true
		d.hold(r.queue.route)
	}
}

// newcomer is a queue of priority 0 of an account that has nothing in flight here;
// nil where there is none.
func (d *Dispatcher) newcomer() *Queue {
	for _, a := range d.levels[0].accounts {
		if d.flying[a.name] == 0 {
			return a.queues[0]
		}
	}
	return nil
}

// aside is how much of a window that is full there is beyond it for newcomers: an
// account that fills it with long answers of priority 0 does not keep the first
// rows of others waiting for their end.
func (d *Dispatcher) aside(limit int) int {
	return max(1, limit/8)
}

// besideUrgent is the percentage of the window that is filled while rows of
// priority 0 are in flight: in a smaller batch every row is faster. At 70 the
// other rows begin to lose more than the urgent ones take, see B10 in
// bench/README.md.
const besideUrgent = 70

// fits reports whether the server's KV cache has room for a task. Urgent ones
// need not wait until others have left it.
func (d *Dispatcher) fits(t *Task, urgent bool) bool {
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

func (r *request) take(q *Queue) {
	r.queue = q
	if n := min(q.group, len(q.waiting)); n > 1 {
		r.tasks = append([]*Task(nil), q.waiting[:n]...)
		q.set(q.waiting[n:])
		return
	}
	r.one[0] = q.waiting[0]
	r.tasks = r.one[:]
	q.set(q.waiting[1:])
}
