package dispatch

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/tokenize/prompt"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testDispatcher returns a paused dispatcher: the tests pick rows themselves.
func testDispatcher() *Dispatcher {
	d := New(Config{Engine: "e", Node: "n", RowTimeout: time.Minute, Metrics: Metrics{
		InFlight: prometheus.NewGauge(prometheus.GaugeOpts{Name: "in_flight", Help: "Rows."}),
		Seconds:  prometheus.NewHistogram(prometheus.HistogramOpts{Name: "seconds", Help: "Seconds."}),
		Retries:  prometheus.NewCounter(prometheus.CounterOpts{Name: "retries_total", Help: "Retries."}),
	}})
	d.SetHooks(Hooks{Opened: func(engine.Route, time.Duration, error) {}, Filled: func() {}, Suspect: func(error) {}, Panicked: func(error) {}})
	return d
}

// tasks returns n rows of a shard, each with this many bytes.
func tasks(n, size int) []*RowTask {
	return tasksOf(make([]string, n), func(string) string { return string(make([]byte, size)) })
}

func tasksOf(texts []string, text func(string) string) []*RowTask {
	rows := make([]rowmill.Row, len(texts))
	for i := range rows {
		rows[i] = rowmill.Row{Index: int64(i), Text: text(texts[i])}
	}
	made, _ := NewTasks(0, 0, rows)
	for _, t := range made {
		t.expect = int64(len(t.Row.Text))
	}
	return made
}

func plain(text string) string { return text }

// A scripted server answers from a function, and keeps the rows that it received.
type scripted struct {
	engine.Engine // for methods that the test does not use
	answer        func(ctx context.Context, row engine.Row) (engine.Reply, error)
	embed         func(rows []engine.Row) ([]engine.Reply, []*engine.Error, error)
	prepareErr    error

	mu   sync.Mutex
	sent []engine.Row
}

func (s *scripted) Prepare(engine.JobParams) (engine.PreparedCall, error) { return s, s.prepareErr }

func (s *scripted) Warnings() []string { return []string{"top_k is ignored"} }

func (s *scripted) keep(rows ...engine.Row) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = append(s.sent, rows...)
}

func (s *scripted) Generate(ctx context.Context, row engine.Row) (engine.Reply, error) {
	s.keep(row)
	return s.answer(ctx, row)
}

func (s *scripted) Embed(_ context.Context, rows []engine.Row) ([]engine.Reply, []*engine.Error, error) {
	s.keep(rows...)
	return s.embed(rows)
}

// server returns a server that answers each row from a function.
func server(answer func(row engine.Row) (engine.Reply, error)) *scripted {
	return &scripted{answer: func(_ context.Context, row engine.Row) (engine.Reply, error) { return answer(row) }}
}

// answers returns a server that answers each row with this text.
func answers(text string) *scripted {
	return server(func(engine.Row) (engine.Reply, error) { return answered(text) })
}

// refuses returns a server that answers each row with this error.
func refuses(err engine.Error) *scripted {
	return server(func(engine.Row) (engine.Reply, error) { return engine.Reply{}, &err })
}

// isFailed verifies that a task has failed with this code, or has not failed if code is
// empty.
func isFailed(t testing.TB, task *RowTask, code string) {
	t.Helper()
	if task.Out.Failed() != (code != "") || task.Out.Failed() && task.Out.Err.Code != code {
		t.Errorf("outcome %v, output %+v %+v, want code %q", task.Outcome, task.Out, task.Out.Err, code)
	}
}

func answered(text string) (engine.Reply, error) {
	return engine.Reply{Content: text, Finish: rowmill.FinishStop, InputTokens: 3, OutputTokens: 2}, nil
}

// A bench is one job in front of a server.
type bench struct {
	t     testing.TB
	disp  *Dispatcher
	job   Job
	out   *Completions
	queue *Queue
	news  chan struct{}
}

func newBench(t testing.TB, s *scripted, change ...func(*Job)) *bench {
	t.Helper()
	b := &bench{t: t, disp: testDispatcher()}
	b.open(s, "a", change...)
	b.disp.hooks.Opened = func(r engine.Route, _ time.Duration, _ error) { go b.disp.Try(r) }
	b.disp.Resume()
	t.Cleanup(b.disp.Close)
	return b
}

// beside opens a job of another account at the same server.
func (b *bench) beside(s *scripted, account string, change ...func(*Job)) *bench {
	b.t.Helper()
	other := &bench{t: b.t, disp: b.disp}
	other.open(s, account, change...)
	return other
}

// open opens the job's queue.
func (b *bench) open(s *scripted, account string, change ...func(*Job)) {
	t := b.t
	t.Helper()
	b.news = make(chan struct{}, 1000)
	b.job = Job{Ctx: t.Context(), Spec: &rowmill.Spec{Model: rowmill.Model{ID: "m", Kind: rowmill.KindGeneration}, Account: account, Priority: 1}, Group: 4}
	for _, f := range change {
		f(&b.job)
	}
	var err error
	if b.job.Classifier, err = NewClassifier(b.job.Spec, 3); err != nil {
		t.Fatal(err)
	}
	counters := prompt.NewCounterFactory(func(rowmill.Model) (prompt.Tokenizer, string, error) { return nil, "", nil }, func(string, float64) {}, slog.New(slog.DiscardHandler))
	if b.job.Counter, err = counters.NewCounter(&rowmill.Spec{Model: rowmill.Model{ID: "m", Template: "none"}}); err != nil {
		t.Fatal(err)
	}
	b.out = &Completions{Notify: func() { b.news <- struct{}{} }}
	if b.queue, err = b.disp.Open(b.job, s, b.out); err != nil {
		t.Fatal(err)
	}
}

// run sends tasks and returns them when all have come back.
func (b *bench) run(sent []*RowTask) []*RowTask {
	b.t.Helper()
	b.queue.Put(sent)
	return b.wait(len(sent))
}

// once sends a single task.
func (b *bench) once(t *RowTask) *RowTask {
	b.t.Helper()
	return b.run([]*RowTask{t})[0]
}

func (b *bench) wait(n int) (back []*RowTask) {
	b.t.Helper()
	for len(back) < n {
		<-b.news
		back = append(back, b.out.Take(nil)...)
	}
	return back
}

// lost returns the error of a broken connection.
func lost() error { return &engine.Error{Class: engine.Transient, Message: "connection reset"} }

// gated returns the refusal of a path that is disabled.
func gated() error {
	return &engine.Error{Class: engine.ServerFault, Status: 403, Message: "switched off"}
}

var errUnsupported = errors.New("parameter min_p is not supported")
