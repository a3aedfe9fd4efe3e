package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
)

func TestQueue_AnswersComeBack(t *testing.T) {
	t.Parallel()
	s := server(func(row engine.Row) (engine.Reply, error) { return answered("re: " + string(row.Text)) })
	b := newBench(t, s)
	texts := make([]string, 500)
	for i := range texts {
		texts[i] = strings.Repeat("x", i)
	}
	back := b.run(tasksOf(texts, plain))
	seen := make(map[int]bool)
	for _, task := range back {
		if seen[task.Rel] || task.Outcome != Final || task.Out.Text != "re: "+texts[task.Rel] || task.Out.Engine != "e" || task.Out.Attempts != 1 || task.Out.Tries != nil || task.attemptLog != nil {
			t.Fatalf("row %d came back as %+v with attempts %+v", task.Rel, task.Out, task.attemptLog)
		}
		seen[task.Rel] = true
	}
	b.disp.Close() // after its requests
	if limit, inFlight, queued := b.disp.Load(); limit == 0 || inFlight+queued != 0 {
		t.Errorf("limit %d, %d in flight and %d queued of nothing", limit, inFlight, queued)
	}
	if slices.ContainsFunc(s.sent, func(r engine.Row) bool { return r.Seed != nil }) {
		t.Error("a seed was sent without a request for it")
	}
}

func TestQueue_UnsupportedParameters(t *testing.T) {
	t.Parallel()
	b := newBench(t, &scripted{})
	if got := b.queue.Warnings(); len(got) != 1 {
		t.Errorf("warnings = %v", got)
	}
	if _, err := b.disp.Open(b.job, &scripted{prepareErr: errUnsupported}, b.out); !errors.Is(err, errUnsupported) {
		t.Errorf("error = %v, want the server's", err)
	}
}

func TestQueue_GroupsTextsToEmbed(t *testing.T) {
	t.Parallel()
	s := &scripted{embed: func(rows []engine.Row) ([]engine.Reply, []*engine.Error, error) {
		if len(rows) > 4 {
			t.Errorf("%d texts in a request", len(rows))
		}
		replies, faults := make([]engine.Reply, len(rows)), make([]*engine.Error, len(rows))
		for i, row := range rows {
			replies[i] = engine.Reply{Embedding: []float32{float32(len(row.Text))}, InputTokens: 2}
			if string(row.Text) == "bad" {
				faults[i] = &engine.Error{Class: engine.RowFault, Status: 400, Message: "no"}
			}
		}
		return replies, faults, nil
	}}
	b := newBench(t, s, func(j *Job) { j.Spec.Model.Kind = rowmill.KindEmbedding })
	if got := b.queue.Demand(); got < 16 || b.queue.RowsPerRequest() != 4 {
		t.Errorf("demand %d in groups of %d, want several groups", got, b.queue.RowsPerRequest())
	}
	for _, task := range b.run(tasksOf([]string{"a", "bb", "bad", "dddd", "eeeee", "f"}, plain)) {
		bad := task.Row.Text == "bad"
		if task.Outcome != Final || task.Out.Failed() != bad || !bad && task.Out.Embedding[0] != float32(len(task.Row.Text)) {
			t.Errorf("%q → %+v", task.Row.Text, task.Out)
		}
	}
	// If the server does not count tokens, our own count is used.
	s.embed = func(rows []engine.Row) ([]engine.Reply, []*engine.Error, error) {
		return []engine.Reply{{Embedding: []float32{1}}}, make([]*engine.Error, len(rows)), nil
	}
	for _, task := range b.run(tasksOf([]string{"a few words"}, plain)) {
		if want := int64(b.job.Counter.Count("a few words")); want == 0 || task.Out.InputTokens != want {
			t.Errorf("%d tokens, want %d", task.Out.InputTokens, want)
		}
	}
	s.embed = func([]engine.Row) ([]engine.Reply, []*engine.Error, error) { return nil, nil, lost() }
	for _, task := range b.run(tasksOf([]string{"a", "b"}, plain)) {
		if task.Outcome != NotCounted {
			t.Errorf("a lost request: %v", task.Outcome)
		}
	}
}

