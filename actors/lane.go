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

	maxTokens int                // of an answer, at most
	patience  time.Duration      // the least a request is waited for
	seed      func(*task) *int64 // nil seed: the engine's own
	call      engine.Call
	engine    string // its name, kept with each output
	judge     *judge
	out       *outbox
	ctx       context.Context // the job's, on this node
	suspect   func(error)     // tells the engine actor that its server looks dead
	metrics   *engineMetrics

	queue []*task // waiting; owned by the dispatcher
}

// An outcome is what a request says about its server.
type outcome struct {
	answered   bool          // it works
	took       time.Duration // if so
	tokens     int64         // if so: of the answer
	prompts    int64         // if so: tokens of the prompts
	overloaded bool          // it refused because it has too much to do
	err        error         // it failed: the connection broke, or a status of 500 and above
}

// run sends a request and puts its tasks, judged, into the outbox. usual is
// how long the server may take as far as it is known, 0 where it is not.
func (l *lane) run(r *request, usual time.Duration) (how outcome) {
	if l.ctx.Err() != nil { // the job was stopped while its rows waited
		return how
	}
	began := time.Now()
	if l.group > 1 {
		how = l.embed(r.tasks, usual)
	} else {
		how = l.generate(r.tasks[0], usual)
	}
	how.took = time.Since(began)
	l.metrics.seconds.Observe(how.took.Seconds())
	l.out.put(r.tasks...)
	return how
}

// wait is how long to wait for the answer to a task: longer after each time
// that was not long enough.
func (l *lane) wait(t *task, usual time.Duration) time.Duration {
	if usual == 0 {
		return 0
	}
	return max(l.patience, usual) << min(t.faults, 4)
}

func (l *lane) generate(t *task, usual time.Duration) (how outcome) {
	reply, err := l.call.Generate(l.ctx, engine.Row{Text: []byte(t.row.Text), Seed: l.seed(t), Patience: l.wait(t, usual)})
	if err != nil {
		l.failed(t, err, &how)
		return how
	}
	l.accepted(t, &reply)
	return outcome{answered: true, tokens: reply.OutputTokens, prompts: reply.InputTokens}
}

func (l *lane) embed(tasks []*task, usual time.Duration) (how outcome) {
	rows := make([]engine.Row, len(tasks))
	for i, t := range tasks {
		rows[i] = engine.Row{Text: []byte(t.row.Text), Patience: l.wait(t, usual)}
	}
	replies, faults, err := l.call.Embed(l.ctx, rows)
	for i, t := range tasks {
		switch {
		case err != nil:
			l.failed(t, err, &how)
		case faults[i] != nil:
			l.failed(t, faults[i], &how)
		default:
			l.accepted(t, &replies[i])
			how.answered = true
			how.prompts += replies[i].InputTokens
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

// failed judges a task that got no answer and notes what that says about the
// server.
func (l *lane) failed(t *task, err error, how *outcome) {
	var fault *engine.Error
	if !errors.As(err, &fault) { // the job was stopped
		t.verdict = unblamed
		return
	}
	how.overloaded = how.overloaded || fault.Overloaded
	if fault.Class == engine.ServerFault || fault.Class == engine.Moment && (fault.Status == 0 || fault.Status >= 500) {
		how.err = fault
	}
	t.due = time.Now().Add(fault.RetryAfter)
	if fault.Status == 0 || fault.Class == engine.ServerFault {
		l.suspect(fault)
		if t.faults++; t.faults < maxFaults {
			t.verdict = unblamed
			return
		}
		t.out, t.verdict = failed(rowmill.RowAttemptsUsedUp,
			"The connection to the engine broke on every attempt: "+fault.Message, "", t.attempts+t.faults), final
		return
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
}
