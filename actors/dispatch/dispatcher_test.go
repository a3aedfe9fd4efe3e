package dispatch

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/fair"
	"github.com/rowmill/rowmill/engine"
)

func (d *Dispatcher) pickOne(t testing.TB) *Queue {
	t.Helper()
	var r request
	if !d.pick(&r) {
		t.Fatal("nothing to pick")
	}
	return r.queue
}

// ended passes the result of a request with one row to the dispatcher. trial says that the
// request tried its route.
func (d *Dispatcher) ended(q *Queue, trial bool, seen requestResult) {
	d.finish(&request{queue: q, trial: trial}, 1, 0, seen)
}

// resumeByHand resumes a dispatcher without goroutines: the test itself picks rows.
func (d *Dispatcher) resumeByHand() {
	d.workers = 1 << 20
	d.Resume()
}

func TestDispatcherServesPriority0First(t *testing.T) {
	t.Parallel()
	d := testDispatcher()
	late := &Queue{account: "a", priority: 1, group: 1}
	first := &Queue{account: "b", priority: 0, group: 1}
	d.put(late, tasks(3, 10))
	d.put(first, tasks(2, 10))
	for i, want := range []*Queue{first, first, late, late, late} {
		if got := d.pickOne(t); got != want {
			t.Fatalf("pick %d is of priority %d", i, got.priority)
		}
	}
}

// Load never reports more rows in flight than the limit, also while urgent rows exceed
// the window, and after the window has shrunk.
func TestDispatcherLoadIsConsistent(t *testing.T) {
	t.Parallel()
	d := testDispatcher()
	d.ResetWindow(16)
	d.resumeByHand()
	window, _, _ := d.Load()
	d.put(&Queue{account: "a", priority: rowmill.Production, group: 1}, tasks(100, 10))
	d.put(&Queue{account: "b", priority: rowmill.Prototyping, group: 1}, tasks(100, 10))
	var r request
	for d.pick(&r) {
		d.inFlight++
	}
	limit, inFlight, _ := d.Load()
	if inFlight <= window || limit != inFlight {
		t.Errorf("with urgent rows %d of %d rows are in flight, in a window of %d", inFlight, limit, window)
	}
	d.ResetWindow(1)
	if limit, inFlight, _ := d.Load(); limit != inFlight {
		t.Errorf("after the window has shrunk, %d of %d rows are in flight", inFlight, limit)
	}
}

func TestDispatcherSharesBetweenAccountsByTokens(t *testing.T) {
	t.Parallel()
	d := testDispatcher()
	long := &Queue{account: "long rows", group: 1}
	short := &Queue{account: "short rows", group: 1}
	other := &Queue{account: "short rows", group: 1} // a second job gets no additional share
	d.put(long, tasks(1000, 4000))
	d.put(short, tasks(5000, 100))
	d.put(other, tasks(5000, 100))
	tokens := make(map[string]int64)
	jobs := make(map[*Queue]int)
	for range 2000 {
		var r request
		d.pick(&r)
		tokens[r.queue.account] += r.tokens()
		jobs[r.queue]++
	}
	if a, b := tokens["long rows"], tokens["short rows"]; float64(a) > 1.1*float64(b) || float64(b) > 1.1*float64(a) {
		t.Errorf("tokens sent: %v, want equal shares", tokens)
	}
	if a, b := jobs[short], jobs[other]; a-b > 1 || b-a > 1 {
		t.Errorf("rows of the two jobs of one account: %d and %d, want equal", a, b)
	}
}

func TestDispatcherSharesByWeight(t *testing.T) {
	t.Parallel()
	d := testDispatcher()
	for i := range d.levels {
		d.levels[i].weights = fair.Weights{"heavy": 3}
	}
	heavy, light := &Queue{account: "heavy", priority: 1, group: 1}, &Queue{account: "light", priority: 1, group: 1}
	d.put(heavy, tasks(5000, 500))
	d.put(light, tasks(5000, 500))
	sent := make(map[*Queue]int)
	for range 2000 {
		sent[d.pickOne(t)]++
	}
	if sent[heavy] < 1400 || sent[heavy] > 1600 {
		t.Errorf("rows sent: %d and %d, want three of four", sent[heavy], sent[light])
	}
}