// The effects of an error on the row, the server and the job.
func TestQueue_ErrorsOfServers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err     engine.Error
		times   int
		outcome Outcome
		code    string
		suspect bool
	}{
		"busy":                   {engine.Error{Class: engine.Transient, Status: 429, Overloaded: true}, 1, Again, "", false},
		"busy every time":        {engine.Error{Class: engine.Transient, Status: 429, Overloaded: true}, 3, Final, rowmill.RowAttemptsUsedUp, false},
		"crashes":                {engine.Error{Class: engine.Transient, Status: 500}, 2, Again, "", false},
		"lost":                   {engine.Error{Class: engine.Transient}, 9, NotCounted, "", true},
		"lost every time":        {engine.Error{Class: engine.Transient}, 10, Final, rowmill.RowAttemptsUsedUp, true},
		"server down":            {engine.Error{Class: engine.ServerFault, Status: 404}, 1, NotCounted, "", true},
		"rejected":               {engine.Error{Class: engine.RowFault, Status: 400}, 1, Final, rowmill.RowRejected, false},
		"schema the server lost": {engine.Error{Class: engine.JobFault, Status: 400}, 1, Final, rowmill.CodeEngineError, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, refuses(c.err))
			var suspected atomic.Bool
			b.disp.hooks.Suspect = func(error) { suspected.Store(true) }
			row := tasks(1, 10)[0]
			for range c.times {
				b.once(row)
			}
			if tries := row.attemptLog; len(tries.Attempts)+tries.Omitted != c.times || tries.Attempts[0].Status != c.err.Status {
				t.Errorf("attempts %+v after %d", tries, c.times)
			}
			if (row.Out.Tries != nil) != (c.outcome == Final) {
				t.Errorf("the output has attempts: %v", row.Out.Tries)
			}
			if isFailed(t, row, c.code); row.Outcome != c.outcome {
				t.Errorf("outcome %v, want %v", row.Outcome, c.outcome)
			}
			if suspected.Load() != c.suspect {
				t.Errorf("the server is suspected: %v", suspected.Load())
			}
		})
	}
}

// A row that needed more than one attempt keeps the result of each attempt.
func TestQueue_KeepsAttempts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		script := []func() (engine.Reply, error){
			func() (engine.Reply, error) {
				return engine.Reply{}, &engine.Error{Class: engine.Transient, Status: 503, Code: "busy", Message: "too much to do"}
			},
			func() (engine.Reply, error) {
				return engine.Reply{}, &engine.Error{Class: engine.Transient, Code: codeTimeout, Message: strings.Repeat("ä", 1000)}
			},
			func() (engine.Reply, error) { return answered("no object") },
			func() (engine.Reply, error) { return answered(`{"n": 1}`) },
		}
		turn := 0
		b := newBench(t, &scripted{answer: func(context.Context, engine.Row) (engine.Reply, error) {
			time.Sleep(time.Duration(turn+1) * time.Second)
			turn++
			return script[turn-1]()
		}}, func(j *Job) { j.Spec.Schema = json.RawMessage(objectSchema) })
		row, start := tasks(1, 10)[0], time.Now().UTC()
		for i, held := range []Outcome{Again, NotCounted, Again, Final} {
			if b.once(row); row.Outcome != held || held != Final && row.Out.Tries != nil || held != Final && row.OutputBytes() != 0 {
				t.Fatalf("attempt %d: outcome %v with %+v, want %v", i, row.Outcome, row.Out, held)
			}
		}
		want := []rowmill.Attempt{
			{Took: time.Second, Status: 503, Code: "busy", Message: "too much to do"},
			{Took: 2 * time.Second, Code: codeTimeout, Message: strings.Repeat("ä", maxTryMessage/2) + "…"},
			{Took: 3 * time.Second, Code: rowmill.RowSchemaViolation, Message: "The answer is not JSON from its beginning on; perhaps the server ignores json_schema"},
			{Took: 4 * time.Second},
		}
		for i := range want {
			want[i].At, want[i].Node, want[i].Engine = start, "n", "e"
			start = start.Add(want[i].Took)
		}
		if diff := cmp.Diff(&rowmill.RowAttempts{Attempts: want}, row.Out.Tries); diff != "" || row.Out.Attempts != 3 || row.Out.Seconds != 4 {
			t.Errorf("%d attempts count, the last took %v s (-want +got):\n%s", row.Out.Attempts, row.Out.Seconds, diff)
		}
		held, tries := row.OutputBytes(), row.Out.Tries.Bytes()
		row.Out.Tries = nil
		if tries == 0 || held != row.OutputBytes()+tries {
			t.Errorf("attempts of %d bytes in an output of %d", tries, held)
		}
	})
}

