package dispatch

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
)

// A fragile server crashes when it reads the word POISON, and comes back after a
// restart.
type fragile struct {
	restart  time.Duration // 0: a second
	together bool          // it crashes only if two such rows run at once

	mu      sync.Mutex
	back    time.Time
	end     chan struct{} // closed at a crash
	crashes int
	alone   map[string]int // by text: crashes while the row was alone in flight
	struck  map[string]int // by text: crashes while the row was in flight
	running map[string]bool
}

func newFragile() *fragile {
	return &fragile{end: make(chan struct{}), alone: map[string]int{}, struck: map[string]int{}, running: map[string]bool{}}
}

func (f *fragile) down() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Now().Before(f.back)
}

func (f *fragile) answer(ctx context.Context, row engine.Row) (engine.Reply, error) {
	if err := f.run(ctx, string(row.Text)); err != nil {
		return engine.Reply{}, err
	}
	return answered("ok")
}

func (f *fragile) embed(rows []engine.Row) ([]engine.Reply, []*engine.Error, error) {
	texts := make([]string, len(rows))
	replies := make([]engine.Reply, len(rows))
	for i, row := range rows {
		texts[i], replies[i] = string(row.Text), engine.Reply{Embedding: []float32{1}, InputTokens: 2}
	}
	if err := f.run(context.Background(), texts...); err != nil {
		return nil, nil, err
	}
	return replies, make([]*engine.Error, len(rows)), nil
}

// run runs the texts of a request until they are done or the server crashes.
func (f *fragile) run(ctx context.Context, texts ...string) error {
	poisoned := slices.ContainsFunc(texts, poison)
	f.mu.Lock()
	if time.Now().Before(f.back) {
		f.mu.Unlock()
		return &engine.Error{Class: engine.Busy, Code: "unreachable", Message: "connection refused"}
	}
	end := f.end
	for _, text := range texts {
		f.running[text] = true
	}
	f.mu.Unlock()
	took := time.NewTimer(300 * time.Millisecond)
	defer took.Stop()
	if poisoned {
		took.Reset(100 * time.Millisecond)
	}
	broken := &engine.Error{Class: engine.Busy, ConnectionBroke: true, Code: "connection_broken", Message: "reset"}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-end:
		return broken
	case <-took.C:
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !poisoned || f.together && f.poisons() < 2 {
		for _, text := range texts {
			delete(f.running, text)
		}
		return nil
	}
	f.crash()
	return broken
}

func poison(text string) bool { return strings.Contains(text, "POISON") }

// poisons returns the number of running rows with the word.
func (f *fragile) poisons() (n int) {
	for text := range f.running {
		if poison(text) {
			n++
		}
	}
	return n
}

// crash ends the server and all its running rows.
func (f *fragile) crash() {
	f.crashes++
	for text := range f.running {
		f.struck[text]++
		if len(f.running) == 1 {
			f.alone[text]++
		}
	}
	f.running = make(map[string]bool)
	f.back = time.Now().Add(cmp.Or(f.restart, time.Second))
	close(f.end)
	f.end = make(chan struct{})
}

// judged sends a probe after each broken connection, as the server's actor does.
func (f *fragile) judged(ctx context.Context, d *Dispatcher) {
	probes := make(chan struct{}, 1)
	d.hooks.Suspect = func(error) {
		select {
		case probes <- struct{}{}:
		default:
		}
	}
	go func() {
		for {
			select {
			case <-probes:
			case <-ctx.Done():
				return
			}
			for again := true; again; {
				began := time.Now()
				time.Sleep(time.Millisecond)
				var crashed bool
				if crashed, again = d.ResolveCrash(began, f.down()); crashed {
					d.Pause()
					for f.down() {
						time.Sleep(100 * time.Millisecond)
					}
					d.ResetWindow(0)
					d.Resume()
				}
			}
		}
	}()
}

// drive runs rows to their end, as a worker does.
func (b *bench) drive(made []*RowTask) (took time.Duration) {
	began, rows := time.Now(), NewPendingRows(int64(len(made)))
	rows.Add(made)
	sent := 0
	for left := len(made); left > 0; {
		pause := rows.WakeDueRetries(time.Now())
		if n := min(rows.Ready(), b.queue.Demand()-sent); n > 0 {
			b.queue.Put(rows.Take(0, n, true))
			sent += n
		}
		if pause == 0 {
			pause = time.Minute
		}
		select {
		case <-b.news:
		case <-time.After(pause):
		}
		for _, t := range b.out.Take(nil) {
			sent--
			if t.Outcome == Final {
				left--
			} else {
				rows.Retry(t, time.Now())
			}
		}
	}
	return time.Since(began)
}

// textsOf returns texts that all differ, some with the word POISON.
func textsOf(rows int, poisoned ...int) []string {
	texts := make([]string, rows)
	for i := range texts {
		texts[i] = "row " + strconv.Itoa(i)
	}
	for _, i := range poisoned {
		texts[i] += " POISON"
	}
	return texts
}

