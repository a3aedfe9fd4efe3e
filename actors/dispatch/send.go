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
)

// A requestResult says what a request has shown about its server.
type requestResult struct {
	answered   bool          // the server has answered at least one row of the request
	took       time.Duration // duration of the request
	tokens     int64         // if answered: tokens of the answer
	prompts    int64         // if answered: tokens of the prompts
	overloaded bool          // the server refused because it is overloaded
	busy       bool          // the server refused because of its own state, not because of the row
	// If busy, isFirstRefusal is true for the first refusal of the row, and if no row of the route
	// was answered since the row's last refusal.
	isFirstRefusal bool
	requestedPause time.Duration // if busy: the pause that the server asked for; 0 if it named none
	broken         []brokenRow   // rows that lost their connection: a probe must find the reason
	// err is an error that counts against the server: busy, broken connection, or status
	// 500 and above.
	err error
}

// run sends a request. back has the tasks that go back to the worker with their
// outcomes.
func (q *Queue) run(r *request) (seen requestResult, back []*RowTask) {
	if q.job.Ctx.Err() != nil { // the job stopped while its rows waited
		return seen, nil
	}
	began := time.Now()
	ctx, end, usual := q.job.Ctx, func() {}, q.disp.timeout(q.job.MaxTokens)
	if usual == 0 {
		ctx, end = q.superviseRequest(r.tasks[0].timeouts)
	}
	var span *tracing.Span
	if q.job.Trace != nil {
		span = q.beginSpan(r.tasks)
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
		q.failAfterPanic(r.tasks, err, began)
		seen = requestResult{}
	}
	seen.took = time.Since(began)
	span.Observe(q.disp.cfg.Metrics.Seconds, seen.took.Seconds())
	if span != nil {
		conclude(span, r.tasks, &seen, began)
	}
	if len(seen.broken) == 0 {
		return seen, r.tasks
	}
	return seen, slices.DeleteFunc(slices.Clone(r.tasks), func(t *RowTask) bool {
		return slices.ContainsFunc(seen.broken, func(b brokenRow) bool { return b.task == t })
	})
}

// failAfterPanic fails all tasks of a request after our own code panicked on a row or its
// answer. A retry would panic again.
func (q *Queue) failAfterPanic(tasks []*RowTask, err error, began time.Time) {
	q.disp.hooks.Panicked(err)
	for _, t := range tasks {
		t.Out, t.Outcome = failedOutput(rowmill.RowInternal, "An internal error of the service stopped this row. The log of the node has the error.", "", t.attempts+1), Final
		t.recordAttempt(q.attempt(t.Out.Err.Code, t.Out.Err.Message), began)
	}
}

// answerTimeout returns how long to wait for the answer to a row: longer after each of its
// timeouts. usual is the time at the measured speed of the server. Both times are 0 if
// the speed is unknown.
func (q *Queue) answerTimeout(timeouts int, usual time.Duration) time.Duration {
	if usual == 0 {
		return 0
	}
	return max(q.disp.cfg.RowTimeout, usual) << min(timeouts, 4)
}

// codeTimeout is the Code of the engine.Error of a request that timed out.
const codeTimeout = "timeout"

// errOverdue is the reason with which superviseRequest cancels a request.
var errOverdue = errors.New("no complete answer within the timeout, which follows the measured speed of the server")

// superviseRequest returns a context for a request that is sent before the server's speed is
// known. When the speed becomes known, the timeout applies to this request too. The
// caller must call end.
func (q *Queue) superviseRequest(timeouts int) (ctx context.Context, end func()) {
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
				if enough := q.answerTimeout(timeouts, q.disp.timeout(q.job.MaxTokens)); enough > 0 && now.Sub(began) >= enough {
					cancel(errOverdue)
					return
				}
			}
		}
	}()
	return ctx, func() { cancel(nil) }
}

// asTimeoutError returns a timeout error if superviseRequest has cancelled the request, and err
// otherwise.
func asTimeoutError(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), errOverdue) {
		return &engine.Error{Class: engine.Transient, Code: codeTimeout, Message: errOverdue.Error()}
	}
	return err
}

// bytesOf returns the bytes of a text without copying them. The bytes must not be
// changed: an engine only reads the text of a row during the request. A copy would be
// half of a row's allocations.
func bytesOf(text string) []byte { return unsafe.Slice(unsafe.StringData(text), len(text)) }

