package actors

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/tokenize/prompt"
)

// A lane is the way of one job's rows through one engine.
type lane struct {
	job      string
	account  string
	priority int // 0 or 1
	group    int // texts per request; 1 unless the model embeds
	model    string

	counter  *prompt.Counter
	limit    int                                        // tokens a prompt may have; 0 for no limit
	truncate bool                                       // a prompt that has more is cut, else the job fails
	ask      func(context.Context, string) (int, error) // how many tokens a prompt has; nil where the server cannot say
	mute     atomic.Bool                                // it turned out that it cannot
	seen     atomic.Int64                               // answers

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

// run sends a request and puts its tasks, judged, into the outbox. usual says
// how long an answer of so many tokens may take, as far as it is known, 0 where
// it is not.
func (l *lane) run(r *request, usual func(tokens int) time.Duration) (how outcome) {
	if l.ctx.Err() != nil { // the job was stopped while its rows waited
		return how
	}
	began := time.Now()
	ctx, end, known := l.ctx, func() {}, usual(l.maxTokens)
	if known == 0 {
		ctx, end = l.supervised(r.tasks[0].overdue, usual)
	}
	if l.group > 1 {
		how = l.embed(ctx, r.tasks, known)
	} else {
		how = l.generate(ctx, r.tasks[0], known)
	}
	end()
	how.took = time.Since(began)
	l.metrics.seconds.Observe(how.took.Seconds())
	l.out.put(r.tasks...)
	return how
}

// wait is how long to wait for the answer to a task: longer after each time
// that was not long enough.
func (l *lane) wait(overdue int, usual time.Duration) time.Duration {
	if usual == 0 {
		return 0
	}
	return max(l.patience, usual) << min(overdue, 4)
}

// codeTimeout is the code of an engine.Error after a row's patience.
const codeTimeout = "timeout"

// errOverdue is why a supervised request was ended.
var errOverdue = errors.New("no complete answer, although the server has become known to be faster")

// supervised is for a request that is sent before it is known how fast the
// server is: once that is known, its time is up as well.
func (l *lane) supervised(overdue int, usual func(tokens int) time.Duration) (ctx context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(l.ctx)
	began := time.Now()
	go func() {
		look := time.NewTicker(l.patience)
		defer look.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case now := <-look.C:
				if enough := l.wait(overdue, usual(l.maxTokens)); enough > 0 && now.Sub(began) >= enough {
					cancel(errOverdue)
					return
				}
			}
		}
	}()
	return ctx, func() { cancel(nil) }
}

// blamed turns the error of a request that supervised has ended into a fault.
func blamed(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), errOverdue) {
		return &engine.Error{Class: engine.Moment, Code: codeTimeout, Message: errOverdue.Error()}
	}
	return err
}

func (l *lane) generate(ctx context.Context, t *task, usual time.Duration) (how outcome) {
	text, ok := l.fit(t, &how)
	if !ok {
		return how
	}
	reply, err := l.call.Generate(ctx, engine.Row{Text: []byte(text), Seed: l.seed(t), Patience: l.wait(t.overdue, usual)})
	if err = blamed(ctx, err); err != nil {
		l.failed(t, err, &how)
		return how
	}
	l.accepted(t, &reply)
	return outcome{answered: true, tokens: reply.OutputTokens, prompts: reply.InputTokens}
}

func (l *lane) embed(ctx context.Context, tasks []*task, usual time.Duration) (how outcome) {
	rows, sent := make([]engine.Row, 0, len(tasks)), make([]*task, 0, len(tasks))
	for _, t := range tasks {
		if text, ok := l.fit(t, &how); ok {
			rows, sent = append(rows, engine.Row{Text: []byte(text), Patience: l.wait(t.overdue, usual)}), append(sent, t)
		}
	}
	if len(sent) == 0 {
		return how
	}
	replies, faults, err := l.call.Embed(ctx, rows)
	err = blamed(ctx, err)
	for i, t := range sent {
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

// squeeze is by what percentage a prompt is cut further each time the server
// says that it is too long although we counted otherwise, and mostSqueezes how
// often that is tried.
const (
	squeeze      = 10
	mostSqueezes = 8
)

// fit returns the text to send: that of the row, cut where its prompt would
// not leave room for the answer and the job allows it. ok is false where the
// task has been judged instead.
func (l *lane) fit(t *task, how *outcome) (text string, ok bool) {
	if l.limit == 0 {
		return t.row.Text, true
	}
	limit := l.limit * (100 - squeeze*t.squeezed) / 100
	ask := l.ask
	if l.mute.Load() {
		ask = nil
	}
	text, fits, err := l.counter.Fit(l.ctx, t.row.Text, limit, ask)
	switch {
	case errors.Is(err, engine.ErrNoCounting):
		l.mute.Store(true)
		return l.fit(t, how)
	case err != nil:
		l.failed(t, err, how)
		return "", false
	case !fits:
		return "", l.tooLong(t, fmt.Sprintf("The prompt has more than %d tokens even without the row's text: system prompt and max_tokens leave no room in the context.", limit))
	}
	if t.squeezed > 0 && len(text) == len(t.row.Text) { // our count is far off: cut by length
		text = prompt.Beginning(text, len(text)*(100-squeeze*t.squeezed)/100)
	}
	if t.cut = len(text) < len(t.row.Text); t.cut && !l.truncate {
		return "", l.tooLong(t, fmt.Sprintf("The prompt has more than the %d tokens that max_tokens leaves of the context.", limit))
	}
	return text, true
}

// tooLong judges a task whose prompt does not fit. It returns false.
func (l *lane) tooLong(t *task, message string) bool {
	t.out, t.verdict = failed(rowmill.RowTooLong, message, "", t.attempts), final
	return false
}

// compareEvery is how many answers share one comparison of our count with the
// server's: counting again costs as much as counting did.
const compareEvery = 16

func (l *lane) accepted(t *task, reply *engine.Reply) {
	if l.seen.Add(1)%compareEvery == 1 && !t.cut {
		l.counter.Observe(t.row.Text, reply.InputTokens)
	}
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
		if fault.Code == codeTimeout {
			t.overdue++
		}
		if t.faults++; t.faults < maxFaults {
			t.verdict = unblamed
			return
		}
		t.out, t.verdict = failed(rowmill.RowAttemptsUsedUp,
			"The connection to the engine broke on every attempt: "+fault.Message, "", t.attempts+t.faults), final
		return
	}
	if fault.TooLong && l.truncate && l.limit > 0 && t.squeezed < mostSqueezes {
		t.squeezed++
		t.verdict = unblamed
		return
	}
	t.attempts++
	if fault.Status == 500 {
		t.crashes++
	}
	t.out, t.verdict = l.judge.refuse(fault, t.attempts, t.crashes)
	t.out.Engine = l.engine
	if fault.Class == engine.JobFault {
		t.out, t.verdict = failed(rowmill.CodeEngineError, fault.Message, "", t.attempts), final
	}
	if t.verdict == again {
		l.metrics.retries.Inc()
	}
}

// countOn returns the question how many tokens a prompt has to the server
// behind call; nil where it has no answer.
func countOn(call engine.Call) func(context.Context, string) (int, error) {
	counter, ok := call.(engine.PromptCounter)
	if !ok {
		return nil
	}
	return func(ctx context.Context, text string) (int, error) {
		return counter.CountPrompt(ctx, engine.Row{Text: []byte(text)})
	}
}
