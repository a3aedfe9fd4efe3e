package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
	"unsafe"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/internal/contain"
	"github.com/rowmill/rowmill/internal/spelling"
	"github.com/rowmill/rowmill/internal/tracing"
	"github.com/rowmill/rowmill/tokenize/prompt"
)

// evidence is the information about the server that a request has given.
type evidence struct {
	answered   bool          // the server works
	took       time.Duration // if answered: the time of the request
	tokens     int64         // if answered: tokens of the answer
	prompts    int64         // if answered: tokens of the prompts
	overloaded bool          // the server refused because it has too much to do
	busy       bool          // the server refused for its own reason, not because of the row
	first      bool          // if busy: the row was not refused before since the server's last answer
	asked      time.Duration // if busy: the pause that the server asks for; 0 if it does not say
	broken     []broken      // rows with broken connections: a probe must find the reason
	trial      bool          // the request tried a route after a rest
	err        error         // the request failed: server busy, connection broken, or status 500 and above
}

// run sends a request and puts its tasks, with their outcomes, into the outbox.
func (q *Queue) run(r *request) (seen evidence) {
	if q.job.Ctx.Err() != nil { // the job stopped while its rows waited
		return seen
	}
	began := time.Now()
	ctx, end, usual := q.job.Ctx, func() {}, q.disp.timeout(q.job.MaxTokens)
	if usual == 0 {
		ctx, end = q.supervised(r.tasks[0].overdue)
	}
	var span *tracing.Span
	if q.job.Trace != nil {
		span = q.traced(r.tasks)
	}
	err := contain.Run(func() error {
		if q.job.Spec.Model.Kind == rowmill.KindEmbedding {
			seen = q.embed(ctx, r.tasks, usual, began, span.Traceparent())
		} else {
			seen = q.generate(ctx, r.tasks[0], usual, began, span.Traceparent())
		}
		return nil
	})
	end()
	if err != nil {
		seen = q.broke(r.tasks, err, began)
	}
	seen.took = time.Since(began)
	span.Observe(q.disp.cfg.Metrics.Seconds, seen.took.Seconds())
	if span != nil {
		conclude(span, r.tasks, &seen, began)
	}
	back := r.tasks
	if len(seen.broken) > 0 {
		back = slices.DeleteFunc(slices.Clone(back), func(t *Task) bool {
			return slices.ContainsFunc(seen.broken, func(b broken) bool { return b.task == t })
		})
	}
	q.out.put(q.low(), back...)
	return seen
}

// broke fails tasks that made our own code panic on the row or the answer: they would do
// so again.
func (q *Queue) broke(tasks []*Task, err error, began time.Time) evidence {
	q.disp.hooks.Panicked(err)
	for _, t := range tasks {
		t.Out, t.Outcome = failed(rowmill.RowInternal, "The service met a fault of its own when it ran the row. The log of the node says which.", "", t.attempts+1), Final
		t.tried(q.ended(t.Out.Err.Code, t.Out.Err.Message), began)
	}
	return evidence{}
}

// wait returns how long to wait for the answer to a task: longer after each timeout of
// the task.
func (q *Queue) wait(overdue int, usual time.Duration) time.Duration {
	if usual == 0 {
		return 0
	}
	return max(q.disp.cfg.RowTimeout, usual) << min(overdue, 4)
}

// codeTimeout is the code of an engine.Error after a timeout of a row.
const codeTimeout = "timeout"

// errOverdue is the reason why supervised ended a request.
var errOverdue = errors.New("no complete answer, although the server has become known to be faster")

// supervised returns a context for a request that is sent before the server's speed is
// known. Once it is known, the timeout applies to this request too.
func (q *Queue) supervised(overdue int) (ctx context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(q.job.Ctx)
	began := time.Now()
	go func() {
		look := time.NewTicker(q.disp.cfg.RowTimeout)
		defer look.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case now := <-look.C:
				if enough := q.wait(overdue, q.disp.timeout(q.job.MaxTokens)); enough > 0 && now.Sub(began) >= enough {
					cancel(errOverdue)
					return
				}
			}
		}
	}()
	return ctx, func() { cancel(nil) }
}

// blamed replaces the error of a request that supervised has ended by a timeout.
func blamed(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), errOverdue) {
		return &engine.Error{Class: engine.Moment, Code: codeTimeout, Message: errOverdue.Error()}
	}
	return err
}

// bytesOf returns the bytes of a text without a copy. They must not be changed: an
// engine only reads the text of a row and does not keep it. A copy would be half of a
// row's allocations.
func bytesOf(text string) []byte { return unsafe.Slice(unsafe.StringData(text), len(text)) }