// If an account has filled the window with rows of priority 0, the first row of each
// other account still has room, and a second row does not.
func TestTheFirstRowOfAnAccountNeedsNoRoom(t *testing.T) {
	t.Parallel()
	d := testDispatcher()
	greedy := &Queue{account: "greedy", group: 1}
	d.put(greedy, tasks(1000, 10))
	var r request
	room := 0
	take := func() bool {
		if !d.pick(&r) {
			return false
		}
		d.inFlight++
		d.urgent++
		d.inFlightByAccount[r.queue.account]++
		return true
	}
	for take() {
		room++
	}
	if room != d.window.RowLimit(true) {
		t.Fatalf("%d rows went out, want %d", room, d.window.RowLimit(true))
	}
	modest, calm := &Queue{account: "modest", group: 1}, &Queue{account: "calm", priority: 1, group: 1}
	d.put(modest, tasks(2, 10))
	d.put(calm, tasks(2, 10))
	if !take() || r.queue != modest {
		t.Fatal("the first row of another account waits")
	}
	if take() {
		t.Fatalf("another row of %s goes beyond the window", r.queue.account)
	}
	for range d.newcomerRoom(room) {
		d.put(&Queue{account: fmt.Sprint("account ", d.queued), group: 1}, tasks(1, 10))
	}
	beyond := 1
	for take() {
		beyond++
	}
	if beyond != d.newcomerRoom(room) {
		t.Fatalf("%d rows went beyond the window, want %d", beyond, d.newcomerRoom(room))
	}
}

func TestDispatcherGroupsTextsToEmbed(t *testing.T) {
	t.Parallel()
	d := testDispatcher()
	l := &Queue{group: 32}
	d.put(l, tasks(40, 10))
	var r request
	for _, want := range []int{32, 8} {
		if !d.pick(&r) || len(r.tasks) != want {
			t.Fatalf("group of %d, want %d", len(r.tasks), want)
		}
	}
}

// In any order of put, withdraw, pause and pick, each task comes out once.
func TestDispatcherLosesNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := testDispatcher()
		queues := make([]*Queue, 6)
		out := &Completions{Notify: func() {}}
		d.SetHooks(Hooks{Opened: func(engine.Route, time.Duration, error) {}})
		d.resumeByHand()
		for i := range queues {
			queues[i] = &Queue{out: out, route: engine.Route(fmt.Sprint(i % 2)), account: fmt.Sprint(i % 3), priority: rowmill.Priority(i % 2), group: 1 + i/4*2}
		}
		in, left := 0, 0
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			l := queues[rapid.IntRange(0, len(queues)-1).Draw(t, "queue")]
			switch rapid.IntRange(0, 12).Draw(t, "step") {
			case 0:
				left += len(d.withdraw(l))
			case 1:
				left += len(d.pause())
			case 10: // each row fails
				for range breakerFailures {
					d.finish(&request{queue: l, trial: true}, 0, 0, requestResult{err: errProbe})
				}
			case 11:
				d.ReturnRestingRows(l.route)
				left += len(out.Take(nil))
			case 12:
				d.Try(l.route)
			case 2, 3, 4:
				n := rapid.IntRange(0, 5).Draw(t, "n")
				in += n
				made := tasks(n, rapid.IntRange(0, 40_000).Draw(t, "size"))
				for _, task := range made {
					task.trialGroup = max(0, rapid.IntRange(-2, 2).Draw(t, "apart")) // suspects, alone or in groups of two
				}
				d.put(l, made)
			default:
				var r request
				if d.pick(&r) {
					left += len(r.tasks)
					d.queued -= len(r.tasks)
					if r.isSuspect {
						d.trial.endRequest(time.Now())
					}
				}
			}
			if d.queued != in-left {
				t.Fatalf("%d queued, want %d", d.queued, in-left)
			}
		}
		left += len(d.pause())
		if in != left || d.queued != 0 {
			t.Fatalf("%d tasks in, %d out, %d queued", in, left, d.queued)
		}
	})
}

