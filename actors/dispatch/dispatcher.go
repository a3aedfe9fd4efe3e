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
	Engine     string           // name of the inference server, stored with each output
	Node       string           // name of this node, stored with each row that needed several attempts
	RowTimeout time.Duration    // the minimum timeout of a request, once the server's speed is known
	Wait       time.Duration    // the maximum time that a row waits for a busy server
	Pace       engine.RateLimit // the maximum numbers of requests and tokens per minute
	Weights    fair.Weights     // the accounts' shares of the server
	Metrics    Metrics
}

// Metrics has the metrics of a server.
type Metrics struct {
	InFlight prometheus.Gauge    // number of rows in flight
	Seconds  prometheus.Observer // duration of each request in seconds
	Retries  prometheus.Counter  // number of attempts that failed and are retried
}

// Hooks are functions that the Dispatcher calls when it learns something about its
// server. They must not block.
type Hooks struct {
	// Opened is called when a route stops for pause, because its requests fail or the
	// server asked for a pause. err is the last error.
	Opened func(r engine.Route, pause time.Duration, err error)
	// Filled is called when the window is full and could grow.
	Filled func()
	// Suspect is called with an error that may mean that the server is down.
	Suspect func(error)
	// Panicked is called with a *panics.Panic after our own code panicked on a row. The
	// row has failed.
	Panicked func(error)
}

// A Dispatcher shares one inference server among the jobs that use it. Each job has a
// queue of rows. When the window has room, the Dispatcher picks the next row: first by
// priority, the lowest number first; then accounts take turns, by the cost of their
// rows in tokens and by their weights (deficit round robin, Shreedhar and Varghese
// 1995); then the jobs of the account take turns. Rows run on goroutines of the
// Dispatcher; each goroutine takes the next row when it has finished a row. A
// Dispatcher is safe for concurrent use.
type Dispatcher struct {
	cfg   Config
	hooks Hooks

	mu                sync.Mutex
	more              *sync.Cond // signalled when a waiting goroutine may find work
	window            *engine.Window
	routes            map[engine.Route]*route
	latency           latency
	levels            [rowmill.Lowest + 1]priorityLevel // the queues that take turns, by priority
	crash             suspectedCrash
	trial             suspectTrial
	pace              rateLimiter
	requests          int            // number of requests in flight
	inFlight          int            // number of rows in flight
	urgent            int            // number of urgent rows in flight
	inFlightByAccount map[string]int // by account: number of rows in flight
	tokens            int64          // expected tokens of the rows in flight
	queued            int            // number of rows that wait in queues
	workers           int            // number of goroutines: the largest limit that the window has had
	waiting           int            // number of goroutines that wait for work and were not woken
	answered          time.Time      // when the server last answered a row
	answeredTokens    int64          // tokens of all answered requests, prompts and answers
	reportedFull      bool           // Hooks.Filled was called since the gauges were last read
	paused            bool
	closed            bool
	done              sync.WaitGroup
}

// New returns a Dispatcher that sends no rows before Resume is called.
func New(cfg Config) *Dispatcher {
	d := &Dispatcher{cfg: cfg, window: engine.NewWindow(0), pace: newRateLimiter(cfg.Pace), paused: true, inFlightByAccount: make(map[string]int), routes: make(map[engine.Route]*route)}
	d.more = sync.NewCond(&d.mu)
	for i := range d.levels {
		d.levels[i].weights = cfg.Weights
	}
	return d
}

// SetHooks sets the hooks. Call it before the first Resume.
func (d *Dispatcher) SetHooks(h Hooks) { d.hooks = h }

// put adds tasks to queue q.
func (d *Dispatcher) put(q *Queue, tasks []*RowTask) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.queued += len(tasks)
	for _, t := range tasks {
		t.queue = q
	}
	others := d.trial.addSuspects(q, tasks)
	first := len(q.waiting) == 0 && len(others) > 0
	q.waiting = append(q.waiting, others...)
	if first {
		d.addToTurns(q)
	}
	q.lengthAfterPut = len(q.waiting)
	d.wake()
}

// withdraw removes and returns the waiting tasks of queue q.
func (d *Dispatcher) withdraw(q *Queue) []*RowTask {
	d.mu.Lock()
	defer d.mu.Unlock()
	tasks := q.waiting
	if len(tasks) > 0 {
		d.levels[q.priority].remove(q)
		d.routeOf(q).unholdQueue(q)
		d.queued -= len(tasks)
	}
	q.waiting = nil
	suspects := d.trial.removeSuspects(q)
	d.queued -= len(suspects)
	return append(tasks, suspects...)
}

// Observe passes values of the server's gauges to the window.
func (d *Dispatcher) Observe(g engine.Gauges, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reportedFull = false
	d.window.RecordGauges(g, d.inFlight, d.tokens, now)
	d.wake()
}