// judgeRows verifies that a row with the word has failed after two crashes alone, and
// that each other row was answered without cost and was in flight at two crashes at
// most.
func (f *fragile) judgeRows(t *testing.T, made []*RowTask, texts []string) {
	t.Helper()
	for i, task := range made {
		switch text := texts[i]; {
		case poison(text) && !f.together:
			if task.Out.Err == nil || task.Out.Err.Code != rowmill.RowCrashesServer || f.alone[text] != mostCrashes {
				t.Errorf("%s: %+v after %d crashes alone", text, task.Out.Err, f.alone[text])
			}
		case task.Out.Failed() || task.Out.Attempts != 1:
			t.Errorf("%s: %+v after %d attempts, although it is innocent", text, task.Out.Err, task.Out.Attempts)
		case f.struck[text] > 2:
			t.Errorf("%s was in flight at %d crashes, want 2 at most", text, f.struck[text])
		}
	}
}

// A row that crashes the server fails after two crashes alone, and no other row fails.
func TestQueue_RowsThatCrashTheServer(t *testing.T) {
	for name, c := range map[string]struct {
		rows    int
		poison  []int
		group   int // texts in a request for embeddings; 0: rows to generate
		crashes int // at most
		change  func(*fragile)
	}{
		"one of 40":         {rows: 40, poison: []int{20}, crashes: 4}, // the case poison-row-crashes
		"the first":         {rows: 40, poison: []int{0}, crashes: 4},
		"alone":             {rows: 1, poison: []int{0}, crashes: 2},
		"two of 40":         {rows: 40, poison: []int{3, 30}, crashes: 8},
		"two beside":        {rows: 40, poison: []int{20, 21}, crashes: 7},
		"one of a thousand": {rows: 1000, poison: []int{500}, crashes: 4},
		// ggml-org/llama.cpp 12597: a grammar crashes the server; it loads its model for
		// a minute.
		"a slow restart": {rows: 40, poison: []int{20}, crashes: 4, change: func(f *fragile) { f.restart = time.Minute }},
		// vllm-project/vllm 43473: two requests at once crash the server, one alone does
		// not.
		"two at once": {rows: 40, poison: []int{20, 21}, crashes: 2, change: func(f *fragile) { f.together = true }},
		// ggml-org/llama.cpp 13689 and 12836: a text to embed crashes the server
		// together with its group.
		"a text to embed":       {rows: 40, poison: []int{21}, group: 4, crashes: 5},
		"two texts to embed":    {rows: 40, poison: []int{5, 30}, group: 4, crashes: 9},
		"two texts of a group":  {rows: 40, poison: []int{20, 21}, group: 4, crashes: 8},
		"the only group":        {rows: 4, poison: []int{1}, group: 4, crashes: 4},
		"texts in large groups": {rows: 600, poison: []int{300}, group: 32, crashes: 5},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFragile()
				if c.change != nil {
					c.change(f)
				}
				b := newBench(t, &scripted{answer: f.answer, embed: f.embed}, embedding(c.group))
				f.judged(t.Context(), b.disp)
				texts := textsOf(c.rows, c.poison...)
				made := tasksOf(texts, plain)
				took := b.drive(made)
				time.Sleep(2 * time.Minute) // the server is back
				f.judgeRows(t, made, texts)
				if f.crashes > c.crashes {
					t.Errorf("%d crashes, want %d at most", f.crashes, c.crashes)
				}
				t.Logf("%d crashes, %v", f.crashes, took)
			})
		})
	}
}

// embedding makes a job embed its texts, in groups of this size; 0 leaves the job as it
// is.
func embedding(group int) func(*Job) {
	return func(j *Job) {
		if group > 0 {
			j.Spec.Model.Kind, j.Group = rowmill.KindEmbedding, group
		}
	}
}

// A row of an account that crashes the server costs the rows of another account nothing
// (vllm-project/vllm 43920: one caller's grammar crashes the engine for all callers).
func TestQueue_RowsThatCrashTheServerOfAnotherAccount(t *testing.T) {
	for name, c := range map[string]struct {
		poison        []int // of the first account's rows
		rows, group   int   // of the second account's
		innocentFirst bool
	}{
		"one row":                {poison: []int{20}, rows: 40},
		"two rows":               {poison: []int{3, 30}, rows: 40},
		"beside texts to embed":  {poison: []int{20}, rows: 40, group: 4},
		"beside a single row":    {poison: []int{20}, rows: 1},
		"many innocent rows":     {poison: []int{20}, rows: 400},
		"the innocent are first": {poison: []int{0}, rows: 40, innocentFirst: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFragile()
				s := &scripted{answer: f.answer, embed: f.embed}
				guilty := newBench(t, s)
				innocent := guilty.beside(s, "b", embedding(c.group))
				f.judged(t.Context(), guilty.disp)
				texts, others := textsOf(40, c.poison...), textsOf(c.rows)
				for i := range others {
					others[i] = "other " + others[i]
				}
				rows, beside := tasksOf(texts, plain), tasksOf(others, plain)
				var both sync.WaitGroup
				if c.innocentFirst {
					both.Go(func() { innocent.drive(beside) })
					synctest.Wait()
					both.Go(func() { guilty.drive(rows) })
				} else {
					both.Go(func() { guilty.drive(rows) })
					both.Go(func() { innocent.drive(beside) })
				}
				both.Wait()
				time.Sleep(2 * time.Second) // the server is back
				f.judgeRows(t, rows, texts)
				f.judgeRows(t, beside, others)
				if most := 4 * len(c.poison); f.crashes > most {
					t.Errorf("%d crashes, want %d at most", f.crashes, most)
				}
			})
		})
	}
}

