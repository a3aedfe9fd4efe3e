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
	"github.com/rowmill/rowmill/internal/panics"
	"github.com/rowmill/rowmill/internal/textfmt"
	"github.com/rowmill/rowmill/internal/tracing"
	"github.com/rowmill/rowmill/tokenize/prompt"
)

// A requestResult is the information that a request has given about its server.
type requestResult struct {
	answered   bool          // the server works
	took       time.Duration // if answered: the time of the request
	tokens     int64         // if answered: tokens of the answer
	prompts    int64         // if answered: tokens of the prompts
	overloaded bool          // the server refused because it has too much to do
	busy       bool          // the server refused for its own reason, not because of the row
	first      bool          // if busy: the row was not refused before since the server's last answer
	asked      time.Duration // if busy: the pause that the server asks for; 0 if it does not say
	broken     []broken      // rows with broken connections: a probe must find the reason
	err        error         // the request failed: server busy, connection broken, or status 500 and above
}

// run sends a request. It returns the tasks that go back to the worker with their
// outcomes.
func (q *Queue) run(r *request) (seen requestResult, back []*Task) {
	if q.job.Ctx.Err() != nil { // the job stopped while its rows waited
		return seen, nil
	}
	began := time.Now()
	ctx, end, usual := q.job.Ctx, func() {}, q.disp.timeout(q.job.MaxTokens)
	if usual == 0 {
		ctx, end = q.supervised(r.tasks[0].timeouts)
	}
	var span *tracing.Span
	if q.job.Trace != nil {
		span = q.traced(r.tasks)
	}
	err := panics.Catch(func() error {
		if q.job.Spec.Model.Kind == rowmill.KindEmbedding {
			seen = q.embed(ctx, r.tasks, usual, began, span.Traceparent())
		} else {
			seen = q.generate(ctx, r.tasks[0], usual, began, span.Traceparent())
		}
		return nil
	})
	end()
	if err != nil {
		seen = q.panicked(r.tasks, err, began)
	}
	seen.took = time.Since(began)
	span.Observe(q.disp.cfg.Metrics.Seconds, seen.took.Seconds())
	if span != nil {
		conclude(span, r.tasks, &seen, began)
	}
	if len(seen.broken) == 0 {
		return seen, r.tasks
	}
	return seen, slices.DeleteFunc(slices.Clone(r.tasks), func(t *Task) bool {
		return slices.ContainsFunc(seen.broken, func(b broken) bool { return b.task == t })
	})
}

// panicked fails tasks after our own code panicked on their row or answer: it would
// panic again.
func (q *Queue) panicked(tasks []*Task, err error, began time.Time) requestResult {
	q.disp.hooks.Panicked(err)
	for _, t := range tasks {
		t.Out, t.Outcome = failed(rowmill.RowInternal, "An internal error of the service stopped this row. The log of the node has the error.", "", t.attempts+1), Final
		t.tried(q.attempt(t.Out.Err.Code, t.Out.Err.Message), began)
	}
	return requestResult{}
}

// wait returns how long to wait for the answer to a task: longer after each timeout of
// the task. usual is the time at the server's measured speed; 0 if that is unknown.
func (q *Queue) wait(timeouts int, usual time.Duration) time.Duration {
	if usual == 0 {
		return 0
	}
	return max(q.disp.cfg.RowTimeout, usual) << min(timeouts, 4)
}

// codeTimeout is the code of an engine.Error after a timeout of a row.
const codeTimeout = "timeout"

// errOverdue is the cause with which supervised cancels a request.
var errOverdue = errors.New("no complete answer within the timeout, which follows the measured speed of the server")

// supervised returns a context for a request that is sent before the server's speed is
// known. Once it is known, the timeout applies to this request too.
func (q *Queue) supervised(timeouts int) (ctx context.Context, end func()) {
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
				if enough := q.wait(timeouts, q.disp.timeout(q.job.MaxTokens)); enough > 0 && now.Sub(began) >= enough {
					cancel(errOverdue)
					return
				}
			}
		}
	}()
	return ctx, func() { cancel(nil) }
}

// orTimeout returns the error of a request. If supervised has cancelled the request, this
// is a timeout instead of err.
func orTimeout(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), errOverdue) {
		return &engine.Error{Class: engine.Moment, Code: codeTimeout, Message: errOverdue.Error()}
	}
	return err
}

// bytesOf returns the bytes of a text without a copy. Nothing may change these bytes: an
// engine only reads the text of a row and does not keep it. A copy would be half of a
// row's allocations.
func bytesOf(text string) []byte { return unsafe.Slice(unsafe.StringData(text), len(text)) }

