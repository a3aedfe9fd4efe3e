package actors_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/tokenize/prompt"
)

// words is a tokenizer whose tokens are words.
type words struct{}

func (words) Count(text string) int { return len(strings.Fields(text)) }

func (words) Truncate(text string, n int) string {
	fields := strings.Fields(text)
	return strings.Join(fields[:min(n, len(fields))], " ")
}

func byWords(c *actors.Config) {
	c.Tokenizers = func(rowmill.Model) (prompt.Tokenizer, string, error) { return words{}, "", nil }
}

// small is a model with a context of 40 tokens, and answers of up to 10 tokens.
var small = rowmill.Model{
	ID: "writer", Kind: rowmill.KindGeneration, ContextLength: 40, InputPrice: 1e6, OutputPrice: 2e6, Template: "none",
	Sampling: map[string]any{"max_tokens": int64(10)},
}

func (b *rig) submitSmall(spec rowmill.Spec) string {
	b.t.Helper()
	spec.Model, spec.Sampling = small, small.Sampling
	return b.submit(spec)
}

func TestLongRowsAreCutToTheContext(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		var mu sync.Mutex
		longest := 0
		e := &scripted{answer: func(ctx context.Context, row string, try int) (engine.Reply, error) {
			mu.Lock()
			longest = max(longest, len(strings.Fields(row)))
			mu.Unlock()
			return echo(ctx, row, try)
		}}
		b := setup(t, e, byWords)
		texts := []string{"short", strings.Repeat("word ", 100), "also short"}
		rec := b.end(b.submitSmall(rowmill.Spec{Inline: texts, RowRules: rowmill.RowRules{TruncateRows: true}}))
		if rec.Job.Status != rowmill.StatusSucceeded || rec.Job.TruncatedRows != 1 {
			t.Fatalf("job = %+v, want success with one truncated row", rec.Job)
		}
		if longest != 29 {
			t.Errorf("the longest prompt had %d words, want 29: below 40 with an answer of 10", longest)
		}
		if got := b.outputs(rec); got.Inputs[1] != texts[1] {
			t.Error("results hold the cut text, not the source")
		}
	})
}

// A row that is too long fails the job. Either our count decides, for a server that
// would cut the row silently, or the server decides, which may count differently.
func TestARowTooLongEndsTheJob(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		tooLong := &engine.Error{Class: engine.RowFault, Status: 400, TooLong: true, Message: "too long"}
		for name, c := range map[string]struct {
			says    error
			refuses bool
			sent    int64 // at most: one row is short enough
		}{
			"by our count":    {engine.ErrCutsPrompts, false, 1},
			"by the server's": {engine.ErrNoCounting, true, 2},
		} {
			e := &scripted{answer: func(ctx context.Context, row string, try int) (engine.Reply, error) {
				if c.refuses && len(strings.Fields(row)) > 29 {
					return engine.Reply{}, tooLong
				}
				return echo(ctx, row, try)
			}}
			b := setup(t, e, byWords, func(cfg *actors.Config) { cfg.Engines = []engine.Engine{silent{e, c.says}} })
			f := failure(t, b.end(b.submitSmall(rowmill.Spec{Inline: []string{"a", strings.Repeat("b ", 50)}})), rowmill.CodeRowTooLong)
			if !strings.Contains(f.Message, "Row 1 ") || e.calls.Load() > c.sent {
				t.Errorf("%s: failure %q after %d requests, want row 1 named, and at most %d", name, f.Message, e.calls.Load(), c.sent)
			}
		}
	})
}

// If a server counts more tokens than this node does, the count of the server
// decides.
func TestRowsAreCutFurtherWhereTheServerSaysSo(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		e := &scripted{answer: func(ctx context.Context, row string, try int) (engine.Reply, error) {
			if len(strings.Fields(row)) > 20 {
				return engine.Reply{}, &engine.Error{Class: engine.RowFault, Status: 400, TooLong: true, Message: "too long"}
			}
			return echo(ctx, row, try)
		}}
		b := setup(t, e, byWords)
		rec := b.end(b.submitSmall(rowmill.Spec{Inline: []string{strings.Repeat("word ", 100)}, RowRules: rowmill.RowRules{TruncateRows: true}}))
		if rec.Job.Status != rowmill.StatusSucceeded || rec.Job.FailedRows != 0 || rec.Job.TruncatedRows != 1 {
			t.Errorf("job = %+v, want the row cut until the server takes it", rec.Job)
		}
	})
}

// silent is a server that cannot count prompts.
type silent struct {
	*scripted
	says error
}