// Answers show that a server is alive; refusals and broken connections do not.
func TestDispatcherKnowsALivingServer(t *testing.T) {
	t.Parallel()
	d := testDispatcher()
	began := time.Now()
	d.ended(&Queue{priority: 1}, false, requestResult{})
	d.ended(&Queue{priority: 1}, false, requestResult{overloaded: true})
	if d.HasAnsweredSince(began) {
		t.Error("alive without an answer")
	}
	d.ended(&Queue{priority: 1}, false, requestResult{answered: true})
	if !d.HasAnsweredSince(began) || d.HasAnsweredSince(time.Now().Add(time.Minute)) {
		t.Error("an answer counts for the time after which it came")
	}
}

// Urgent rows may exceed the window by its target queue, and other rows leave room while
// urgent rows run.
func TestDispatcherMakesRoomForUrgentRows(t *testing.T) {
	t.Parallel()
	d := testDispatcher()
	d.ResetWindow(80) // a window of 80 and a target queue of 10
	bulk, urgent := &Queue{priority: 1, group: 1}, &Queue{group: 1}
	fill := func() (picked int) {
		var r request
		for d.pick(&r) {
			d.inFlight++
			d.inFlightByAccount[r.queue.account]++
			if r.queue == urgent {
				d.urgent++
			}
			picked++
		}
		return picked
	}
	d.put(bulk, tasks(200, 1))
	if got := fill(); got != 90 {
		t.Fatalf("%d rows in flight, want the window of 90", got)
	}
	d.put(urgent, tasks(200, 1))
	if got := fill(); got != 10 {
		t.Fatalf("%d urgent rows beside a full window, want 10", got)
	}
	d.withdraw(urgent)
	d.inFlight -= 40 // other rows have ended
	if got := fill(); got != 3 {
		t.Fatalf("%d other rows beside urgent ones, want to stop at %v %% of the window", got, besideUrgent)
	}
	d.urgent, d.inFlight = 0, d.inFlight-10
	if got := fill(); got != 37 {
		t.Fatalf("%d other rows once the urgent ones are done, want a full window", got)
	}
}

// Rows in flight are limited by their expected use of the KV cache, once the server has
// reported its size.
func TestDispatcherFillsNoMoreThanTheCache(t *testing.T) {
	t.Parallel()
	d := testDispatcher()
	d.Observe(engine.Gauges{KVTokens: 10_000}, time.Unix(0, 0))
	l := &Queue{priority: 1, group: 1}
	d.put(l, tasks(64, 300))
	var r request
	for d.pick(&r) {
		d.inFlight++
		d.tokens += r.tokens()
	}
	if d.tokens < 8_000 || d.tokens > 10_000 {
		t.Errorf("rows of %d tokens in flight for a cache of 10,000", d.tokens)
	}
}

// If the KV cache limits the rows in flight, no more rows wait than usual: the others stay
// with the worker, which orders them.
func TestAFullCacheHasNoMoreWaiting(t *testing.T) {
	t.Parallel()
	d := testDispatcher()
	for i := range 5 { // the window grows beyond the rows that fit
		d.Observe(engine.Gauges{KVTokens: 10_000, Running: int64(d.window.RowLimit(false))}, time.Unix(int64(i), 0))
	}
	q := &Queue{priority: 1, group: 1}
	d.inFlight, d.tokens = 30, 300*30
	d.latency.gap, d.latency.gaps = 1, 4*smoothing
	fit := int(d.window.TokenLimit() / 300)
	if d.window.RowLimit(false) < 2*fit {
		t.Fatalf("the window has %d rows, the cache %d", d.window.RowLimit(false), fit)
	}
	if got := d.demand(q); got < fit || got > fit+fit/2 {
		t.Errorf("%d rows wanted at the server, whose cache has room for %d", got, fit)
	}
}