// generate sends the request of one task, and sets the output and the outcome of the
// task.
func (q *Queue) generate(ctx context.Context, t *RowTask, usual time.Duration, began time.Time, traceparent string) (seen requestResult) {
	text, ok := q.fit(t)
	if !ok {
		return seen
	}
	reply, err := q.call.Generate(ctx, engine.Row{Text: bytesOf(text), Seed: q.seed(t), Timeout: q.answerTimeout(t.timeouts, usual), Failures: t.status500s, Traceparent: traceparent})
	if err = asTimeoutError(ctx, err); err != nil {
		q.handleError(t, err, &seen, began)
		return seen
	}
	q.handleReply(t, &reply, text, began)
	return requestResult{answered: true, tokens: reply.OutputTokens, prompts: reply.InputTokens}
}

// embed sends one request for the embeddings of all tasks, and sets their outputs and
// outcomes.
func (q *Queue) embed(ctx context.Context, tasks []*RowTask, usual time.Duration, began time.Time, traceparent string) (seen requestResult) {
	rows, texts, sent := make([]engine.Row, 0, len(tasks)), make([]string, 0, len(tasks)), make([]*RowTask, 0, len(tasks))
	for _, t := range tasks {
		if text, ok := q.fit(t); ok {
			rows = append(rows, engine.Row{Text: bytesOf(text), Timeout: q.answerTimeout(t.timeouts, usual), Traceparent: traceparent})
			texts, sent = append(texts, text), append(sent, t)
		}
	}
	if len(sent) == 0 {
		return seen
	}
	replies, faults, err := q.call.Embed(ctx, rows)
	err = asTimeoutError(ctx, err)
	for i, t := range sent {
		switch {
		case err != nil:
			q.handleError(t, err, &seen, began)
		case faults[i] != nil:
			q.handleError(t, faults[i], &seen, began)
		default:
			q.handleReply(t, &replies[i], texts[i], began)
			seen.answered = true
			seen.prompts += replies[i].InputTokens
		}
	}
	return seen
}

// shortenPercent is the percentage by which a prompt is cut further, each time the server
// refuses the prompt as too long although it fits by our count. shortenUnknownPercent is
// the percentage if no limit is known. mostShortenings is the maximum number of such cuts.
const (
	shortenPercent        = 10
	shortenUnknownPercent = 40
	mostShortenings       = 8
)

// shorten sets how much of the text the next attempt sends, after the server refused
// the prompt as too long. prompt is the number of tokens that the server counted, and
// limit is the server's limit; each is 0 if unknown.
func (t *RowTask) shorten(prompt, limit int) {
	first := t.shortened == 0 && t.unlimited
	switch {
	case limit > 0 && prompt > limit:
		t.maxBytes = t.sent * limit / prompt
	case limit == 0:
		t.maxBytes = t.sent * (100 - shortenUnknownPercent) / 100
	default:
		t.maxBytes = t.maxBytes * (100 - shortenPercent) / 100
	}
	if !first || limit == 0 {
		t.shortened++
	}
}

// fit returns the text to send: the row's text, cut if the prompt leaves too little
// room for the answer and the job allows cuts. If only our own count is known and it
// may be wrong, fit may cut the text but fails no row: the server's answer decides,
// unless the server would silently cut the prompt. If ok is false, the task has failed
// or its job has stopped.
func (q *Queue) fit(t *RowTask) (text string, ok bool) {
	limit := q.promptLimit() * (100 - shortenPercent*t.shortened) / 100
	t.sent = len(t.Row.Text)
	if t.unlimited = limit == 0; t.unlimited {
		text = t.Row.Text
		if t.maxBytes > 0 {
			text = q.job.Counter.Cut(text, t.maxBytes)
		}
		t.sent, t.Cut = len(text), len(text) < len(t.Row.Text)
		return text, true
	}
	count := q.countPrompt
	if q.cannotCount.Load() {
		count = nil
	}
	text, fits, err := q.job.Counter.TruncateToFit(q.job.Ctx, t.Row.Text, limit, count)
	doubt := err != nil || count == nil && !q.cutsPrompts.Load() && !q.job.Counter.IsExact(t.Row.Text)
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
		text, fits, _ = q.job.Counter.TruncateToFit(q.job.Ctx, t.Row.Text, limit, nil) // without a server TruncateToFit returns no error
	}
	if !fits && !doubt {
		return "", q.failTooLong(t, fmt.Sprintf("The prompt has more than %d tokens even without the row's text: system prompt and max_tokens leave no room in the context.", limit))
	}
	switch {
	case t.maxBytes > 0:
		text = q.job.Counter.Cut(text, t.maxBytes)
	case t.shortened > 0 && len(text) == len(t.Row.Text): // our count is far too low: cut by length
		text = q.job.Counter.Cut(text, len(text)*(100-shortenPercent*t.shortened)/100)
	}
	t.Cut = len(text) < len(t.Row.Text)
	switch {
	case doubt && (!fits || t.Cut && !q.job.Spec.TruncateRows):
		t.Cut = false
		return t.Row.Text, true
	case t.Cut && !q.job.Spec.TruncateRows:
		return "", q.failTooLong(t, fmt.Sprintf("The prompt has more than the %d tokens that max_tokens leaves of the context.", limit))
	}
	t.sent = len(text)
	return text, true
}

