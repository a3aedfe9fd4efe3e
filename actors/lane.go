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

// An outcome is what a request says about its server.
type outcome struct {
	answered   bool // it works
	overloaded bool // it refused because it has too much to do
}

// run sends a request and puts its tasks, judged, into the outbox.
func (l *lane) run(r *request) (how outcome) {
	if l.ctx.Err() != nil { // the job was stopped while its rows waited
		return how
	}
	began := time.Now()
	if l.group > 1 {
		how = l.embed(r.tasks)
	} else {
		how = l.generate(r.tasks[0])
	}
	l.metrics.seconds.Observe(time.Since(began).Seconds())
	l.out.put(r.tasks...)
	return how
}

func (l *lane) generate(t *task) outcome {
	reply, err := l.call.Generate(l.ctx, engine.Row{Text: []byte(t.row.Text), Seed: l.seed(t)})
	if err != nil {
		return outcome{overloaded: l.failed(t, err)}
	}
	l.accepted(t, &reply)
	return outcome{answered: true}
}

func (l *lane) embed(tasks []*task) (how outcome) {
	rows := make([]engine.Row, len(tasks))
	for i, t := range tasks {
		rows[i].Text = []byte(t.row.Text)
	}
	replies, faults, err := l.call.Embed(l.ctx, rows)
	for i, t := range tasks {
		switch {
		case err != nil:
			how.overloaded = l.failed(t, err) || how.overloaded
		case faults[i] != nil:
			l.failed(t, faults[i])
		default:
			l.accepted(t, &replies[i])
			how.answered = true
		}
	}
	return how
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