// The number of waiting rows follows the server's rate, so a fast server does not need
// the worker for every few rows, and a slow server keeps few rows waiting.
func TestAQuickServerHasMoreWaiting(t *testing.T) {
	t.Parallel()
	const limit = 64
	for _, c := range []struct {
		gap       time.Duration
		size      int
		congested bool
		want      int
	}{
		{0, limit, false, limit / 2},
		{0, limit, true, limit / 2},
		{time.Second, limit, true, leastAhead},
		{time.Millisecond, limit, true, 50},
		{10 * time.Microsecond, limit, true, amplyAhead},
		{10 * time.Microsecond, 16 * limit, true, 8 * limit},
		{time.Second, limit, false, limit / 2},
		{10 * time.Microsecond, limit, false, amplyAhead},
	} {
		d := testDispatcher()
		d.ResetWindow(0)
		now := time.Unix(0, 0)
		d.window.RecordGauges(engine.Gauges{}, 0, 0, now)
		for got := d.window.RowLimit(false); got < c.size; got = d.window.RowLimit(false) {
			now = now.Add(time.Second)
			d.window.RecordGauges(engine.Gauges{Running: int64(got)}, got, 0, now)
		}
		if c.congested {
			d.window.RecordGauges(engine.Gauges{Running: int64(c.size) - 1, Waiting: 1}, 2*c.size, 0, now)
		}
		d.latency.gap, d.latency.gaps = c.gap.Seconds(), 4*smoothing
		if got := d.demand(&Queue{priority: 1, group: 1}) - d.window.RowLimit(false); got != c.want {
			t.Errorf("%v between answers, %d rows at a time, congested %v: %d wait, want %d", c.gap, c.size, c.congested, got, c.want)
		}
		d.latency.gaps = 2
		if got := d.demand(&Queue{priority: 1, group: 1}) - d.window.RowLimit(false); got > max(c.size/2, leastAhead) {
			t.Errorf("after two answers, %v between them, %d wait", c.gap, got)
		}
	}
}

func TestBreakerOpensAfterFailuresInARow(t *testing.T) {
	t.Parallel()
	d := testDispatcher()
	opened := 0
	d.SetHooks(Hooks{Opened: func(engine.Route, time.Duration, error) { opened++ }})
	failure := requestResult{err: errors.New("status 500")}
	queue := &Queue{priority: 1, group: 1}
	d.resumeByHand()
	for range breakerFailures - 1 {
		d.ended(queue, false, failure)
	}
	d.ended(queue, false, requestResult{answered: true})
	for range breakerFailures - 1 {
		d.ended(queue, false, failure)
	}
	if opened != 0 {
		t.Fatal("the breaker opened although a row was answered between the failures")
	}
	d.ended(queue, false, failure)
	if opened != 1 {
		t.Fatal("the breaker is closed after failures in a row")
	}
	d.ended(queue, false, failure) // it was in flight before
	if opened != 1 {
		t.Error("the breaker opened twice")
	}
	var r request
	d.put(queue, tasks(5, 10))
	if d.pick(&r) {
		t.Fatal("a row goes out while the breaker is open")
	}
	if got := d.demand(queue); got != leastAhead {
		t.Errorf("a route that rests wants %d rows", got)
	}
	d.Try("")
	if !d.pick(&r) || !r.trial || d.pick(&r) {
		t.Fatal("want a single row after the pause")
	}
	d.ended(queue, false, failure) // sent before the pause
	if opened != 1 || d.pick(&r) {
		t.Fatal("a row of before the pause decides")
	}
	d.ended(queue, true, requestResult{err: errors.New("status 500")})
	if opened != 2 || d.pick(&r) {
		t.Fatal("the row that was let through failed, and others follow")
	}
	d.Try("")
	d.pick(&r)
	d.ended(queue, true, requestResult{}) // its job was stopped
	if !d.pick(&r) || d.pick(&r) {
		t.Fatal("want another single row where the first told nothing")
	}
	d.ended(queue, true, requestResult{answered: true})
	if !d.pick(&r) || r.trial || !d.pick(&r) {
		t.Error("a row was answered, and still only one may go")
	}
}