// ResetWindow starts a new window with this many slots, because the server is new or has
// changed. It also lets each resting route try a row.
func (d *Dispatcher) ResetWindow(slots int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.window, d.latency = engine.NewWindow(slots), latency{}
	for _, r := range d.routes {
		d.try(r)
	}
}

// NextReading returns the time until the gauges should be read again.
func (d *Dispatcher) NextReading() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.window.GaugeInterval(d.inFlight)
}

// Resume starts the sending of rows, or starts it again after Pause.
func (d *Dispatcher) Resume() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.paused = false
	d.wake()
}

// Pause stops the sending of rows and gives all waiting tasks back to their jobs. This
// costs no attempt.
func (d *Dispatcher) Pause() { giveBack(d.pause()) }

// pause stops the sending of rows and returns all waiting tasks.
func (d *Dispatcher) pause() (back []*RowTask) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.paused = true
	for i := range d.levels {
		for _, a := range d.levels[i].accounts {
			for _, q := range a.queues {
				back = append(back, q.waiting...)
				q.waiting = nil
			}
		}
		d.levels[i].accounts = nil
	}
	for _, name := range slices.Sorted(maps.Keys(d.routes)) {
		back = d.takeHeld(d.routes[name], back)
	}
	back = append(back, d.trial.removeSuspects(nil)...)
	back = append(back, brokenTasks(d.crash.broken)...)
	d.crash = suspectedCrash{}
	d.queued = 0
	return back
}

// Close waits for the requests in flight and stops the goroutines of the Dispatcher.
func (d *Dispatcher) Close() {
	d.mu.Lock()
	d.closed = true
	if d.pace.timer != nil {
		d.pace.timer.Stop()
	}
	giveBack(brokenTasks(d.crash.broken))
	d.crash = suspectedCrash{}
	d.more.Broadcast()
	d.mu.Unlock()
	d.done.Wait()
}

// HasAnsweredSince reports whether the server has answered a row after the given time.
func (d *Dispatcher) HasAnsweredSince(since time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.answered.After(since)
}

// Load returns the number of rows that may be in flight, and the numbers of rows in
// flight and in queues. The limit is the window, or the number of rows in flight if that
// is larger: urgent rows may exceed the window, and rows stay in flight after the window
// has shrunk.
func (d *Dispatcher) Load() (limit, inFlight, queued int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return max(d.window.RowLimit(false), d.inFlight), d.inFlight, d.queued
}

// AnsweredTokens returns the number of tokens of all requests that the server has answered,
// of prompts and answers.
func (d *Dispatcher) AnsweredTokens() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.answeredTokens
}

// demand returns how many rows of queue q should be at this Dispatcher, in flight and
// waiting: enough that the server does not idle until the worker sends more rows.
func (d *Dispatcher) demand(q *Queue) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.routeOf(q).breaker.phase != closed {
		return leastAhead
	}
	limit := d.window.RowLimit(q.priority.IsUrgent())
	if bound := d.tokenLimit(q.priority.IsUrgent()); bound > 0 && d.inFlight >= fewRows { // the KV cache may be the limit
		limit = min(limit, int(bound*int64(d.inFlight)/max(d.tokens, 1)))
	}
	half := max(limit/2, leastAhead)
	most := half
	if d.latency.settled() {
		most = max(half, amplyAhead)
	}
	ahead := min(most, max(leastAhead, d.latency.answersWithin(aheadTime)))
	if d.window.CanGrow(limit) || d.latency.gap == 0 { // the window may grow by half before a row ends
		ahead = max(ahead, half)
	}
	return limit + ahead
}

// The waiting rows of a queue should last for aheadTime: a little longer than the worker
// takes to send more rows. If more rows waited, other servers could not run them. A server
// that sends many answers at once seems faster than it is, so the number of waiting rows
// is also limited to half a window, or amplyAhead rows if that is more. It is at least
// leastAhead. (The worker gets back gatherTasks rows at a time.)
const (
	aheadTime  = 50 * time.Millisecond
	leastAhead = 4
	amplyAhead = 3 * gatherTasks
)

// timeout returns how long an answer with at most this many tokens may take. A request
// that takes longer counts as lost. The result is 0 while the server's speed is
// unknown.
func (d *Dispatcher) timeout(tokens int) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.latency.timeout(tokens)
}

// cacheTokens returns the size of the server's KV cache in tokens; 0 if unknown.
func (d *Dispatcher) cacheTokens() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.window.CacheTokens()
}

// wake wakes or starts a goroutine for each waiting row that fits into the window.
func (d *Dispatcher) wake() {
	if d.paused || d.closed {
		return
	}
	limit := d.window.RowLimit(len(d.levels[0].accounts) > 0)
	if d.newcomer() != nil {
		limit += d.newcomerRoom(limit)
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
		go d.runRequests()
	}
}