func (s silent) Prepare(engine.JobParams) (engine.PreparedCall, error) { return s, nil }

func (s silent) CountPrompt(context.Context, engine.Row) (int, error) { return 0, s.says }

func TestLongRowsAreCutWhereTheServerDoesNotCount(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		e := &scripted{answer: slowly(time.Millisecond)}
		b := setup(t, e, byWords, func(c *actors.Config) { c.Engines = []engine.Engine{silent{e, engine.ErrNoCounting}} })
		texts := make([]string, 200)
		for i := range texts {
			texts[i] = strings.Repeat("word ", 50+i)
		}
		rec := b.end(b.submitSmall(rowmill.Spec{Spooled: b.spool(texts), RowRules: rowmill.RowRules{TruncateRows: true}}))
		if rec.Job.Status != rowmill.StatusSucceeded || rec.Job.TruncatedRows != int64(len(texts)) {
			t.Errorf("job = %+v, want success with every row cut", rec.Job)
		}
	})
}

func TestTokenQuotaFailsTheJob(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		b := setup(t, &scripted{answer: echo}, byWords)
		f := failure(t, b.end(b.submitSmall(rowmill.Spec{Spooled: b.spool(numbered(300)), JobQuotas: rowmill.JobQuotas{TokenQuota: 100}})), rowmill.CodeTokenQuota)
		if !strings.Contains(f.Message, "100 tokens") || !strings.Contains(f.Message, "rowmill quotas set") {
			t.Errorf("failure = %q, want the limit and the command that raises it", f.Message)
		}
	})
}

func TestCostQuotaFailsTheJob(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		b := setup(t, &scripted{answer: echo}, byWords)
		limit := 10.0
		// 3 rows with 2 words each, and at most 6 words out: 6 + 12 USD.
		f := failure(t, b.end(b.submitSmall(rowmill.Spec{Inline: numbered(3), JobQuotas: rowmill.JobQuotas{CostQuota: &limit}})), rowmill.CodeCostQuota)
		if !strings.Contains(f.Message, "monthly $10.00") {
			t.Errorf("failure = %q, want the limit named", f.Message)
		}
		limit = 20
		rec := b.end(b.submitSmall(rowmill.Spec{Inline: numbered(3), JobQuotas: rowmill.JobQuotas{CostQuota: &limit}}))
		if rec.Job.Status != rowmill.StatusSucceeded || rec.Reserved != 0 {
			t.Errorf("job = %+v with %v set aside, want success and nothing", rec.Job, rec.Reserved)
		}
	})
}

func (b *rig) estimate(spec rowmill.Spec) store.Record {
	b.t.Helper()
	spec.Estimate, spec.Account = true, "default"
	spec.Model, spec.Sampling = small, small.Sampling
	return b.end(b.submit(spec))
}

// Without a server of the model, an estimate uses the input alone. Its whole input can run later.
func TestAnEstimateWithoutAnEngine(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		e := &scripted{answer: echo}
		e.down.Store(true)
		b := setup(t, e, byWords, func(c *actors.Config) { c.Inputs.Retention = week })
		rec := b.estimate(rowmill.Spec{Spooled: b.spool(numbered(4))})
		j := rec.Job
		if j.Status != rowmill.StatusSucceeded || j.CostEstimate == nil || *j.CostEstimate != 8+16 || j.Estimate.Method != rowmill.EstimateUnsampled {
			t.Fatalf("estimate = %+v, want 24 USD, unsampled", j)
		}
		if e.calls.Load() > 0 || *j.NumRows != 4 || j.JobCost == nil || *j.JobCost != 0 {
			t.Errorf("after %d requests: %+v, want 4 rows that cost nothing", e.calls.Load(), j)
		}
		e.down.Store(false)
		if run := b.runEstimated(j.ID).Job; run.Status != rowmill.StatusSucceeded || run.RowsDone != 4 || run.RowsTakenOver != 0 {
			t.Errorf("the job after the estimate is %+v", run)
		}
	})
}

// runEstimated runs the whole input of an estimate.
func (b *rig) runEstimated(id string) store.Record {
	b.t.Helper()
	return b.end(b.submit(rowmill.Spec{
		Account: "default", Model: small, Sampling: small.Sampling, Continue: &rowmill.Continuation{Job: id, Failed: true, Rest: true},
	}))
}