func (q *Queue) generate(ctx context.Context, t *Task, usual time.Duration, began time.Time, traceparent string) (seen evidence) {
	text, ok := q.fit(t)
	if !ok {
		return seen
	}
	reply, err := q.call.Generate(ctx, engine.Row{Text: bytesOf(text), Seed: q.seed(t), Patience: q.wait(t.overdue, usual), Failures: t.crashes, Traceparent: traceparent})
	if err = blamed(ctx, err); err != nil {
		q.failed(t, err, &seen, began)
		return seen
	}
	q.accepted(t, &reply, text, began)
	return evidence{answered: true, tokens: reply.OutputTokens, prompts: reply.InputTokens}
}

func (q *Queue) embed(ctx context.Context, tasks []*Task, usual time.Duration, began time.Time, traceparent string) (seen evidence) {
	rows, texts, sent := make([]engine.Row, 0, len(tasks)), make([]string, 0, len(tasks)), make([]*Task, 0, len(tasks))
	for _, t := range tasks {
		if text, ok := q.fit(t); ok {
			rows = append(rows, engine.Row{Text: bytesOf(text), Patience: q.wait(t.overdue, usual), Traceparent: traceparent})
			texts, sent = append(texts, text), append(sent, t)
		}
	}
	if len(sent) == 0 {
		return seen
	}
	replies, faults, err := q.call.Embed(ctx, rows)
	err = blamed(ctx, err)
	for i, t := range sent {
		switch {
		case err != nil:
			q.failed(t, err, &seen, began)
		case faults[i] != nil:
			q.failed(t, faults[i], &seen, began)
		default:
			q.accepted(t, &replies[i], texts[i], began)
			seen.answered = true
			seen.prompts += replies[i].InputTokens
		}
	}
	return seen
}

// squeeze is the percentage by which a prompt is cut further each time the server
// refuses it as too long although it fits by our count. mostSqueezes is the number of
// such attempts. blindly is the percentage if no limit is known.
const (
	squeeze      = 10
	blindly      = 40
	mostSqueezes = 8
)

// squeeze shortens the text of the next attempt after the server refused the prompt as
// too long. prompt is the server's count of its tokens and limit the server's limit;
// each is 0 if unknown.
func (t *Task) squeeze(prompt, limit int) {
	first := t.squeezed == 0 && t.unlimited
	switch {
	case limit > 0 && prompt > limit:
		t.most = t.sent * limit / prompt
	case limit == 0:
		t.most = t.sent * (100 - blindly) / 100
	default:
		t.most = t.most * (100 - squeeze) / 100
	}
	if !first || limit == 0 {
		t.squeezed++
	}
}

// fit returns the text to send: the row's text, cut if the prompt would not leave room
// for the answer and the job allows cuts. If the server does not count and our count may
// differ from the server's, fit may cut the text but fails no row: the server's answer
// decides, unless the server would cut the prompt itself. If ok is false, the task has
// failed or its job has stopped.
func (q *Queue) fit(t *Task) (text string, ok bool) {
	limit := q.promptLimit() * (100 - squeeze*t.squeezed) / 100
	t.sent = len(t.Row.Text)
	if t.unlimited = limit == 0; t.unlimited {
		text = t.Row.Text
		if t.most > 0 {
			text = prompt.Beginning(text, t.most)
		}
		t.sent, t.Cut = len(text), len(text) < len(t.Row.Text)
		return text, true
	}
	ask := q.ask
	if q.mute.Load() {
		ask = nil
	}
	text, fits, err := q.job.Counter.Fit(q.job.Ctx, t.Row.Text, limit, ask)
	doubt := err != nil || ask == nil && !q.cuts.Load() && !q.job.Counter.Exact(t.Row.Text)
	switch {
	case err == nil:
	case q.job.Ctx.Err() != nil: // the job stopped
		t.Outcome = Unblamed
		return "", false
	case errors.Is(err, engine.ErrNoCounting):
		q.cuts.Store(errors.Is(err, engine.ErrCutsPrompts))
		q.mute.Store(true)
		return q.fit(t)
	default:
		text, fits, _ = q.job.Counter.Fit(q.job.Ctx, t.Row.Text, limit, nil) // without a server Fit returns no error
	}
	if !fits && !doubt {
		return "", q.tooLong(t, fmt.Sprintf("The prompt has more than %d tokens even without the row's text: system prompt and max_tokens leave no room in the context.", limit))
	}
	switch {
	case t.most > 0:
		text = prompt.Beginning(text, t.most)
	case t.squeezed > 0 && len(text) == len(t.Row.Text): // our count is far from the server's: cut by length
		text = prompt.Beginning(text, len(text)*(100-squeeze*t.squeezed)/100)
	}
	t.Cut = len(text) < len(t.Row.Text)
	switch {
	case doubt && (!fits || t.Cut && !q.job.Spec.TruncateRows):
		t.Cut = false
		return t.Row.Text, true
	case t.Cut && !q.job.Spec.TruncateRows:
		return "", q.tooLong(t, fmt.Sprintf("The prompt has more than the %d tokens that max_tokens leaves of the context.", limit))
	}
	t.sent = len(text)
	return text, true
}