func TestQueue_WaitsAsLongAsTheServerAsks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, refuses(engine.Error{Class: engine.Transient, Status: 503, RetryAfter: time.Hour}))
		rows := NewPendingRows(1)
		rows.Retry(b.once(tasks(1, 10)[0]), time.Now())
		if got := rows.WakeDueRetries(time.Now()); got != time.Hour {
			t.Errorf("wait = %v, want the wait that the server asked for", got)
		}
		b.disp.Close()
	})
}

func TestQueue_ABreachOfTheSchemaGetsAnotherSeed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		perRow   bool
		sampling map[string]any
		seeds    []bool // for each attempt: whether it has its own seed
	}{
		"as the engine likes": {false, map[string]any{"temperature": 0.7}, []bool{false, true, true}},
		"per row":             {true, map[string]any{"temperature": 0.7}, []bool{true, true, true}},
		"deterministic":       {false, map[string]any{"temperature": 0.0}, []bool{false}}, // another attempt would get the same answer
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := answers(`"no number"`)
			b := newBench(t, s, func(j *Job) {
				j.Spec.Schema, j.Spec.SeedPerRow, j.Spec.Sampling = json.RawMessage(`{"type":"number"}`), c.perRow, c.sampling
			})
			row := tasks(1, 10)[0]
			for b.once(row).Outcome == Again {
				continue
			}
			if !row.Out.Failed() || row.Out.Err.Code != rowmill.RowSchemaViolation || len(s.sent) != len(c.seeds) {
				t.Fatalf("after %d attempts: %+v", len(s.sent), row.Out)
			}
			seen := make(map[int64]bool)
			for i, sent := range s.sent {
				if (sent.Seed != nil) != c.seeds[i] {
					t.Fatalf("attempt %d has seed %v", i+1, sent.Seed)
				}
				if sent.Seed != nil && seen[*sent.Seed] {
					t.Errorf("attempt %d repeats a seed", i+1)
				} else if sent.Seed != nil {
					seen[*sent.Seed] = true
				}
			}
		})
	}
}

func TestQueue_NothingIsSentForAJobThatWasStopped(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	waits := make(chan struct{})
	s := &scripted{answer: func(ctx context.Context, _ engine.Row) (engine.Reply, error) {
		close(waits)
		<-ctx.Done()
		return engine.Reply{}, ctx.Err()
	}}
	b := newBench(t, s, func(j *Job) { j.Ctx = ctx })
	b.queue.Put(tasks(1, 10))
	<-waits
	cancel()
	if got := b.wait(1)[0]; got.Outcome != NotCounted {
		t.Errorf("the row in flight: %v", got.Outcome)
	}
	b.queue.Put(tasks(20, 10))
	b.disp.Close()
	if len(s.sent) != 1 {
		t.Errorf("%d requests, want that from before the end", len(s.sent))
	}
}