// generate sends the request of one task, and sets the task's output and outcome.
func (q *Queue) generate(ctx context.Context, t *Task, usual time.Duration, began time.Time, traceparent string) (seen requestResult) {
	text, ok := q.fit(t)
	if !ok {
		return seen
	}
	reply, err := q.call.Generate(ctx, engine.Row{Text: bytesOf(text), Seed: q.seed(t), Patience: q.wait(t.timeouts, usual), Failures: t.status500s, Traceparent: traceparent})
	if err = orTimeout(ctx, err); err != nil {
		q.failed(t, err, &seen, began)
		return seen
	}
	q.accepted(t, &reply, text, began)
	return requestResult{answered: true, tokens: reply.OutputTokens, prompts: reply.InputTokens}
}

// embed sends a request for the embeddings of all tasks, and sets their outputs and
// outcomes.
func (q *Queue) embed(ctx context.Context, tasks []*Task, usual time.Duration, began time.Time, traceparent string) (seen requestResult) {
	rows, texts, sent := make([]engine.Row, 0, len(tasks)), make([]string, 0, len(tasks)), make([]*Task, 0, len(tasks))
	for _, t := range tasks {
		if text, ok := q.fit(t); ok {
			rows = append(rows, engine.Row{Text: bytesOf(text), Patience: q.wait(t.timeouts, usual), Traceparent: traceparent})
			texts, sent = append(texts, text), append(sent, t)
		}
	}
	if len(sent) == 0 {
		return seen
	}
	replies, faults, err := q.call.Embed(ctx, rows)
	err = orTimeout(ctx, err)
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

// shortenPercent is the percentage by which a prompt is cut further each time the server
// refuses it as too long although it fits by our count. mostShortenings is the number of
// such attempts. shortenUnknownPercent is the percentage if no limit is known.
const (
	shortenPercent        = 10
	shortenUnknownPercent = 40
	mostShortenings       = 8
)

// shorten cuts the text of the next attempt after the server refused the prompt as
// too long. prompt is the server's count of its tokens and limit the server's limit;
// each is 0 if unknown.
func (t *Task) shorten(prompt, limit int) {
	first := t.shortened == 0 && t.unlimited
	switch {
	case limit > 0 && prompt > limit:
		t.most = t.sent * limit / prompt
	case limit == 0:
		t.most = t.sent * (100 - shortenUnknownPercent) / 100
	default:
		t.most = t.most * (100 - shortenPercent) / 100
	}
	if !first || limit == 0 {
		t.shortened++
	}
}

// fit returns the text to send: the row's text, cut if the prompt would not leave room
// for the answer and the job allows cuts. If the server does not count and our count may
// differ from the server's, fit may cut the text but fails no row: the server's answer
// decides, unless the server would cut the prompt itself. If ok is false, the task has
// failed or its job has stopped.
func (q *Queue) fit(t *Task) (text string, ok bool) {
	limit := q.promptLimit() * (100 - shortenPercent*t.shortened) / 100
	t.sent = len(t.Row.Text)
	if t.unlimited = limit == 0; t.unlimited {
		text = t.Row.Text
		if t.most > 0 {
			text = prompt.Beginning(text, t.most)
		}
		t.sent, t.Cut = len(text), len(text) < len(t.Row.Text)
		return text, true
	}
	count := q.countPrompt
	if q.cannotCount.Load() {
		count = nil
	}
	text, fits, err := q.job.Counter.Fit(q.job.Ctx, t.Row.Text, limit, count)
	doubt := err != nil || count == nil && !q.cutsPrompts.Load() && !q.job.Counter.Exact(t.Row.Text)
	switch {
	case err == nil:
	case q.job.Ctx.Err() != nil: // the job stopped
		t.Outcome = NotCounted
		return "", false
	case errors.Is(err, engine.ErrNoCounting):
		q.cutsPrompts.Store(errors.Is(err, engine.ErrCutsPrompts))
		q.cannotCount.Store(true)
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
	case t.shortened > 0 && len(text) == len(t.Row.Text): // our count is far from the server's: cut by length
		text = prompt.Beginning(text, len(text)*(100-shortenPercent*t.shortened)/100)
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
	if !q.job.Spec.SeedPerRow && (t.schemaFailures == 0 || q.job.Classifier.deterministic) {
		return nil
	}
	s := rowSeed(q.job.Spec.Seed, t.Row.Index, t.schemaFailures)
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

// attempt returns the record of an attempt at this server.
func (q *Queue) attempt(code, message string) rowmill.Attempt {
	return rowmill.Attempt{Node: q.disp.cfg.Node, Engine: q.disp.cfg.Engine, Code: code, Message: textfmt.Shorten(message, maxTryMessage)}
}

// accepted decides the outcome of a task with an answer, and counts the answer's tokens.
func (q *Queue) accepted(t *Task, reply *engine.Reply, text string, began time.Time) {
	switch {
	case reply.InputTokens == 0: // the server does not count tokens
		reply.InputTokens = int64(q.job.Counter.Count(text))
	case q.job.Spec.Raw != nil: // the server does not count only this text
	case compares(q.answers.Add(1)) && !t.Cut:
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
		t.tried(q.attempt(turnedDown.Code, turnedDown.Message), began)
	case t.Outcome == Final && len(reply.Content) < came:
		q.repaired.Store(true)
		t.tried(q.attempt(rowmill.RowRepaired, fmt.Sprintf("the JSON was taken out of an answer of %d bytes", came)), began)
	case t.tries != nil && t.Outcome == Final:
		t.tried(q.attempt("", ""), began)
	}
	if t.Outcome == Again { // accept returns Again only after it rejected an answer
		t.Out = rowmill.Output{} // no memory is reserved for this output
		t.schemaFailures++
		q.disp.cfg.Metrics.Retries.Inc()
	}
}

// failed decides the outcome of a task without an answer, and notes in seen what the
// error says about the server.
func (q *Queue) failed(t *Task, err error, seen *requestResult, began time.Time) {
	var fault *engine.Error
	if !errors.As(err, &fault) { // the job stopped
		t.Outcome = NotCounted
		return
	}
	q.handleFault(t, fault, seen)
	end := q.attempt(fault.Code, fault.Message)
	end.Status = fault.Status
	t.tried(end, began)
}

// handleFault decides the outcome of a task from the error of its server.
func (q *Queue) handleFault(t *Task, fault *engine.Error, seen *requestResult) {
	now := time.Now()
	seen.overloaded = seen.overloaded || fault.Overloaded && t.refusals == 0
	if fault.Class == engine.ServerFault || fault.Class == engine.Busy || fault.Class == engine.Moment && (fault.Status == 0 || fault.Status >= 500) {
		seen.err = fault
	}
	t.due = now.Add(fault.RetryAfter)
	switch {
	case fault.Broke:
		t.Outcome = NotCounted
		seen.broken = append(seen.broken, broken{task: t, fault: fault})
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
		t.lost(fault)
		return
	}
	if fault.TooLong && q.job.Spec.TruncateRows && t.shortened < mostShortenings {
		if t.unlimited && fault.Context > 0 { // the server's list of models does not contain the limit
			q.limit.Store(int64(q.job.Spec.PromptLimit(fault.Context)))
		}
		t.shorten(fault.Prompt, q.promptLimit())
		t.Outcome = NotCounted
		return
	}
	t.attempts++
	if fault.Status == 500 {
		t.status500s++
	}
	t.Out, t.Outcome = q.job.Classifier.refuse(fault, t.attempts, t.status500s)
	t.Out.Engine = q.disp.cfg.Engine
	if fault.Class == engine.JobFault {
		t.Out, t.Outcome = failed(rowmill.CodeEngineError, fault.Message, "", t.attempts), Final
	}
	if t.Outcome == Again {
		q.disp.cfg.Metrics.Retries.Inc()
	}
}

// lost counts a lost request, which is no attempt.
func (t *Task) lost(fault *engine.Error) {
	if fault.Code == codeTimeout {
		t.timeouts++
	}
	if t.lostRequests++; t.lostRequests < maxLostRequests {
		t.Outcome = NotCounted
		return
	}
	what := "The connection to the engine broke on every attempt: "
	if fault.Class == engine.ServerFault {
		what = "No engine could be used for the row: "
	}
	t.Out, t.Outcome = failed(rowmill.RowAttemptsUsedUp, what+fault.Message, "", t.attempts+t.lostRequests), Final
}

// refusalGap is the longest time between two refusals of a row that count as one wait. A
// row asks again sooner, unless other rows go first.
const refusalGap = 2 * time.Minute

// refused lets a task wait for its busy server. This costs the row no attempt. After the
// maximum wait the row fails, or the whole job if no row of its route was answered in
// that time.
func (q *Queue) refused(t *Task, fault *engine.Error, seen *requestResult, now time.Time) {
	seen.first = seen.first || t.refusals == 0 || !q.disp.answeredAt(q).After(t.refusedAt)
	if t.refusals == 0 || now.Sub(t.refusedAt) > refusalGap {
		t.refusedFrom = now
	}
	t.refusals++
	t.refusedAt = now
	seen.busy, seen.asked = true, max(seen.asked, fault.RetryAfter)
	switch most := q.disp.cfg.Wait; {
	case most <= 0 || now.Sub(t.refusedFrom) < most:
		t.Outcome = NotCounted
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
