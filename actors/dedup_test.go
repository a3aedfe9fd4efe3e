package actors_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
)

// repeated returns n rows with so many different texts, in no simple order.
func repeated(n, different int) (texts []string) {
	for i := range n {
		texts = append(texts, fmt.Sprintf("row %d", (i*2654435761>>8)%different))
	}
	return texts
}

func distinct(texts []string) int {
	seen := make(map[string]bool)
	for _, text := range texts {
		seen[text] = true
	}
	return len(seen)
}

// counted echoes with tokens, and counts the requests for each text.
type counted struct {
	scripted
	mu   sync.Mutex
	asks map[string]int
}

func counting(answer func(context.Context, string, int) (engine.Reply, error)) *counted {
	e := &counted{asks: make(map[string]int)}
	e.answer = func(ctx context.Context, row string, try int) (engine.Reply, error) {
		e.mu.Lock()
		e.asks[row]++
		e.mu.Unlock()
		reply, err := answer(ctx, row, try)
		reply.InputTokens, reply.OutputTokens = 3, 2
		return reply, err
	}
	return e
}

// once requires one request for each text.
func (e *counted) once(t *testing.T, texts []string) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, text := range texts {
		if e.asks[text] != 1 {
			t.Errorf("%q was asked for %d times", text, e.asks[text])
		}
	}
	if want := distinct(texts); len(e.asks) != want {
		t.Errorf("%d texts were asked for, want %d", len(e.asks), want)
	}
}

func TestEqualRowsRunOnce(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]func(b *rig, texts []string) rowmill.Spec{
		"spooled": func(b *rig, texts []string) rowmill.Spec { return rowmill.Spec{Spooled: b.spool(texts)} },
		"inline":  func(_ *rig, texts []string) rowmill.Spec { return rowmill.Spec{Inline: texts} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inVirtualTime(t, func(t *testing.T) {
				e := counting(echo)
				b := setup(t, &e.scripted)
				texts := repeated(1234, 100)
				s := spec(b, texts)
				s.Dedup = true
				rec := b.end(b.submit(s))
				b.checkEcho(rec, texts)
				e.once(t, texts)
				ran := int64(distinct(texts))
				j := rec.Job
				if j.RowsDone != 1234 || j.DeduplicatedRows != 1234-ran || *j.InputTokens != 3*ran || *j.OutputTokens != 2*ran {
					t.Errorf("of %d different rows the record says %+v, %d and %d tokens", ran, j.RowCounts, *j.InputTokens, *j.OutputTokens)
				}
				if spent := b.spent(); spent.Rows != 1234 || spent.Deduplicated != 1234-ran || spent.InputTokens != 3*ran {
					t.Errorf("the ledger has %+v", spent)
				}
				b.cleaned(j.ID, "input/", "parts/")
			})
		})
	}
}

// Without deduplication equal rows run like all others.
func TestEqualRowsRunEachByDefault(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		e := counting(echo)
		b := setup(t, &e.scripted)
		texts := repeated(300, 10)
		rec := b.end(b.submit(rowmill.Spec{Spooled: b.spool(texts)}))
		b.checkEcho(rec, texts)
		if n := e.calls.Load(); n != 300 || rec.Job.DeduplicatedRows != 0 {
			t.Errorf("%d requests, %d rows saved", n, rec.Job.DeduplicatedRows)
		}
	})
}

// Beyond the remembered rows equal rows run, and no row is lost.
func TestEqualRowsBeyondMemoryRun(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		e := counting(echo)
		b := setup(t, &e.scripted, func(c *actors.Config) { c.Shards.Remembered = 10 })
		texts := repeated(600, 50)
		rec := b.end(b.submit(rowmill.Spec{Spooled: b.spool(texts), RowRules: rowmill.RowRules{Dedup: true}}))
		b.checkEcho(rec, texts)
		if n, saved := e.calls.Load(), rec.Job.DeduplicatedRows; n+saved != 600 || saved == 0 || n <= int64(distinct(texts)) {
			t.Errorf("%d requests, %d rows saved of 600", n, saved)
		}
	})
}

// A copy of a failed row fails with the same error.
func TestCopiesOfFailedRowsFail(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		e := counting(func(ctx context.Context, row string, try int) (engine.Reply, error) {
			if row == "row 3" {
				return engine.Reply{}, &engine.Error{Class: engine.RowFault, Status: 400, Message: "no"}
			}
			return echo(ctx, row, try)
		})
		b := setup(t, &e.scripted, func(c *actors.Config) { c.Rows.MaxFailed = 400 })
		texts := repeated(730, 20)
		rec := b.end(b.submit(rowmill.Spec{Spooled: b.spool(texts), RowRules: rowmill.RowRules{Dedup: true}}))
		want := int64(strings.Count(strings.Join(texts, ",")+",", "row 3,"))
		if j := rec.Job; j.Status != rowmill.StatusSucceeded || j.FailedRows != want || want < 2 || j.RowsDone != 730 {
			t.Errorf("%s, %+v; want %d rows to have failed", j.Status, j.RowCounts, want)
		}
		e.once(t, texts)
		got := b.outputs(rec)
		for i, text := range texts {
			if failed := string(got.Outputs[i]) == "null"; failed != (text == "row 3") {
				t.Fatalf("row %d, %q, has the output %s", i, text, got.Outputs[i])
			}
		}
	})
}