// runRequests runs requests until the dispatcher closes.
func (d *Dispatcher) runRequests() {
	defer d.done.Done()
	var r request
	for d.waitForRequest(&r) {
		d.cfg.Metrics.InFlight.Add(float64(len(r.tasks)))
		rows, tokens := len(r.tasks), r.tokens()
		seen, back := r.queue.run(&r)
		d.cfg.Metrics.InFlight.Sub(float64(rows))
		low := d.finish(&r, rows, tokens, seen)
		r.queue.out.put(low, back...) // the worker sees its rows when their slots are free again
		r = request{}                 // an idle goroutine must not keep rows alive
	}
}

// waitForRequest waits until a request can be sent, and moves it into r. It returns false when
// the Dispatcher is closed.
func (d *Dispatcher) waitForRequest(r *request) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for {
		if d.closed {
			return false
		}
		if !d.paused && !d.mustWait(time.Now()) && d.pick(r) {
			r.began = time.Now()
			d.pace.countRequest(r.tokens())
			d.requests++
			d.inFlight += len(r.tasks)
			if r.queue.priority.IsUrgent() {
				d.urgent += len(r.tasks)
			}
			d.inFlightByAccount[r.queue.account] += len(r.tasks)
			d.tokens += r.tokens()
			d.queued -= len(r.tasks)
			if d.waiting > 0 && d.queued > 0 && d.inFlight < d.window.RowLimit(false) { // one finished request may make room for several
				d.waiting--
				d.more.Signal()
			}
			return true
		}
		if !d.reportedFull && d.queued > 0 && !d.paused && d.window.CanGrow(d.inFlight) {
			d.reportedFull = true
			d.hooks.Filled()
		}
		d.waiting++
		d.more.Wait() // wake has already reduced waiting
	}
}

// finish records the end of a request with this many rows and expected tokens. low is
// true if the request's queue has few rows left, so that the worker should send more at
// once.
func (d *Dispatcher) finish(sent *request, rows int, tokens int64, seen requestResult) (low bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now, q := time.Now(), sent.queue
	low = q.low()
	d.requests--
	d.pace.correctTokens(tokens, &seen)
	d.crash.recordRequestEnd(sent, seen)
	switch {
	case len(seen.broken) == 0:
	case d.closed: // there are no more probes
		giveBack(brokenTasks(seen.broken))
	default:
		d.keepBrokenRows(sent, seen.broken, now)
		d.hooks.Suspect(seen.err)
	}
	d.inFlight -= rows
	d.tokens -= tokens
	if d.inFlightByAccount[q.account] -= rows; d.inFlightByAccount[q.account] <= 0 {
		delete(d.inFlightByAccount, q.account)
	}
	if q.priority.IsUrgent() {
		if d.urgent -= rows; d.urgent == 0 {
			d.wake()
		}
	}
	r := d.routeOf(q)
	if sent.trial {
		r.trying = false
	}
	switch {
	case seen.answered:
		d.answered, r.answered, r.hasRepeatedRefusal = now, now, false
		d.answeredTokens += seen.prompts + seen.tokens
		r.breaker.recordAnswer()
		d.latency.recordAnswer(rows, seen.tokens, seen.took, now)
		d.window.RecordAnswers(rows, seen.prompts, seen.tokens, d.inFlight+rows, now)
	case seen.err != nil:
		d.recordFailure(r, sent, seen, now)
	}
	d.release(r)
	if sent.isSuspect && d.trial.endRequest(now) {
		d.wake()
	}
	return low
}

// busyPause is the maximum pause of a route whose server refuses one row after another
// without naming a time: the server may accept other rows soon.
const busyPause = 5 * time.Second

// recordFailure records a failed request. The request's route rests if the server asks for a
// pause, or if one request after another fails.
func (d *Dispatcher) recordFailure(r *route, sent *request, seen requestResult, now time.Time) {
	others := d.inFlight > 0 // if a row ran alone, its refusal says nothing about the size of the window
	crowded := seen.overloaded && others && d.window.RowLimit(false) > 1
	if seen.overloaded && others {
		d.window.RecordRefusal(now)
	}
	var pause time.Duration
	var rests bool
	switch {
	case d.paused:
	case seen.requestedPause > 0:
		pause, rests = r.restForRetryAfter(seen.requestedPause, seen.isFirstRefusal, sent.trial)
	case !crowded && (!seen.busy || seen.isFirstRefusal || sent.trial): // after a repeated refusal of the same row, other rows may still be accepted
		pause, rests = r.recordFailure(seen.took, sent.trial, now)
		if seen.busy {
			pause = min(pause, busyPause)
		}
	}
	if rests {
		d.holdRoute(sent.queue.route)
		d.hooks.Opened(sent.queue.route, pause, seen.err)
	}
}

// answeredAt returns when the server last answered a row of the queue's route.
func (d *Dispatcher) answeredAt(q *Queue) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.routeOf(q).answered
}