// tooLong fails a task whose prompt does not fit. It returns false.
func (q *Queue) tooLong(t *Task, message string) bool {
	t.Out, t.Outcome = failed(rowmill.RowTooLong, message, "", t.attempts), Final
	return false
}

// seed returns the seed to send with a row; nil for the engine's own. A row has its own
// seed if the client asked for this, and after an answer broke the schema, so that the
// next answer differs.
func (q *Queue) seed(t *Task) *int64 {
	if !q.job.Spec.SeedPerRow && (t.breaches == 0 || q.job.Classifier.deterministic) {
		return nil
	}
	s := rowSeed(q.job.Spec.Seed, t.Row.Index, t.breaches)
	return &s
}

// One in compareEvery answers is used to compare our token count with the server's, and
// one in compareAtFirst of the first compareFirst answers. Counting a text that is not
// in the processor's caches takes as long as three whole rows.
const (
	compareEvery   = 1024
	compareFirst   = 1024
	compareAtFirst = 16
)

// compares reports whether the answer with this number, from 1, is compared.
func compares(n int64) bool {
	return n%compareEvery == 1 || n <= compareFirst && n%compareAtFirst == 1
}

// maxTryMessage limits the message of an attempt in bytes: servers write a line or two.
// The error of a failed row has the full last message.
const maxTryMessage = 240

// ended returns the record of an attempt at this server.
func (q *Queue) ended(code, message string) rowmill.Attempt {
	return rowmill.Attempt{Node: q.disp.cfg.Node, Engine: q.disp.cfg.Engine, Code: code, Message: spelling.Shorten(message, maxTryMessage)}
}

func (q *Queue) accepted(t *Task, reply *engine.Reply, text string, began time.Time) {
	switch {
	case reply.InputTokens == 0: // the server does not count tokens
		reply.InputTokens = int64(q.job.Counter.Count(text))
	case q.job.Spec.Raw != nil: // the server counts more than this text
	case compares(q.seen.Add(1)) && !t.Cut:
		q.job.Counter.Observe(t.Row.Text, reply.InputTokens)
	}
	if reply.OutputTokens == 0 && reply.Content != "" {
		reply.OutputTokens = int64(max(1, q.job.Counter.Count(reply.Content)-q.job.Counter.Count("")))
	}
	t.attempts++
	t.apart = 0
	came := len(reply.Content)
	t.Out, t.Outcome = q.job.Classifier.accept(q.job.Ctx, reply, t.attempts)
	t.Out.Engine = q.disp.cfg.Engine
	switch turnedDown := t.Out.Err; {
	case turnedDown != nil:
		t.tried(q.ended(turnedDown.Code, turnedDown.Message), began)
	case t.Outcome == Final && len(reply.Content) < came:
		q.repaired.Store(true)
		t.tried(q.ended(rowmill.RowRepaired, fmt.Sprintf("the JSON was taken out of an answer of %d bytes", came)), began)
	case t.tries != nil && t.Outcome == Final:
		t.tried(q.ended("", ""), began)
	}
	if t.Outcome == Again { // accept returns Again only after it rejected an answer
		t.Out = rowmill.Output{} // no memory is reserved for this output
		t.breaches++
		q.disp.cfg.Metrics.Retries.Inc()
	}
}

// failed decides the outcome of a task without an answer, and adds to the evidence about
// the server.
func (q *Queue) failed(t *Task, err error, seen *evidence, began time.Time) {
	var fault *engine.Error
	if !errors.As(err, &fault) { // the job stopped
		t.Outcome = Unblamed
		return
	}
	q.blame(t, fault, seen)
	end := q.ended(fault.Code, fault.Message)
	end.Status = fault.Status
	t.tried(end, began)
}