// failTooLong fails a task whose prompt does not fit into the context. It always returns
// false.
func (q *Queue) failTooLong(t *RowTask, message string) bool {
	t.Out, t.Outcome = failedOutput(rowmill.RowTooLong, message, "", t.attempts), Final
	return false
}

// seed returns the seed to send with a row, or nil to let the engine choose. A row gets
// its own seed if the client asked for this, and after an answer broke the schema, so
// that the next answer differs.
func (q *Queue) seed(t *RowTask) *int64 {
	if !q.job.Spec.SeedPerRow && (t.schemaFailures == 0 || q.job.Classifier.deterministic) {
		return nil
	}
	s := rowSeed(q.job.Spec.Seed, t.Row.Index, t.schemaFailures)
	return &s
}

// Our token count is compared with the server's count for one in compareEvery answers,
// and for one in compareAtFirst of the first compareFirst answers. Not for all: counting
// a text that is not in the processor's caches takes as long as three whole rows.
const (
	compareEvery   = 1024
	compareFirst   = 1024
	compareAtFirst = 16
)

// shouldCompare reports whether our token count is compared for answer number n, counted
// from 1.
func shouldCompare(n int64) bool {
	return n%compareEvery == 1 || n <= compareFirst && n%compareAtFirst == 1
}

// maxTryMessage is the maximum length in bytes of the message of an attempt. Servers
// write a line or two. The error of a failed row has its last message in full.
const maxTryMessage = 240

// attempt returns the record of an attempt at this server that ended with code and
// message.
func (q *Queue) attempt(code, message string) rowmill.Attempt {
	return rowmill.Attempt{Node: q.disp.cfg.Node, Engine: q.disp.cfg.Engine, Code: code, Message: textfmt.Shorten(message, maxTryMessage)}
}

// handleReply processes the answer to a task: it counts the answer's tokens and sets the
// outcome. The classifier may still reject the answer.
func (q *Queue) handleReply(t *RowTask, reply *engine.Reply, text string, began time.Time) {
	switch {
	case reply.InputTokens == 0: // the server does not count tokens
		reply.InputTokens = int64(q.job.Counter.Count(text))
	case q.job.Spec.Raw != nil: // the server does not count only this text
	case shouldCompare(q.answers.Add(1)) && !t.Cut:
		q.job.Counter.RecordUsage(t.Row.Text, reply.InputTokens)
	}
	if reply.OutputTokens == 0 && reply.Content != "" {
		reply.OutputTokens = int64(max(1, q.job.Counter.Count(reply.Content)-q.job.Counter.Count("")))
	}
	t.attempts++
	t.trialGroup = 0
	came := len(reply.Content)
	t.Out, t.Outcome = q.job.Classifier.classifyReply(q.job.Ctx, reply, t.attempts)
	t.Out.Engine, t.Out.Seconds = q.disp.cfg.Engine, secondsSince(began)
	switch turnedDown := t.Out.Err; {
	case turnedDown != nil:
		t.recordAttempt(q.attempt(turnedDown.Code, turnedDown.Message), began)
	case t.Outcome == Final && len(reply.Content) < came:
		q.repaired.Store(true)
		t.recordAttempt(q.attempt(rowmill.RowRepaired, fmt.Sprintf("the JSON was taken out of an answer of %d bytes", came)), began)
	case t.attemptLog != nil && t.Outcome == Final:
		t.recordAttempt(q.attempt("", ""), began)
	}
	if t.Outcome == Again { // Again always means here that the answer was rejected
		t.Out = rowmill.RowOutput{} // the worker has no memory reserved for a rejected output
		t.schemaFailures++
		q.disp.cfg.Metrics.Retries.Inc()
	}
}

