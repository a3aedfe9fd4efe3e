package dispatch

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
)

// In any order, freeing tasks gives back exactly the memory that they used.
func TestTasksGiveBackTheirMemory(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var rows []rowmill.Row
		for i := range rapid.IntRange(1, 20).Draw(t, "rows") {
			rows = append(rows, rowmill.Row{Index: int64(100 + 2*i), Text: rapid.String().Draw(t, "text")})
		}
		made, held := NewTasks(7, 100, rows)
		for i, task := range made {
			if task.Shard != 7 || task.Rel != 2*i {
				t.Fatalf("task %d is row %d of shard %d", i, task.Rel, task.Shard)
			}
			held -= task.RowBytes()
		}
		if held != 0 {
			t.Fatalf("the tasks hold %d bytes less than is said", held)
		}
		for _, task := range made {
			held += task.RowBytes()
			switch rapid.IntRange(0, 2).Draw(t, "output") {
			case 0:
				task.Out = rowmill.RowOutput{Text: rapid.String().Draw(t, "answer")}
			case 1:
				task.Out = rowmill.RowOutput{Embedding: make([]float32, 8)}
			default:
				task.Out = failedOutput("code", "message", "raw", 1)
			}
			held += task.OutputBytes()
		}
		for _, task := range rapid.Permutation(made).Draw(t, "order") {
			held -= task.Free()
			if task.Row.Text != "" || task.Out.Text != "" {
				t.Fatal("a freed task keeps its texts")
			}
		}
		if held != 0 {
			t.Fatalf("%d bytes were never given back", held)
		}
	})
}

func TestOutboxNotifiesOnceForManyTasks(t *testing.T) {
	t.Parallel()
	told := 0
	out := &Completions{Notify: func() { told++ }}
	out.put(true)
	first := tasks(3, 10)
	out.put(true, first[0])
	out.put(true, first[1:]...)
	if told != 1 {
		t.Fatalf("told %d times", told)
	}
	spare := make([]*RowTask, 0, 8)
	if got := out.Take(spare); len(got) != 3 {
		t.Fatalf("%d tasks", len(got))
	}
	out.put(true, first[0])
	if got := out.Take(nil); told != 2 || len(got) != 1 || &got[:1][0] != &spare[:1][0] {
		t.Errorf("told %d times of %d tasks, in a slice of its own", told, len(got))
	}
}

func TestOutboxGathers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var told []time.Duration
		began := time.Now()
		out := &Completions{Notify: func() { told = append(told, time.Since(began)) }}
		expect := func(when string, want ...time.Duration) {
			t.Helper()
			synctest.Wait()
			if !slices.Equal(told, want) {
				t.Fatalf("%s: told after %v, want %v", when, told, want)
			}
		}
		all := tasks(2*gatherTasks, 10)
		for _, task := range all[:gatherTasks-1] {
			out.put(false, task)
		}
		expect("before there are enough")
		out.put(false, all[gatherTasks-1])
		expect("with the one that is enough", 0)
		time.Sleep(2 * gatherTime)
		expect("when nobody has come for them", 0)
		if n := len(out.Take(nil)); n != gatherTasks {
			t.Fatalf("%d tasks", n)
		}

		out.put(false, all[gatherTasks])
		time.Sleep(gatherTime / 2)
		out.put(false, all[gatherTasks+1])
		time.Sleep(gatherTime)
		expect("when the first has waited for long enough", 0, 3*gatherTime)
		out.Take(nil)

		out.put(false, all[gatherTasks+2])
		out.put(true, all[gatherTasks+3])
		soon := time.Since(began)
		expect("when the worker is needed", 0, 3*gatherTime, soon)
		out.Take(nil)
		time.Sleep(2 * gatherTime)
		expect("when there is nothing", 0, 3*gatherTime, soon)
	})
}

// The engine learns how often servers have answered a row with HTTP 500, because a
// parameter that it adds to the request may be the cause. Other failures do not count.
func TestQueue_PassesFailuresToTheEngine(t *testing.T) {
	t.Parallel()
	statuses := []int{503, 500}
	s := &scripted{}
	s.answer = func(context.Context, engine.Row) (engine.Reply, error) {
		if try := len(s.sent); try <= len(statuses) {
			return engine.Reply{}, &engine.Error{Class: engine.Transient, Status: statuses[try-1]}
		}
		return answered("fine")
	}
	b := newBench(t, s)
	row := tasks(1, 10)[0]
	for range 3 {
		if b.once(row).Outcome == Final {
			break
		}
	}
	var failures []int
	for _, r := range s.sent {
		failures = append(failures, r.Failures)
	}
	if want := []int{0, 0, 1}; !slices.Equal(failures, want) || row.Out.Failed() {
		t.Errorf("failures sent: %v, want %v; the row: %+v", failures, want, row.Out.Err)
	}
}