// blame decides the outcome of a task from the error of its server.
func (q *Queue) blame(t *Task, fault *engine.Error, seen *evidence) {
	now := time.Now()
	seen.overloaded = seen.overloaded || fault.Overloaded && t.refusals == 0
	if fault.Class == engine.ServerFault || fault.Class == engine.Busy || fault.Class == engine.Moment && (fault.Status == 0 || fault.Status >= 500) {
		seen.err = fault
	}
	t.due = now.Add(fault.RetryAfter)
	switch {
	case fault.Broke:
		t.Outcome = Unblamed
		seen.broken = append(seen.broken, broken{queue: q, task: t, fault: fault})
		return
	case fault.Class == engine.Busy:
		if fault.Status == 0 {
			q.disp.hooks.Suspect(fault)
		}
		q.refused(t, fault, seen, now)
		return
	}
	if fault.Status == 0 || fault.Class == engine.ServerFault {
		q.disp.hooks.Suspect(fault)
		if fault.Code == codeTimeout {
			t.overdue++
		}
		if t.faults++; t.faults < maxFaults {
			t.Outcome = Unblamed
			return
		}
		what := "The connection to the engine broke on every attempt: "
		if fault.Class == engine.ServerFault {
			what = "No engine could be used for the row: "
		}
		t.Out, t.Outcome = failed(rowmill.RowAttemptsUsedUp, what+fault.Message, "", t.attempts+t.faults), Final
		return
	}
	if fault.TooLong && q.job.Spec.TruncateRows && t.squeezed < mostSqueezes {
		if t.unlimited && fault.Context > 0 { // the server's list of models does not contain the limit
			q.limit.Store(int64(q.job.Spec.PromptLimit(fault.Context)))
		}
		t.squeeze(fault.Prompt, q.promptLimit())
		t.Outcome = Unblamed
		return
	}
	t.attempts++
	if fault.Status == 500 {
		t.crashes++
	}
	t.Out, t.Outcome = q.job.Classifier.refuse(fault, t.attempts, t.crashes)
	t.Out.Engine = q.disp.cfg.Engine
	if fault.Class == engine.JobFault {
		t.Out, t.Outcome = failed(rowmill.CodeEngineError, fault.Message, "", t.attempts), Final
	}
	if t.Outcome == Again {
		q.disp.cfg.Metrics.Retries.Inc()
	}
}

// refusalGap is the longest time between two refusals of a row that count as one wait. A
// row asks again sooner, unless other rows go first.
const refusalGap = 2 * time.Minute

// refused lets a task wait for its busy server, at no cost to the row. After the maximum
// wait the row fails, or the whole job if no row of its route is answered.
func (q *Queue) refused(t *Task, fault *engine.Error, seen *evidence, now time.Time) {
	seen.first = seen.first || t.refusals == 0 || !q.disp.answeredAt(q).After(t.refusedAt)
	if t.refusals == 0 || now.Sub(t.refusedAt) > refusalGap {
		t.refusedFrom = now
	}
	t.refusals++
	t.refusedAt = now
	seen.busy, seen.asked = true, max(seen.asked, fault.RetryAfter)
	switch most := q.disp.cfg.Wait; {
	case most <= 0 || now.Sub(t.refusedFrom) < most:
		t.Outcome = Unblamed
	case now.Sub(q.disp.answeredAt(q)) >= most:
		t.Out, t.Outcome = failed(rowmill.CodeModelUnavailable, fmt.Sprintf("%s has answered no row for %v: %s", q.disp.cfg.Engine, most, fault.Error()), "", t.attempts), Final
	default:
		t.Out, t.Outcome = failed(rowmill.RowAttemptsUsedUp, fmt.Sprintf("The server has not taken the row for %v: %s", most, fault.Error()), "", t.attempts), Final
	}
}

// countOn returns a function that asks the server behind call for the tokens of a
// prompt; nil if the server cannot count. If the server refuses a prompt as too long, it
// gives no number. Then the function returns our own count, but at least an eighth above
// the limit, so that cuts in such steps soon make the text short enough to be counted.
func countOn(call engine.Call, job Job) func(context.Context, string) (int, error) {
	counter, ok := call.(engine.PromptCounter)
	if !ok {
		return nil
	}
	return func(ctx context.Context, text string) (int, error) {
		n, err := counter.CountPrompt(ctx, engine.Row{Text: []byte(text)})
		var fault *engine.Error
		if errors.As(err, &fault) && fault.TooLong {
			return max(job.Counter.Count(text), job.PromptLimit*9/8+1), nil
		}
		return n, err
	}
}