// Rows that are too long are cut if the job allows it, by as much as the server asks
// for.
func TestQueue_LongRows(t *testing.T) {
	t.Parallel()
	const limit = 50
	long := strings.Repeat("word", 100) // 100 tokens by our count
	for name, c := range map[string]struct {
		truncate bool
		takes    int  // bytes that the server accepts
		tells    bool // the server's refusals contain its count of tokens
		code     string
		cut      bool
	}{
		"cut":                       {true, 4 * 50, false, "", true},
		"not to be cut":             {false, 4 * 50, false, rowmill.RowTooLong, false},
		"cut further":               {true, 4 * 35, false, "", true},
		"cut as far as it goes":     {true, 4, false, rowmill.RowTooLong, true},
		"cut by the server's count": {true, 4, true, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &scripted{answer: func(_ context.Context, row engine.Row) (engine.Reply, error) {
				if len(row.Text) > c.takes {
					e := &engine.Error{Class: engine.RowFault, Status: 400, TooLong: true}
					if c.tells {
						e.Prompt = len(row.Text) * limit / c.takes
					}
					return engine.Reply{}, e
				}
				return answered("ok")
			}}
			b := newBench(t, s, func(j *Job) { j.PromptLimit, j.Spec.TruncateRows = limit, c.truncate })
			row := tasksOf([]string{long}, plain)[0]
			for b.once(row).Outcome != Final {
				if len(s.sent) > mostShortenings {
					t.Fatal("the row is sent again and again")
				}
			}
			isFailed(t, row, c.code)
			if c.code == "" && (row.Cut != c.cut || row.Row.Text != long) {
				t.Errorf("cut = %v, and the row keeps %d bytes", row.Cut, len(row.Row.Text))
			}
			if !c.truncate && len(s.sent) != 1 {
				t.Errorf("a row that may be too long was sent %d times", len(s.sent))
			}
		})
	}
}

// A server with an unknown context size reports it when it refuses a row. Rows are then
// cut to that size, and no further.
func TestQueue_LearnsTheContextFromRefusals(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("word", 100) // 100 tokens by our count
	for name, c := range map[string]struct {
		context  int
		truncate bool
		code     string
	}{
		"known":          {60, true, ""},
		"known, not cut": {60, false, rowmill.RowTooLong},
		"unknown":        {0, true, ""}, // cut by percentages
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var limit int
			s := &scripted{answer: func(_ context.Context, row engine.Row) (engine.Reply, error) {
				if len(row.Text) > 4*limit {
					return engine.Reply{}, &engine.Error{Class: engine.RowFault, Status: 400, TooLong: true, Context: c.context}
				}
				return answered("ok")
			}}
			b := newBench(t, s, func(j *Job) {
				j.PromptLimit, j.Spec.TruncateRows = 0, c.truncate
				j.Spec.Sampling = map[string]any{"max_tokens": int64(9)}
				limit = j.Spec.PromptLimit(60)
			})
			for _, row := range tasksOf([]string{long, long + long}, plain) {
				for b.once(row).Outcome != Final {
					if len(s.sent) > 4 && c.context > 0 || len(s.sent) > 2*mostShortenings {
						t.Fatal("rows are sent again and again")
					}
				}
				if isFailed(t, row, c.code); row.Cut != (c.code == "") {
					t.Errorf("cut: %v", row.Cut)
				}
			}
			if sent := s.sent[len(s.sent)-1].Text; c.code == "" && c.context > 0 && (len(s.sent) != 3 || len(sent) != 4*limit) {
				t.Errorf("%d rows were sent, the last of %d bytes, want 3 and %d", len(s.sent), len(sent), 4*limit)
			}
		})
	}
}

// counting is a server that counts prompts, or fails to do so.
type counting struct {
	*scripted
	count func(text string) (int, error)
	asked atomic.Int64
}

func (c *counting) Prepare(engine.JobParams) (engine.PreparedCall, error) { return c, nil }

func (c *counting) CountPrompt(_ context.Context, row engine.Row) (int, error) {
	c.asked.Add(1)
	return c.count(string(row.Text))
}

