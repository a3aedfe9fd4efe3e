package actors

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"github.com/rowmill/rowmill"
)

// testDispatcher is paused, so that tests pick by hand.
func testDispatcher() *dispatcher {
	return newDispatcher(0, newMetrics(prometheus.NewRegistry()).engine("e"))
}

func tasks(n, size int) []*task {
	text := string(make([]byte, size))
	ts := make([]*task, n)
	for i := range ts {
		ts[i] = &task{rel: i, row: rowmill.Row{Text: text}}
	}
	return ts
}

func (d *dispatcher) pickOne(t testing.TB) *lane {
	t.Helper()
	var r request
	if !d.pick(&r) {
		t.Fatal("nothing to pick")
	}
	return r.lane
}

func TestDispatcherServesPriority0First(t *testing.T) {
	t.Parallel()
	d := testDispatcher()
	late := &lane{account: "a", priority: 1, group: 1}
	first := &lane{account: "b", priority: 0, group: 1}
	d.put(late, tasks(3, 10))
	d.put(first, tasks(2, 10))
	for i, want := range []*lane{first, first, late, late, late} {
		if got := d.pickOne(t); got != want {
			t.Fatalf("pick %d is of priority %d", i, got.priority)
		}
	}
}

func TestDispatcherSharesBetweenAccountsByBytes(t *testing.T) {
	t.Parallel()
	d := testDispatcher()
	long := &lane{account: "long rows", group: 1}
	short := &lane{account: "short rows", group: 1}
	other := &lane{account: "short rows", group: 1} // a second job gets no second share
	d.put(long, tasks(1000, 4000))
	d.put(short, tasks(5000, 100))
	d.put(other, tasks(5000, 100))
	bytes := make(map[string]int)
	jobs := make(map[*lane]int)
	for range 2000 {
		var r request
		d.pick(&r)
		bytes[r.lane.account] += len(r.tasks[0].row.Text) + rowCost
		jobs[r.lane]++
	}
	if a, b := bytes["long rows"], bytes["short rows"]; float64(a) > 1.1*float64(b) || float64(b) > 1.1*float64(a) {
		t.Errorf("bytes sent: %v, want equal shares", bytes)
	}
	if a, b := jobs[short], jobs[other]; a-b > 1 || b-a > 1 {
		t.Errorf("rows of the two jobs of one account: %d and %d, want equal", a, b)
	}
}

func TestDispatcherGroupsTextsToEmbed(t *testing.T) {
	t.Parallel()
	d := testDispatcher()
	l := &lane{group: 32}
	d.put(l, tasks(40, 10))
	var r request
	for _, want := range []int{32, 8} {
		if !d.pick(&r) || len(r.tasks) != want {
			t.Fatalf("group of %d, want %d", len(r.tasks), want)
		}
	}
}

// Whatever is put, withdrawn, paused and picked, every task comes out once.
func TestDispatcherLosesNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := testDispatcher()
		lanes := make([]*lane, 6)
		for i := range lanes {
			lanes[i] = &lane{account: fmt.Sprint(i % 3), priority: i % 2, group: 1 + i/4*2}
		}
		in, out := 0, 0
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			l := lanes[rapid.IntRange(0, len(lanes)-1).Draw(t, "lane")]
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0:
				out += len(d.withdraw(l))
			case 1:
				for _, back := range d.pause() {
					out += len(back)
				}
			case 2, 3, 4:
				n := rapid.IntRange(0, 5).Draw(t, "n")
				in += n
				d.put(l, tasks(n, rapid.IntRange(0, 40_000).Draw(t, "size")))
			default:
				var r request
				if d.pick(&r) {
					out += len(r.tasks)
					d.queued -= len(r.tasks)
				}
			}
			if d.queued != in-out {
				t.Fatalf("%d queued, want %d", d.queued, in-out)
			}
		}
		for _, back := range d.pause() {
			out += len(back)
		}
		if in != out || d.queued != 0 {
			t.Fatalf("%d tasks in, %d out, %d queued", in, out, d.queued)
		}
	})
}

// Answers say that a server lives, refusals and broken connections do not.
func TestDispatcherKnowsALivingServer(t *testing.T) {
	t.Parallel()
	d := testDispatcher()
	began := time.Now()
	d.finish(1, outcome{})
	d.finish(1, outcome{overloaded: true})
	if d.alive(began) {
		t.Error("alive without an answer")
	}
	d.finish(1, outcome{answered: true})
	if !d.alive(began) || d.alive(time.Now().Add(time.Minute)) {
		t.Error("an answer counts for the time after which it came")
	}
}
