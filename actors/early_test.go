package actors_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/store"
)

// A heldBucket blocks shards from number 3 on until begin is closed.
type heldBucket struct {
	blob.Bucket
	holds atomic.Bool // shard 3 is requested
	begin chan struct{}
}

func (b *heldBucket) Create(ctx context.Context, key, contentType string) (blob.Writer, error) {
	if strings.HasSuffix(key, "/shard-000003") {
		b.holds.Store(true)
		select {
		case <-b.begin:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return b.Bucket.Create(ctx, key, contentType)
}

func held(c *actors.Config) *heldBucket {
	b := &heldBucket{Bucket: c.Blob, begin: make(chan struct{})}
	c.Blob = b
	return b
}

// The first rows run while the rest of the input is read. No row counts as done
// before the input is whole, and each runs once.
func TestRowsRunWhileTheInputIsRead(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		var bucket *heldBucket
		e := &scripted{answer: echo}
		b := setup(t, e, func(c *actors.Config) { bucket = held(c) })
		texts := numbered(730)
		id := b.submit(rowmill.Spec{Spooled: b.spool(texts), JobQuotas: rowmill.JobQuotas{RowQuota: 730, TokenQuota: 1e6}})
		b.await(id, func(store.Record) bool { return e.calls.Load() == 300 })
		time.Sleep(4 * b.cfg.Parts.Interval) // their parts are written
		rec := b.await(id, func(r store.Record) bool { return r.Job.Status == rowmill.StatusRunning })
		if j := rec.Job; j.NumRows != nil || j.RowsDone != 0 || rec.IsCutIntoShards() || j.Started == nil || rec.ShardRows != 100 {
			t.Errorf("while the input is read the record is %+v", rec)
		}
		close(bucket.begin)
		rec = b.end(id)
		b.checkEcho(rec, texts)
		if n := e.calls.Load(); n != 730 || rec.Shards != 8 || *rec.Job.NumRows != 730 || rec.Job.RowsDone != 730 {
			t.Errorf("%d requests, record %+v", n, rec)
		}
		b.cleaned(id, "input/", "parts/")
	})
}

// An error later in the input fails the job as if no row had run: the same message,
// no row done, and no cost.
func TestWhatIsWrongFurtherDownCostsNothing(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "text\n")
		for i := range 450 {
			fmt.Fprintf(w, "row %d\n", i)
		}
		fmt.Fprint(w, "row,450\n")
	}))
	t.Cleanup(server.Close)
	for name, test := range map[string]struct {
		spec       func(b *rig) rowmill.Spec
		code, says string
	}{
		"a bad line": {
			func(*rig) rowmill.Spec { return rowmill.Spec{URL: server.URL} },
			rowmill.CodeInvalidInputFile, "Line 452 of the CSV input has 2 fields where the header has 1.",
		},
		"too many rows": {
			func(b *rig) rowmill.Spec {
				return rowmill.Spec{Spooled: b.spool(numbered(500)), JobQuotas: rowmill.JobQuotas{RowQuota: 450}}
			},
			rowmill.CodeRowQuota, "The input has at least 451 rows",
		},
		"too many tokens": {
			func(b *rig) rowmill.Spec {
				return rowmill.Spec{Spooled: b.spool(numbered(500)), JobQuotas: rowmill.JobQuotas{TokenQuota: 900}}
			},
			rowmill.CodeTokenQuota, "counted to row ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var bucket *heldBucket
			e := &scripted{answer: echo}
			b := setup(t, e, func(c *actors.Config) { bucket = held(c) })
			id := b.submit(test.spec(b))
			b.await(id, func(store.Record) bool { return e.calls.Load() > 0 })
			close(bucket.begin)
			rec := b.end(id)
			if f := failure(t, rec, test.code); !strings.Contains(f.Message, test.says) {
				t.Errorf("it says %q, want %q", f.Message, test.says)
			}
			if j := rec.Job; j.RowsDone != 0 || j.NumRows != nil || j.JobCost != nil && *j.JobCost != 0 || rec.IsCutIntoShards() {
				t.Errorf("the record is %+v", j)
			}
			b.cleaned(id, "parts/")
			now := time.Now()
			if used, err := b.store.Usage(t.Context(), "default", now.Add(-24*time.Hour), now.Add(24*time.Hour)); err != nil || len(used) > 0 {
				t.Errorf("the account has used %+v, %v", used, err)
			}
		})
	}
}

// For some jobs no row runs before the whole input is read.
func TestRowsThatWaitForTheWholeInput(t *testing.T) {
	t.Parallel()
	limit := 1.0
	for name, change := range map[string]func(*rowmill.Spec){
		"a limit of cost": func(s *rowmill.Spec) { s.CostQuota = &limit },
		"an estimate":     func(s *rowmill.Spec) { s.Estimate, s.Priority = true, 1 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inVirtualTime(t, func(t *testing.T) {
				var bucket *heldBucket
				e := &scripted{answer: echo}
				b := setup(t, e, func(c *actors.Config) {
					bucket = held(c)
					c.Estimates = actors.EstimateConfig{Rows: 100, Tokens: 1 << 20, Wait: time.Second}
				})
				spec := rowmill.Spec{Spooled: b.spool(numbered(500))}
				change(&spec)
				id := b.submit(spec)
				b.await(id, func(store.Record) bool { return bucket.holds.Load() })
				time.Sleep(100 * time.Millisecond) // far longer than a node takes to send a row
				if n := e.calls.Load(); n > 0 {
					t.Errorf("%d rows ran before the input was read", n)
				}
				close(bucket.begin)
				if rec := b.end(id); rec.Job.Status != rowmill.StatusSucceeded {
					t.Errorf("the job is %s: %+v", rec.Job.Status, rec.Job.FailureReason)
				}
			})
		})
	}
}

// The loss of an owner that reads the input costs no row on other nodes: the next
// owner cuts the same shards, and workers report their rows.
func TestAnOwnerThatDiesWhileItReadsCostsNoRow(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		b, net := setup(t, nil), newNetwork()
		owner := b.join(net, "owner", nil, func(c *actors.Config) { held(c) })
		gpus := func(c *actors.Config) { c.Ownership.OwnsNone = true }
		one := b.join(net, "one", &scripted{answer: slowly(10 * time.Millisecond)}, gpus)
		two := b.join(net, "two", &scripted{answer: slowly(10 * time.Millisecond)}, gpus)
		texts := numbered(1500)
		id := b.submitTo(owner, rowmill.Spec{Spooled: b.spool(texts)})
		first := b.await(id, func(store.Record) bool { return one.engine.calls.Load()+two.engine.calls.Load() > 100 })
		if first.IsCutIntoShards() || first.Job.RowsDone > 0 {
			t.Errorf("the record is %+v", first)
		}
		other := func(c *actors.Config) { c.Shards.Rows = 70 } // the second owner must cut the input like the first one
		b.join(net, "second", nil, other)
		owner.cut.Store(true)
		owner.gone.Store(true)
		net.tell()
		rec := b.end(id)
		if rec.Epoch == first.Epoch || rec.Shards != 15 {
			t.Errorf("the record is %+v", rec)
		}
		b.checkEcho(rec, texts)
		ranOnce(t, texts, one, two)
		owner.cut.Store(false)
	})
}