// Equal rows are also left out while the input is still being read.
func TestEqualRowsRunOnceWhileTheInputIsRead(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		var bucket *heldBucket
		e := counting(echo)
		b := setup(t, &e.scripted, func(c *actors.Config) { bucket = held(c) })
		texts := repeated(730, 150)
		id := b.submit(rowmill.Spec{Spooled: b.spool(texts), RowRules: rowmill.RowRules{Dedup: true}, JobQuotas: rowmill.JobQuotas{RowQuota: 730, TokenQuota: 1e6}})
		first := int64(distinct(texts[:300]))
		b.await(id, func(store.Record) bool { return e.calls.Load() == first })
		time.Sleep(4 * b.cfg.Parts.Interval)
		if n := e.calls.Load(); n != first {
			t.Errorf("%d rows ran while the input was read, want %d", n, first)
		}
		close(bucket.begin)
		rec := b.end(id)
		b.checkEcho(rec, texts)
		e.once(t, texts)
		b.cleaned(id, "input/", "parts/")
	})
}

// The loss of an owner that writes copies costs no row: the next owner writes the
// other copies, and rows that another node has answered do not run again.
func TestAnOwnerThatDiesWhileItCopiesCostsNoRow(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		b, net := setup(t, nil), newNetwork()
		owner := b.join(net, "owner", nil)
		gpu := counting(slowly(5 * time.Millisecond))
		b.join(net, "one", &gpu.scripted, func(c *actors.Config) { c.Ownership.OwnsNone = true })
		texts := repeated(3000, 800)
		id := b.submitTo(owner, rowmill.Spec{Spooled: b.spool(texts), RowRules: rowmill.RowRules{Dedup: true}})
		first := b.await(id, func(r store.Record) bool { return r.Job.DeduplicatedRows > 0 })
		if first.Job.Status.IsTerminal() {
			t.Fatal("the job ended before its owner was lost")
		}
		b.join(net, "second", nil)
		owner.cut.Store(true)
		owner.gone.Store(true)
		net.tell()
		rec := b.end(id)
		b.checkEcho(rec, texts)
		gpu.once(t, texts)
		if rec.Epoch == first.Epoch || rec.Job.DeduplicatedRows != int64(3000-distinct(texts)) {
			t.Errorf("epoch %d, the record is %+v", rec.Epoch, rec.Job.RowCounts)
		}
		owner.cut.Store(false)
	})
}

// A job that continues another runs each text once that has no answer yet, and
// copies the other answers.
func TestResume_OfAJobWithEqualRows(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		var pace atomic.Int64
		pace.Store(int64(4 * time.Millisecond))
		e := counting(func(ctx context.Context, row string, try int) (engine.Reply, error) {
			return slowly(time.Duration(pace.Load()))(ctx, row, try)
		})
		b := setup(t, &e.scripted, func(c *actors.Config) { c.Inputs.Retention = week })
		texts := repeated(4000, 1200)
		id := b.submit(rowmill.Spec{Spooled: b.spool(texts), RowRules: rowmill.RowRules{Dedup: true}})
		b.await(id, func(r store.Record) bool { return r.Job.DeduplicatedRows > 50 })
		must.Get(b.store.Cancel(t.Context(), id, time.Now(), nil))(t)
		b.system.NotifyCancelled(id)
		old := b.await(id, func(r store.Record) bool { return r.InputUntil != nil })
		pace.Store(0)
		made := b.end(b.resume(old, false))
		b.checkEcho(made, texts)
		ran := old.Job.RowsDone - old.Job.DeduplicatedRows
		if j := made.Job; j.RowsTakenOver != old.Job.RowsDone || j.RowsDone != 4000 || j.RowsTakenOver+j.DeduplicatedRows+*j.InputTokens/3 != 4000 {
			t.Errorf("%d rows were done, %d of them by copies; the record is %+v, %d input tokens", old.Job.RowsDone, old.Job.DeduplicatedRows, j.RowCounts, *j.InputTokens)
		}
		if again := *made.Job.InputTokens/3 + ran - int64(distinct(texts)); again != 0 {
			t.Errorf("%d texts ran in both jobs", again)
		}
	})
}

// An estimate counts only the rows that would run.
func TestAnEstimateLeavesCopiesOut(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		b := setup(t, &scripted{answer: echo})
		texts := repeated(600, 30)
		cost := func(dedup bool) float64 {
			rec := b.estimate(rowmill.Spec{Spooled: b.spool(texts), RowRules: rowmill.RowRules{Dedup: dedup}})
			if rec.Job.CostEstimate == nil || *rec.Job.NumRows != 600 {
				t.Fatalf("estimate %+v", rec.Job)
			}
			return *rec.Job.CostEstimate
		}
		all, once := cost(false), cost(true)
		if share := once / all; share > float64(distinct(texts))/600*1.2 {
			t.Errorf("the estimate is %v, and %v without copies", all, once)
		}
	})
}