// If counting fails, rows still run: our own count is used if the server has none, and
// the server is not blamed.
func TestQueue_TheServerCounts(t *testing.T) {
	t.Parallel()
	refused := func(text string) (int, error) { // beyond a context that only the server knows
		if len(text) > 60 {
			return 0, &engine.Error{Class: engine.RowFault, Status: 400, TooLong: true}
		}
		return len(text), nil
	}
	answer := func(n int, err error) func(string) (int, error) { return func(string) (int, error) { return n, err } }
	const often = 3 // or more
	for name, c := range map[string]struct {
		count       func(string) (int, error)
		asked       int  // how often the server is asked to count; often is 3 to 39 times
		keeps       bool // truncate_rows is false
		code        string
		least, most int // bytes of a sent row
	}{
		"a token a byte":            {func(text string) (int, error) { return len(text), nil }, often, false, "", 50, 50},
		"not at all":                {answer(0, engine.ErrNoCounting), 1, false, "", 200, 200},
		"not at all, none is cut":   {answer(0, engine.ErrNoCounting), 1, true, "", 400, 400},
		"but cuts, none is cut":     {answer(0, engine.ErrCutsPrompts), 1, true, rowmill.RowTooLong, 0, 0},
		"but cuts":                  {answer(0, engine.ErrCutsPrompts), 1, false, "", 200, 200},
		"always too much":           {func(text string) (int, error) { return 1000 + len(text), nil }, often, false, rowmill.RowTooLong, 0, 0},
		"it refuses long ones":      {refused, often, false, "", 41, 50},
		"it refuses, none is cut":   {refused, often, true, rowmill.RowTooLong, 0, 0},
		"it is gone":                {answer(0, lost()), 2, false, "", 200, 200},
		"it is gone, none is cut":   {answer(0, lost()), 2, true, "", 400, 400},
		"it is gated":               {answer(0, gated()), 2, false, "", 200, 200},
		"it cannot read just these": {answer(0, &engine.Error{Class: engine.RowFault, Status: 400}), 2, true, "", 400, 400},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &counting{count: c.count, scripted: answers("ok")}
			b := newBench(t, s.scripted, func(j *Job) { j.PromptLimit, j.Spec.TruncateRows = 50, !c.keeps })
			b.disp.hooks.Suspect = func(err error) { t.Errorf("the server is suspected for %v", err) }
			var err error
			if b.queue, err = b.disp.Open(b.job, s, b.out); err != nil {
				t.Fatal(err)
			}
			for _, row := range tasks(2, 400) {
				if b.once(row).Outcome != Final {
					t.Fatalf("the row comes back as %v", row.Outcome)
				}
				if isFailed(t, row, c.code); c.code == "" && row.Cut == c.keeps {
					t.Errorf("cut = %v", row.Cut)
				}
			}
			if n := int(s.asked.Load()); c.asked < often && n != c.asked || c.asked == often && (n < often || n >= 40) {
				t.Errorf("the server was asked %d times", n)
			}
			if (len(s.sent) > 0) != (c.most > 0) {
				t.Errorf("%d rows were sent", len(s.sent))
			}
			for _, sent := range s.sent {
				if len(sent.Text) < c.least || len(sent.Text) > c.most {
					t.Errorf("%d bytes were sent", len(sent.Text))
				}
			}
		})
	}
}

