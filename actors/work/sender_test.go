package work

import (
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/dispatch"
)

// A line is the queue of a server that wants demand rows.
type line struct {
	demand, group int
	tasks         []*dispatch.RowTask
}

func (q *line) Demand() int                   { return q.demand }
func (q *line) RowsPerRequest() int           { return max(q.group, 1) }
func (q *line) CacheTokens() int64            { return 1000 }
func (q *line) Waiting() int                  { return len(q.tasks) }
func (q *line) Put(tasks []*dispatch.RowTask) { q.tasks = append(q.tasks, tasks...) }

func (q *line) Warnings() []string { return nil }

func (q *line) Withdraw() []*dispatch.RowTask {
	back := q.tasks
	q.tasks = nil
	return back
}

func someTasks(n int) []*dispatch.RowTask {
	rows := make([]rowmill.Row, n)
	for i := range rows {
		rows[i] = rowmill.Row{Index: int64(i), Text: strings.Repeat("x", 10)}
	}
	tasks, _ := dispatch.NewTasks(0, 0, rows)
	return tasks
}

// sender returns a sender with this many rows for the server a.
func sender(m *WorkerMemory, rows int, answer int64, a *line) *Sender {
	s := NewSender(m, int64(rows), answer)
	s.Open("a", a)
	s.Rows.Add(someTasks(rows))
	return s
}

func TestSenderFillsTheLeastBusyServers(t *testing.T) {
	t.Parallel()
	a, b := &line{demand: 30}, &line{demand: 10}
	s := sender(memory(1<<30), 100, 0, a)
	s.Open("b", b)
	if room := s.Room(); room != 40 {
		t.Errorf("room for %d rows, want 40", room)
	}
	if s.SendRows() {
		t.Error("a budget of a gigabyte is full")
	}
	if len(a.tasks) != 30 || len(b.tasks) != 10 || s.Sent() != 40 || s.Rows.Ready() != 60 {
		t.Errorf("%d and %d rows sent, %d in all, %d left", len(a.tasks), len(b.tasks), s.Sent(), s.Rows.Ready())
	}
	busy, idle := &line{demand: 10}, &line{demand: 30}
	few := sender(memory(1<<30), 8, 0, busy)
	few.Open("b", idle)
	if few.SendRows(); len(idle.tasks) != 8 {
		t.Errorf("%d of 8 rows went to the server with more room", len(idle.tasks))
	}
	if s.WantsRows(40) != true { // all rows are loaded ahead
		t.Error("no more rows wanted, although memory is free")
	}
}

// Rows that wait at a removed server are sent to other servers.
func TestSenderTakesBackWaitingRows(t *testing.T) {
	t.Parallel()
	m, a := memory(1<<30), &line{demand: 10}
	s := sender(m, 10, 100, a)
	s.SendRows()
	if m.held != 10*100 {
		t.Errorf("%d bytes held for 10 answers of 100 bytes", m.held)
	}
	running := a.tasks[:2]
	a.tasks = a.tasks[2:]
	s.Close("a")
	if s.HasServer("a") || s.Sent() != 2 || s.Rows.Ready() != 8 || m.held != 2*100 {
		t.Errorf("%d rows sent, %d ready, %d bytes held", s.Sent(), s.Rows.Ready(), m.held)
	}
	b := &line{demand: 10}
	s.Open("b", b)
	s.SendRows()
	if len(b.tasks) != 8 {
		t.Errorf("%d rows went to the other server", len(b.tasks))
	}
	for _, task := range running { // they come back although their server was removed
		s.MarkReturned(task)
		s.Retry(task, time.Now())
	}
	if s.Sent() != 8 || s.Rows.Ready() != 2 || m.held != 8*100 {
		t.Errorf("%d rows sent, %d ready, %d bytes held", s.Sent(), s.Rows.Ready(), m.held)
	}
	s.Withdraw()
	if s.Sent() != 0 || s.Rows.Ready() != 10 || m.held != 0 || s.Empty() {
		t.Errorf("%d rows sent, %d ready, %d bytes held", s.Sent(), s.Rows.Ready(), m.held)
	}
}

// With a full budget exactly one row may be sent, so that the job makes progress.
func TestSenderSendsOneRowWithAFullBudget(t *testing.T) {
	t.Parallel()
	a := &line{demand: 10}
	s := sender(memory(10), 10, 100, a)
	if !s.SendRows() || len(a.tasks) != 1 {
		t.Errorf("%d rows sent, want one and a word that memory is full", len(a.tasks))
	}
	if s.SendRows() || len(a.tasks) != 1 {
		t.Errorf("%d rows sent, want no more before there is room", len(a.tasks))
	}
	s.Resume()
	if !s.SendRows() || len(a.tasks) != 1 {
		t.Errorf("%d rows sent", len(a.tasks))
	}
}

// The room reserved for an answer follows the size of past answers.
func TestSenderLearnsHowLargeAnswersAre(t *testing.T) {
	t.Parallel()
	m, a := memory(1<<30), &line{demand: 1}
	s := sender(m, 1000, 0, a)
	for range 500 {
		s.SendRows()
		for _, task := range a.Withdraw() {
			task.Out.Text = strings.Repeat("y", 20<<10)
			s.MarkReturned(task)
			s.RecordAnswer(task)
			m.Free([]*dispatch.RowTask{task})
		}
	}
	if s.answer < 19<<10 {
		t.Errorf("%d bytes are set aside for answers of 20 KiB", s.answer)
	}
	if s.Sent() != 0 {
		t.Errorf("%d rows are sent after all came back", s.Sent())
	}
}

// Texts for embeddings are sent in groups; fewer rows are not worth a request.
func TestSenderWaitsForWholeGroups(t *testing.T) {
	t.Parallel()
	a := &line{demand: 7, group: 8}
	s := sender(memory(1<<30), 100, 0, a)
	if s.SendRows(); len(a.tasks) != 0 {
		t.Errorf("%d texts sent to a server that has room for 7", len(a.tasks))
	}
	a.demand = 20
	if s.SendRows(); len(a.tasks) < 16 {
		t.Errorf("%d texts sent to a server that has room for 20", len(a.tasks))
	}
}
