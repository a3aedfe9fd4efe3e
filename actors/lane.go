package actors

import (
	"context"
	"errors"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
)

// A lane is the way of one job's rows through one engine.
type lane struct {
	job      string
	account  string
	priority int // 0 or 1
	group    int // texts per request; 1 unless the model embeds
	model    string
	seed     func(*task) *int64 // nil seed: the engine's own
	call     engine.Call
	engine   string // its name, kept with each output
	judge    *judge
	out      *outbox
	ctx      context.Context // the job's, on this node
	suspect  func(error)     // tells the engine actor that its server looks dead
	metrics  *engineMetrics

	queue []*task // waiting; owned by the dispatcher
}

// run sends a request and puts its tasks, judged, into the outbox. It reports
// whether the server refused because it is overloaded.
func (l *lane) run(r *request) (overloaded bool) {
	if l.ctx.Err() != nil { // the job was stopped while its rows waited
		return false
	}
	began := time.Now()
	if l.group > 1 {
		overloaded = l.embed(r.tasks)
	} else {
		overloaded = l.generate(r.tasks[0])
	}
	l.metrics.seconds.Observe(time.Since(began).Seconds())
	l.out.put(r.tasks...)
	return overloaded
}

func (l *lane) generate(t *task) (overloaded bool) {
	reply, err := l.call.Generate(l.ctx, engine.Row{Text: []byte(t.row.Text), Seed: l.seed(t)})
	if err != nil {
		return l.failed(t, err)
	}
	l.accepted(t, &reply)
	return false
}

func (l *lane) embed(tasks []*task) (overloaded bool) {
	rows := make([]engine.Row, len(tasks))
	for i, t := range tasks {
		rows[i].Text = []byte(t.row.Text)
	}
	replies, faults, err := l.call.Embed(l.ctx, rows)
	for i, t := range tasks {
		switch {
		case err != nil:
			overloaded = l.failed(t, err) || overloaded
		case faults[i] != nil:
			l.failed(t, faults[i])
		default:
			l.accepted(t, &replies[i])
		}
	}
	return overloaded
}

func (l *lane) accepted(t *task, reply *engine.Reply) {
	t.attempts++
	t.out, t.verdict = l.judge.accept(reply, t.attempts)
	t.out.Engine = l.engine
	if t.verdict == again { // the only reason to turn an answer down
		t.breaches++
		l.metrics.retries.Inc()
	}
}

func (l *lane) failed(t *task, err error) (overloaded bool) {
	var fault *engine.Error
	if !errors.As(err, &fault) { // the job was stopped
		t.verdict = unblamed
		return false
	}
	t.due = time.Now().Add(fault.RetryAfter)
	if fault.Status == 0 || fault.Class == engine.ServerFault {
		l.suspect(fault)
		if t.faults++; t.faults < maxFaults {
			t.verdict = unblamed
			return false
		}
		t.out, t.verdict = failed(rowmill.RowAttemptsUsedUp,
			"The connection to the engine broke on every attempt: "+fault.Message, "", t.attempts+t.faults), final
		return false
	}
	t.attempts++
	t.out, t.verdict = l.judge.refuse(fault, t.attempts)
	t.out.Engine = l.engine
	if fault.Class == engine.JobFault {
		t.out, t.verdict = failed(rowmill.CodeEngineError, fault.Message, "", t.attempts), final
	}
	if t.verdict == again {
		l.metrics.retries.Inc()
	}
	return fault.Overloaded
}