// A hanging request ends once the server's speed is known. Later requests end after a
// timeout that grows.
func TestQueue_RequestsThatHang(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hang := true
		s := &scripted{}
		s.answer = func(ctx context.Context, row engine.Row) (engine.Reply, error) {
			if !hang || string(row.Text) != "hangs" {
				time.Sleep(time.Second)
				return answered("ok")
			}
			if row.Timeout == 0 {
				<-ctx.Done()
				return engine.Reply{}, ctx.Err()
			}
			time.Sleep(row.Timeout)
			return engine.Reply{}, &engine.Error{Class: engine.Transient, Code: codeTimeout, Message: "no answer"}
		}
		b := newBench(t, s, func(j *Job) { j.MaxTokens = 100 })
		defer b.disp.Close()
		began := time.Now()
		both := b.run(tasksOf([]string{"hangs", "answers"}, plain))
		hung := both[slices.IndexFunc(both, func(t *RowTask) bool { return t.Row.Text == "hangs" })]
		if hung.Outcome != NotCounted || time.Since(began) > 2*time.Minute {
			t.Fatalf("the first request ended as %v after %v", hung.Outcome, time.Since(began))
		}
		last := time.Duration(0)
		for range 3 {
			began := time.Now()
			if b.once(hung); hung.Outcome != NotCounted || time.Since(began) < max(time.Minute, 2*last) {
				t.Fatalf("%v after %v, want without blame after a time that doubles", hung.Outcome, time.Since(began))
			}
			last = time.Since(began)
		}
		hang = false
		if b.once(hung); hung.Outcome != Final || hung.Out.Attempts != 1 {
			t.Errorf("outcome %v after %d attempts, want an answer at the first that counts", hung.Outcome, hung.Out.Attempts)
		}
	})
}

// Pausing gives back the waiting rows, and lets rows at the server finish.
func TestDispatcher_PauseGivesBackWaitingRows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		b := newBench(t, &scripted{answer: func(context.Context, engine.Row) (engine.Reply, error) {
			<-release
			return answered("late")
		}})
		b.disp.ResetWindow(4)
		b.queue.Put(tasks(50, 10))
		synctest.Wait()
		limit, inFlight, queued := b.disp.Load()
		if inFlight != limit || queued != 50-limit {
			t.Fatalf("%d in flight and %d queued with a window of %d", inFlight, queued, limit)
		}
		b.disp.Pause()
		back := b.wait(50 - limit)
		for _, task := range back {
			if task.Outcome != NotCounted {
				t.Errorf("row %d: %v", task.Rel, task.Outcome)
			}
		}
		b.queue.Put(back)
		close(release)
		for _, task := range b.wait(limit) {
			if task.Outcome != Final || task.Out.Text != "late" {
				t.Errorf("row %d in flight: %v", task.Rel, task.Outcome)
			}
		}
		if got := b.queue.Withdraw(); len(got) != len(back) {
			t.Errorf("%d rows withdrawn, want the %d that came while it was paused", len(got), len(back))
		}
		b.disp.Close()
	})
}

// A goroutine that finds no room reports that the window is full, once between two
// readings of the gauges.
func TestDispatcher_SaysThatItsWindowIsFull(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, filled := testDispatcher(), 0
		d.SetHooks(Hooks{Filled: func() { filled++ }})
		d.Resume()
		limit, _, _ := d.Load()
		d.inFlight = limit
		d.put(&Queue{priority: 1, group: 1}, tasks(10, 10))
		for range 2 {
			d.workers++
			d.done.Add(1)
			go d.runRequests()
		}
		synctest.Wait()
		if filled != 1 {
			t.Errorf("%d messages say that the window is full", filled)
		}
		if next := d.NextReading(); next <= 0 || next > 5*time.Second {
			t.Errorf("next reading in %v", next)
		}
		d.Close()
	})
}

// A worker that sends its next rows when a row comes back must find the row's slot free.
func TestRowsComeBackAfterTheirSlots(t *testing.T) {
	t.Parallel()
	b := newBench(t, server(func(engine.Row) (engine.Reply, error) { return answered("x") }))
	var flying []int
	b.out.Notify = func() {
		b.disp.mu.Lock()
		flying = append(flying, b.disp.inFlight)
		b.disp.mu.Unlock()
		b.news <- struct{}{}
	}
	for range 20 {
		b.once(tasks(1, 10)[0])
	}
	if slices.Max(flying) != 0 {
		t.Errorf("rows in flight at each notice: %v, want none", flying)
	}
}
