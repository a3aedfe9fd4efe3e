package dispatch

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/fair"
	"github.com/rowmill/rowmill/engine"
)

// Config has the settings of a Dispatcher.
type Config struct {
	Engine     string        // the server's name, kept with each output
	Node       string        // the node's name, kept with the attempts at rows that needed more than one
	RowTimeout time.Duration // the shortest timeout of a request, once the server's speed is known
	Wait       time.Duration // how long a row waits for a busy server at most
	Pace       engine.Pace   // how much is sent at most
	Weights    fair.Weights  // of the accounts
	Metrics    Metrics
}

// Metrics are the figures of one server.
type Metrics struct {
	InFlight prometheus.Gauge
	Seconds  prometheus.Observer // of requests
	Retries  prometheus.Counter
}

// Hooks tell what a Dispatcher learns about its server. They must not block.
type Hooks struct {
	Opened  func(r engine.Route, pause time.Duration, err error) // the breaker of a route opened, because requests failed
	Filled  func()                                               // the window is full and could grow
	Suspect func(error)                                          // a connection broke
	// Panicked gets the *contain.Panic that a row caused. The row has failed.
	Panicked func(error)
}

// A Dispatcher shares one inference server among the jobs that use it. Rows
// wait in one queue per job; whenever the window has room, the next row is
// picked: the lowest number of a priority first, within a priority the accounts in turn
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
	levels   [rowmill.Lowest + 1]level
	crash    crash
	trial    trial
	pace     pace
	requests int            // in flight
	inFlight int            // rows
	urgent   int            // urgent rows in flight
	flying   map[string]int // rows in flight by account
	tokens   int64          // expected of the rows in flight
	queued   int            // rows in queues
	workers  int            // goroutines: as many as the window ever allowed
	waiting  int            // goroutines that wait for work and are not woken yet
	answered time.Time      // when the server last answered a row
	growing  bool           // Filled was called since the last reading of gauges
	paused   bool
	closed   bool
	done     sync.WaitGroup
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

// Watch sets the hooks. It comes before the first Resume.
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

// withdraw takes the waiting tasks out of a queue.
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

// Renew gives a server that is new, or came back different, a fresh window, and
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

// Pause stops dispatching and gives all waiting tasks back to their jobs, without
// blame.
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

// Close waits for the requests in flight and stops the goroutines.
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

// Alive reports whether the server has answered a row after since.
func (d *Dispatcher) Alive(since time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.answered.After(since)
}

// Load returns the window's limit and how many rows are in flight and wait.
func (d *Dispatcher) Load() (limit, inFlight, queued int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.window.Limit(false), d.inFlight, d.queued
}

// demand is how many rows of a queue should be here, in flight and waiting: so many
// that the server never idles until the next message comes.
func (d *Dispatcher) demand(q *Queue) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.of(q).breaker.phase != closed {
		return leastAhead
	}
	limit := d.window.Limit(q.priority.Urgent())
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

// The rows that wait in a queue last for aheadTime: a little longer than it takes to
// hand over more. More would be too many, because no other server can have them
// meanwhile. A server that sends many answers at once seems quicker than it is, so that
// half a window is the most, or amplyAhead: the worker has to do nothing before
// gatherTasks have come back.
const (
	aheadTime  = 50 * time.Millisecond
	leastAhead = 4
	amplyAhead = 3 * gatherTasks
)

// timeout is how long an answer of so many tokens at most may take. After that the
// request hangs. It is 0 while the server's speed is unknown.
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

// wake wakes a goroutine for each row that waits and has room in the window.
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
			if r.queue.priority.Urgent() {
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
		d.more.Wait() // the waker has counted it out of waiting
	}
}

// finish takes the end of a request. Its tasks may belong to others now.
func (d *Dispatcher) finish(sent *request, rows int, tokens int64, seen evidence) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now, q := time.Now(), sent.queue
	d.requests--
	d.pace.ended(tokens, &seen)
	d.crash.ended(sent, seen)
	switch {
	case len(seen.broken) == 0:
	case d.closed: // no probe comes any more
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
	if q.priority.Urgent() {
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

// busyPause is the longest rest of a route if its server refuses one row after the other
// and does not say for how long: it may take other rows at once.
const busyPause = 5 * time.Second

// failed takes a request that failed. Its route rests if the server asks for that, or if
// one request after the other fails.
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