// handleError sets the outcome of a task that got no answer, and adds to seen what the error
// shows about the server.
func (q *Queue) handleError(t *RowTask, err error, seen *requestResult, began time.Time) {
	var fault *engine.Error
	if !errors.As(err, &fault) { // the job stopped
		t.Outcome = NotCounted
		return
	}
	q.handleFault(t, fault, seen)
	end := q.attempt(fault.Code, fault.Message)
	end.Status = fault.Status
	t.recordAttempt(end, began)
	if t.Outcome == Final {
		t.Out.Seconds = secondsSince(began)
	}
}

// handleFault sets the outcome of a task from the error of its server, and adds to seen
// what the error shows about the server.
func (q *Queue) handleFault(t *RowTask, fault *engine.Error, seen *requestResult) {
	now := time.Now()
	seen.overloaded = seen.overloaded || fault.Overloaded && t.refusals == 0
	if fault.Class == engine.ServerFault || fault.Class == engine.Busy || fault.Class == engine.Transient && (fault.Status == 0 || fault.Status >= 500) {
		seen.err = fault
	}
	t.due = now.Add(fault.RetryAfter)
	switch {
	case fault.ConnectionBroke:
		t.Outcome = NotCounted
		seen.broken = append(seen.broken, brokenRow{task: t, fault: fault})
		return
	case fault.Class == engine.Busy:
		if fault.Status == 0 {
			q.disp.hooks.Suspect(fault)
		}
		q.handleRefusal(t, fault, seen, now)
		return
	}
	if fault.Status == 0 || fault.Class == engine.ServerFault {
		q.disp.hooks.Suspect(fault)
		t.countLostRequest(fault)
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
	t.Out, t.Outcome = q.job.Classifier.classifyError(fault, t.attempts, t.status500s)
	t.Out.Engine = q.disp.cfg.Engine
	if fault.Class == engine.JobFault {
		t.Out, t.Outcome = failedOutput(rowmill.CodeEngineError, fault.Message, "", t.attempts), Final
	}
	if t.Outcome == Again {
		q.disp.cfg.Metrics.Retries.Inc()
	}
}

// countLostRequest counts a lost request, which is no attempt. After maxLostRequests lost requests
// the row fails.
func (t *RowTask) countLostRequest(fault *engine.Error) {
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
	t.Out, t.Outcome = failedOutput(rowmill.RowAttemptsUsedUp, what+fault.Message, "", t.attempts+t.lostRequests), Final
}

// refusalGap is the maximum time between two refusals of a row that belong to the same
// wait for the server. A row is sent again sooner, unless other rows go first.
const refusalGap = 2 * time.Minute

// handleRefusal makes a task wait for its busy server. This costs the row no attempt. After
// the maximum wait (Config.Wait) the row fails. If no row of its route was answered
// during this time, the whole job fails.
func (q *Queue) handleRefusal(t *RowTask, fault *engine.Error, seen *requestResult, now time.Time) {
	seen.isFirstRefusal = seen.isFirstRefusal || t.refusals == 0 || !q.disp.answeredAt(q).After(t.refusedAt)
	if t.refusals == 0 || now.Sub(t.refusedAt) > refusalGap {
		t.refusedFrom = now
	}
	t.refusals++
	t.refusedAt = now
	seen.busy, seen.requestedPause = true, max(seen.requestedPause, fault.RetryAfter)
	switch most := q.disp.cfg.Wait; {
	case most <= 0 || now.Sub(t.refusedFrom) < most:
		t.Outcome = NotCounted
	case now.Sub(q.disp.answeredAt(q)) >= most:
		t.Out, t.Outcome = failedOutput(rowmill.CodeModelUnavailable, fmt.Sprintf("%s has answered no row for %v: %s", q.disp.cfg.Engine, most, fault.Error()), "", t.attempts), Final
	default:
		t.Out, t.Outcome = failedOutput(rowmill.RowAttemptsUsedUp, fmt.Sprintf("The server has not taken the row for %v: %s", most, fault.Error()), "", t.attempts), Final
	}
}

// newPromptCounter returns a function that asks the server behind call for the number of tokens
// of a prompt; nil if the server cannot count. A server that refuses a prompt as too
// long gives no number. The function then returns our own count, but at least an eighth
// above the limit, so that repeated cuts soon make the text short enough to be counted.
func newPromptCounter(call engine.PreparedCall, job Job) func(context.Context, string) (int, error) {
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