// If all rows of a model fail, the rows of other models continue, in the same account
// and in other accounts.
func TestARouteRestsAlone(t *testing.T) {
	t.Parallel()
	d := testDispatcher()
	var rests []engine.Route
	d.SetHooks(Hooks{Opened: func(r engine.Route, _ time.Duration, _ error) { rests = append(rests, r) }})
	d.resumeByHand()
	out := &Completions{Notify: func() {}}
	broken := &Queue{route: "broken", account: "a", priority: 1, group: 1, out: out}
	twin := &Queue{route: "broken", account: "b", group: 1, out: out}
	sound := &Queue{route: "sound", account: "a", priority: 1, group: 1, out: out}
	d.put(broken, tasks(3, 10))
	d.put(twin, tasks(2, 10))
	d.put(sound, tasks(2, 10))
	for range breakerFailures {
		d.ended(sound, false, requestResult{answered: true})
		d.ended(broken, false, requestResult{err: errors.New("status 500"), took: time.Nanosecond})
	}
	if len(rests) != 1 || rests[0] != "broken" {
		t.Fatalf("routes at rest: %v", rests)
	}
	for range 2 {
		if got := d.pickOne(t); got != sound {
			t.Fatalf("a row of %s goes out", got.route)
		}
	}
	d.ReturnRestingRows("broken")
	back := out.Take(nil)
	if len(back) != 5 || len(broken.waiting)+len(twin.waiting) != 0 || d.queued != 2 {
		t.Fatalf("%d rows came back, %d are queued", len(back), d.queued)
	}
	for _, task := range back {
		if task.Outcome != NotCounted {
			t.Errorf("a row comes back as %v", task.Outcome)
		}
	}
	d.put(twin, tasks(2, 10))
	d.ResetWindow(0) // the server came back
	if got := d.pickOne(t); got != twin {
		t.Fatalf("a row of %s goes out", got.route)
	}
	if got := d.withdraw(twin); len(got) != 1 {
		t.Errorf("%d rows withdrawn, want the one that waits for the trial", len(got))
	}
}

func TestBreakerIgnoresRequestsSentBeforeAnAnswer(t *testing.T) {
	t.Parallel()
	d := testDispatcher()
	d.SetHooks(Hooks{Opened: func(engine.Route, time.Duration, error) { t.Error("the breaker opened") }})
	d.Resume()
	d.ended(&Queue{priority: 1}, false, requestResult{answered: true})
	for range 2 * breakerFailures { // these requests were sent before the answer
		d.ended(&Queue{priority: 1}, false, requestResult{err: errors.New("timeout"), took: time.Minute})
	}
}

// The pause grows if the breaker opens again soon, and then a single failure opens it.
func TestBreakerPausesLongerEachTime(t *testing.T) {
	t.Parallel()
	var b breaker
	now := time.Unix(0, 0)
	fail := func() (pause time.Duration, opens bool, failures int) {
		for !opens {
			failures++
			pause, opens = b.recordFailure(now)
		}
		return pause, opens, failures
	}
	for i, want := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
		pause, _, failures := fail()
		if pause != want*time.Second || i == 0 && failures != breakerFailures || i > 0 && failures != 1 {
			t.Fatalf("opening %d: %v after %d failures, want %v s", i, pause, failures, want)
		}
		now = now.Add(pause)
		b.allowTrial(now)
	}
	b.recordAnswer()
	now = now.Add(lastPause + time.Second)
	if pause, _, failures := fail(); pause != firstPause || failures != breakerFailures {
		t.Errorf("after a quiet time: %v after %d failures", pause, failures)
	}
}

func TestLatencyKnowsHowLongAnAnswerMayTake(t *testing.T) {
	t.Parallel()
	var p latency
	if p.timeout(1000) != 0 {
		t.Error("a server nothing is known of has a latency")
	}
	now := time.Unix(0, 0)
	for range 1000 { // 10 ms per token, 100 answers per second
		now = now.Add(10 * time.Millisecond)
		p.recordAnswer(1, 84, time.Second, now)
	}
	if got := p.timeout(984); got < 40*time.Second || got > 41*time.Second {
		t.Errorf("timeout for 984 tokens = %v, want 4 times the usual 10 s", got)
	}
	if got := p.timeout(0); got < 160*time.Second || got > 170*time.Second {
		t.Errorf("timeout for an answer without limit = %v, want that for 4096 tokens", got)
	}
	p.recordAnswer(1, 2000, 20*time.Second, now)
	if got := p.timeout(0); got < 300*time.Second {
		t.Errorf("timeout after an answer of 2000 tokens = %v, want that for four times as many", got)
	}
	if got := p.answersWithin(time.Second); got < 90 || got > 110 {
		t.Errorf("%d answers within a second, want about 100", got)
	}
}