// A busy server costs rows no attempt, whatever it answers, and is asked again at the
// time that it names.
func TestQueue_BusyServers(t *testing.T) {
	for name, refusal := range map[string]engine.Error{
		"as it asks":   {Class: engine.Busy, Status: 429, Overloaded: true, RetryAfter: 7 * time.Second, Message: "later"},
		"says nothing": {Class: engine.Busy, Status: 503, Overloaded: true, Message: "loading"},
		"a gateway":    {Class: engine.Busy, Status: 502, Message: "bad gateway"},
		"unreachable":  {Class: engine.Busy, Code: "unreachable", Message: "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var asked atomic.Int64
				from := time.Now().Add(3 * time.Minute)
				b := newBench(t, &scripted{answer: func(context.Context, engine.Row) (engine.Reply, error) {
					if time.Now().Before(from) {
						asked.Add(1)
						return engine.Reply{}, new(refusal)
					}
					time.Sleep(50 * time.Millisecond)
					return answered("ok")
				}})
				b.rest()
				took := b.driveAll(t, tasksOf(textsOf(60), plain))
				if took > 4*time.Minute {
					t.Errorf("it took %v, a minute longer than the server was busy", took)
				}
				if asked.Load() > 400 {
					t.Errorf("it was asked %d times in three minutes", asked.Load())
				}
				t.Logf("asked %d times, %v", asked.Load(), took)
			})
		})
	}
}

// A server that takes ten rows in five seconds, and says when it takes more, loses no
// row (the case rate-limit-retry-after; oumi-ai/oumi 2516, langfuse/langfuse 2802).
func TestQueue_RateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const every, most = 5 * time.Second, 10
		var mu sync.Mutex
		var from time.Time
		taken, refused := 0, 0
		b := newBench(t, &scripted{answer: func(context.Context, engine.Row) (engine.Reply, error) {
			mu.Lock()
			if time.Since(from) >= every {
				from, taken = time.Now(), 0
			}
			if taken++; taken > most {
				refused++
				left := every - time.Since(from)
				mu.Unlock()
				return engine.Reply{}, &engine.Error{Class: engine.Busy, Status: 429, Overloaded: true, RetryAfter: left, Message: "later"}
			}
			mu.Unlock()
			time.Sleep(50 * time.Millisecond)
			return answered("ok")
		}})
		b.rest()
		took := b.driveAll(t, tasksOf(textsOf(60), plain))
		if took > 2*every*60/most {
			t.Errorf("it took %v, and the limit allows the rows in %v", took, every*60/most)
		}
		if refused > 60 {
			t.Errorf("it refused %d times", refused)
		}
		t.Logf("%v, refused %d times", took, refused)
	})
}

// driveAll runs rows, which must all be answered by their first attempt.
func (b *bench) driveAll(t *testing.T, made []*RowTask) (took time.Duration) {
	t.Helper()
	took = b.drive(made)
	for _, task := range made {
		if task.Out.Failed() || task.Out.Attempts != 1 {
			t.Fatalf("%s: %+v after %d attempts", task.Row.Text, task.Out.Err, task.Out.Attempts)
		}
	}
	return took
}

// rest lets routes rest for the pause that the dispatcher sets, as the server's actor
// does.
func (b *bench) rest() {
	b.disp.hooks.Opened = func(r engine.Route, pause time.Duration, _ error) {
		time.AfterFunc(pause, func() { b.disp.Try(r) })
	}
}

// A row that is always refused fails after the maximum wait. Its job fails only if the
// server answers no other row.
func TestQueue_BusyForTooLong(t *testing.T) {
	for name, c := range map[string]struct {
		others bool
		code   string
	}{
		"all rows": {false, rowmill.CodeModelUnavailable},
		"one row":  {true, rowmill.RowAttemptsUsedUp},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, &scripted{answer: func(_ context.Context, row engine.Row) (engine.Reply, error) {
					if string(row.Text) == "refused" {
						return engine.Reply{}, &engine.Error{Class: engine.Busy, Status: 429, Overloaded: true, Message: "later"}
					}
					time.Sleep(time.Minute)
					return answered("ok")
				}})
				b.disp.cfg.Wait = 10 * time.Minute
				b.rest()
				texts := []string{"refused"}
				for range 600 {
					if c.others {
						texts = append(texts, "another")
					}
				}
				made := tasksOf(texts, plain)
				began := time.Now()
				b.drive(made)
				if err := made[0].Out.Err; err == nil || err.Code != c.code {
					t.Errorf("%+v, want %s", err, c.code)
				}
				if took := time.Since(began); !c.others && (took < 10*time.Minute || took > 11*time.Minute) {
					t.Errorf("it failed after %v", took)
				}
			})
		})
	}
}
