package actors_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/wait"
	"github.com/rowmill/rowmill/store"
)

// A job that waits because of other jobs says why, and stops saying so once it
// continues.
func TestJobsSayWhyOtherJobsMakeThemWait(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, says string
		change     func(*actors.Config)
		slots      int
		greedy     int // jobs with rows of three minutes
		rows       []string
	}{
		{
			"a place", "Waiting for a place: node node runs as many jobs as it may (jobs.max_active), 0 of them of this account.",
			func(c *actors.Config) { c.Ownership = actors.OwnershipConfig{MaxActive: 1, KeptPlaces: 1} }, 0, 2,
			[]string{"modest"},
		},
		{
			"a turn at a server", "Waiting for a turn at an inference server: it runs rows of other jobs, or its limit by the minute is reached.",
			func(*actors.Config) {}, 1, 1,
			[]string{"modest"},
		},
		{
			"memory", "Rows go out one at a time: rows of other jobs fill the memory that a node has for rows (jobs.memory_budget).",
			func(c *actors.Config) { c.MemoryBudget = 64 << 10 }, 1000, 10, numberedOf("modest", 30),
		},
		{
			"a turn to write", "Waiting for a turn to write finished rows: parts of other jobs are being written.",
			func(c *actors.Config) { c.Blob = &slowBucket{Bucket: c.Blob, from: 1, takes: 20 * time.Second} }, 1000, 0,
			[]string{"modest"},
		},
		{
			"a turn to merge", "All rows are done. Waiting for a turn to merge their parts: parts of other jobs are being merged.",
			func(c *actors.Config) { c.Blob = &slowBucket{Bucket: c.Blob, from: 3, takes: 8 * time.Second} }, 1000, 0, numberedOf("modest", 2),
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				t.Cleanup(func() { time.Sleep(time.Second) }) // the dead-letter throttle of the actor library ends by itself
				enough := make(chan struct{})                 // closed when the other jobs have had their time
				answer := func(ctx context.Context, row string, try int) (engine.Reply, error) {
					switch {
					case !strings.HasPrefix(row, "modest"):
						select {
						case <-ctx.Done():
							return engine.Reply{}, ctx.Err()
						case <-enough:
						case <-time.After(greedyTakes):
						}
						return echo(ctx, row, try)
					case row == "modest 1": // in its own part, more than two intervals later
						return slowly(12*time.Second)(ctx, row, try)
					}
					return slowly(modestTakes)(ctx, row, try)
				}
				b := setup(t, &scripted{answer: answer, slots: test.slots}, func(c *actors.Config) {
					c.Parts, c.Servers, c.Ownership, c.DrainTimeout = actors.PartConfig{}, actors.ServerConfig{}, actors.OwnershipConfig{}, time.Second
					test.change(c)
				})
				time.Sleep(2 * time.Second)
				for range test.greedy {
					b.submit(rowmill.Spec{Account: "greedy", Priority: 1, Inline: numbered(500)})
				}
				time.Sleep(30 * time.Second)
				var ids []string
				for i := range 4 {
					ids = append(ids, b.submit(rowmill.Spec{Account: fmt.Sprint("modest-", i), Priority: 1, Inline: test.rows}))
				}
				id := "" // of a job with this message
				for i := 0; id == ""; i++ {
					time.Sleep(250 * time.Millisecond)
					rec, err := b.store.Get(t.Context(), ids[i%len(ids)])
					if err != nil || time.Since(rec.Job.Created) > 2*time.Minute {
						t.Fatalf("no job says it; the job is %s and says %q, error %v", rec.Job.Status, rec.Job.Message, err)
					}
					if rec.Job.Message == test.says || b.system.WaitReason(&rec.Job, rec.Spec.Account) == test.says {
						id = rec.Job.ID
					}
				}
				close(enough)
				rec := b.await(id, func(r store.Record) bool { return r.Job.Message != test.says && r.Job.Status != rowmill.StatusPending })
				if w := b.system.WaitReason(&rec.Job, rec.Spec.Account); w != "" {
					t.Errorf("the job is %s and waits for %q", rec.Job.Status, w)
				}
			})
		})
	}
}

// The metric counts rows without a worker, and drops the rows of a finished job.
func TestMetricOfWaitingRows(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		e := &scripted{answer: echo}
		e.down.Store(true)
		metrics := prometheus.NewRegistry()
		b := setup(t, e, func(c *actors.Config) { c.Registerer = metrics })
		waiting := func(rows int) {
			t.Helper()
			want := fmt.Sprintf("# HELP rowmill_rows_waiting Rows of jobs of this node without a worker yet, because no node has room or no server serves the model.\n"+
				"# TYPE rowmill_rows_waiting gauge\nrowmill_rows_waiting{model=\"writer\"} %d\n", rows)
			wait.Until(t, func() error {
				return testutil.GatherAndCompare(metrics, strings.NewReader(want), "rowmill_rows_waiting")
			})
		}
		first := b.submit(rowmill.Spec{Priority: 1, Inline: numbered(250)})
		waiting(250)
		second := b.submit(rowmill.Spec{Priority: 1, Inline: numbered(30)})
		waiting(280)
		must.Get(b.store.Cancel(t.Context(), second, time.Now(), nil))(t)
		b.system.NotifyCancelled(second)
		waiting(250)
		e.down.Store(false)
		b.end(first)
		waiting(0)
	})
}

func numberedOf(what string, n int) []string {
	rows := make([]string, n)
	for i := range rows {
		rows[i] = fmt.Sprint(what, " ", i)
	}
	return rows
}

// A slowBucket delays the parts of a job, starting with part number from.
type slowBucket struct {
	blob.Bucket
	from  int
	takes time.Duration
	mu    sync.Mutex
	parts map[string]int
}

func (b *slowBucket) Create(ctx context.Context, key, contentType string) (blob.Writer, error) {
	if job, _, isPart := strings.Cut(key, "/parts/"); isPart {
		b.mu.Lock()
		if b.parts == nil {
			b.parts = make(map[string]int)
		}
		b.parts[job]++
		nth := b.parts[job]
		b.mu.Unlock()
		if nth >= b.from {
			time.Sleep(b.takes)
		}
	}
	return b.Bucket.Create(ctx, key, contentType)
}