// An estimate runs a sample and costs nothing. While the sample runs, the record has an estimate
// from the input. The job that runs the whole input takes the rows of the sample over, and pays
// for them.
func TestAnEstimateRunsASample(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		e := &scripted{answer: slowly(time.Second)} // 3 tokens in, 2 tokens out
		b := setup(t, e, byWords, func(c *actors.Config) { c.Inputs.Retention = week })
		id := b.submit(rowmill.Spec{Account: "default", Model: small, Sampling: small.Sampling, Estimate: true, Spooled: b.spool(numbered(600))})
		early := b.await(id, func(r store.Record) bool { return r.Job.Estimate != nil }).Job
		if early.Status.IsTerminal() || early.Estimate.Method != rowmill.EstimateUnsampled || early.Estimate.InputTokens != 1200 || *early.CostEstimate != 3600 {
			t.Errorf("at first, the estimate is %+v", early.Estimate)
		}
		rec := b.end(id)
		j := rec.Job
		if j.Status != rowmill.StatusSucceeded || j.Estimate == nil || j.Estimate.Method != rowmill.EstimateSampled {
			t.Fatalf("estimate = %+v, want one by sample", j)
		}
		if want := 1800*1.0 + 1200*2.0; *j.CostEstimate != want || j.Estimate.SampleRows != 100 || *j.NumRows != 600 {
			t.Errorf("estimate of %v USD from %+v, want %v from 100 of 600 rows", *j.CostEstimate, j.Estimate, want)
		}
		if n := e.calls.Load(); n != 100 {
			t.Errorf("%d rows ran, want the sample of 100", n)
		}
		if low, high := *j.Estimate.SecondsLow, *j.Estimate.SecondsHigh; low < 600/8 || high > 600/8+2 || *j.Estimate.Seconds < low || *j.Estimate.Seconds > high {
			t.Errorf("a forecast of %v s (%v to %v), want about 75 s for 600 rows of 1 s on a server with 8 slots", *j.Estimate.Seconds, low, high)
		}
		now := rec.Job.Completed
		if usage, err := b.store.Usage(t.Context(), "default", *now, *now); err != nil || len(usage) != 0 {
			t.Errorf("usage = %v, %v, want estimates to cost nothing", usage, err)
		}
		run := b.runEstimated(j.ID)
		if run.Job.Status != rowmill.StatusSucceeded {
			t.Fatalf("the job after the estimate is %+v", run.Job)
		}
		if j := run.Job; j.RowsDone != 600 || j.RowsTakenOver != 100 || *j.InputTokens != 1800 || *j.JobCost != 1800+2400 {
			t.Errorf("the job after the estimate is %+v with %d input tokens and costs %v", j, *j.InputTokens, *j.JobCost)
		}
		if n := e.calls.Load(); n != 600 {
			t.Errorf("%d requests, want each row to run once", n)
		}
		usage := must.Get(b.store.Usage(t.Context(), "default", *now, *run.Job.Completed))(t)
		if len(usage) != 1 || usage[0].Totals.Rows != 600 || usage[0].Totals.InputTokens != 1800 || usage[0].Totals.OutputTokens != 1200 {
			t.Errorf("usage = %+v, want all rows once", usage)
		}
	})
}

// The ledger is the sum over the rows of all jobs, with any outcome.
func TestUsageEqualsTheRows(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		e := &scripted{answer: func(ctx context.Context, row string, try int) (engine.Reply, error) {
			if strings.HasSuffix(row, "3") {
				return engine.Reply{}, &engine.Error{Class: engine.RowFault, Status: 400, Message: "no"}
			}
			return echo(ctx, row, try)
		}}
		b := setup(t, e, byWords, func(c *actors.Config) { c.Rows.MaxFailed = 1000 })
		rec := b.end(b.submitSmall(rowmill.Spec{Spooled: b.spool(numbered(250))}))
		other := b.end(b.submitSmall(rowmill.Spec{Inline: numbered(3)}))
		usage := must.Get(b.store.Usage(t.Context(), "default", *rec.Job.Completed, *other.Job.Completed))(t)
		var rows, failed, in, out int64
		for _, u := range usage {
			rows, failed, in, out = rows+u.Totals.Rows, failed+u.Totals.Failed, in+u.Totals.InputTokens, out+u.Totals.OutputTokens
		}
		if rows != 253 || failed != 25 || in != *rec.Job.InputTokens+*other.Job.InputTokens || out != *rec.Job.OutputTokens+*other.Job.OutputTokens {
			t.Errorf("ledger: %d rows, %d failed, %d and %d tokens; jobs: %s", rows, failed, in, out, fmt.Sprint(*rec.Job.InputTokens, *other.Job.InputTokens))
		}
	})
}
