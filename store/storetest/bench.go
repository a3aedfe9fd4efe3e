package storetest

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
)

// NewRecord returns a pending job with inline rows.
func NewRecord(id, account string, inline ...string) store.Record {
	return store.Record{
		Job: rowmill.Job{
			ID: id, Status: rowmill.StatusPending, RunType: rowmill.RunFull, JobTimes: rowmill.JobTimes{Created: time.Now()}, Instructions: rowmill.Instructions{Sampling: map[string]any{}},
			KeyID: new(KeyID),
		},
		Spec: rowmill.Spec{Account: account, Inline: inline, Model: rowmill.Model{ID: "m", InputPrice: 0.05, OutputPrice: 0.2}},
	}
}

// KeyID is the API key that submits each Record.
const KeyID = "0123456789ab"

// SumUsage adds up the usage of the account between two times, and checks that the whole usage
// belongs to KeyID.
func SumUsage(t testing.TB, s store.Ledger, account string, from, to time.Time) (totals store.RowTotals, cost rowmill.Money) {
	t.Helper()
	usage := must.Get(s.UsageByKey(t.Context(), account, from, to))(t)
	for _, u := range usage {
		if u.Key != KeyID {
			t.Errorf("account %s used %+v with key %q, want only usage with key %s", account, u.Usage, u.Key, KeyID)
		}
		totals, cost = totals.Plus(u.Totals), cost.Plus(u.Cost)
	}
	return totals, cost
}

// WantKeys compares the account's total usage of all models by API key.
func WantKeys(t testing.TB, s store.Ledger, account string, want map[string]store.RowTotals) {
	t.Helper()
	usage := must.Get(s.UsageByKey(t.Context(), account, time.Time{}, time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)))(t)
	got := map[string]store.RowTotals{}
	for _, u := range usage {
		got[u.Key] = got[u.Key].Plus(u.Totals)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("usage of account %s by key (-want +got):\n%s", account, diff)
	}
}

// JobID returns the id of the i-th job of FillJobs.
func JobID(i int) string { return fmt.Sprintf("job-%08d", i) }

// FillJobs creates n jobs of ten accounts. The jobs have ended if ended is true; otherwise
// they wait.
func FillJobs(b *testing.B, s store.Store, n int, ended bool) {
	b.Helper()
	row := strings.Repeat("x", 1000)
	var next atomic.Int64
	const writers = 256 // many writers, so that several writes share a commit
	done := make(chan error, writers)
	for range writers {
		go func() {
			var err error
			for i := int(next.Add(1)) - 1; i < n && err == nil; i = int(next.Add(1)) - 1 {
				_, _, err = s.Create(b.Context(), NewRecord(JobID(i), fmt.Sprint("account-", i%10), row), nil)
				if err == nil && ended {
					_, err = s.Cancel(b.Context(), JobID(i), time.Now(), nil)
				}
			}
			done <- err
		}()
	}
	for range writers {
		must.Succeed(b, <-done)
	}
}

// MeasureLatency calls step in the benchmark loop and reports percentiles of the time of a call.
// It returns the number of calls.
func MeasureLatency(b *testing.B, step func(i int)) int64 {
	b.Helper()
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		start := time.Now()
		step(i)
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
	return int64(len(took))
}

// TimeCreate measures the time to create a job with size bytes of input.
func TimeCreate(b *testing.B, s store.Store, size int) int64 {
	row, start := strings.Repeat("x", size), time.Now().UnixNano()
	return MeasureLatency(b, func(i int) {
		if _, _, err := s.Create(b.Context(), NewRecord(fmt.Sprintf("job-%s-%d-%d", b.Name(), start, i), "new", row), nil); err != nil {
			b.Fatal(err)
		}
	})
}

// TimeGet measures the time to read one of the n jobs of FillJobs.
func TimeGet(b *testing.B, s store.Store, n int) {
	MeasureLatency(b, func(i int) {
		must.Get(s.Get(b.Context(), JobID(i*7919%n)))(b)
	})
}

// TimeList measures the time to list 100 jobs of FillJobs.
func TimeList(b *testing.B, s store.Store) {
	MeasureLatency(b, func(int) {
		if jobs, _, err := s.List(b.Context(), "account-3", 100, ""); err != nil || len(jobs) != 100 {
			b.Fatal(len(jobs), err)
		}
	})
}

// TimeOrphans measures the time to list orphans. If waiting is true, the store must have
// at least 64 orphans.
func TimeOrphans(b *testing.B, s store.Store, waiting bool) int64 {
	return MeasureLatency(b, func(int) {
		if jobs, err := s.Orphans(b.Context(), 64); err != nil || waiting && len(jobs) != 64 {
			b.Fatal(len(jobs), err)
		}
	})
}

// TimeCommit commits parts to jobs with 64 KB of input, from one goroutine for each job,
// and reports the commits per second. It calls count before the first commit, and then
// report with the number of commits.
func TimeCommit(b *testing.B, s store.Store, jobs int, count func() (report func(n int64))) {
	session := must.Get(s.OpenSession(b.Context(), "n", time.Hour))(b)
	fences := make(chan store.Fence, jobs)
	for i := range jobs {
		id := fmt.Sprintf("job-%d-%s-%d", i, session, jobs)
		if _, _, err := s.Create(b.Context(), NewRecord(id, "c", strings.Repeat("x", 64<<10)), nil); err != nil {
			b.Fatal(err)
		}
		rec := must.Get(s.Claim(b.Context(), id, session, store.Claim{}))(b)
		fences <- store.Fence{JobID: id, Session: session, Epoch: rec.Epoch}
	}
	report := count()
	var n atomic.Int64
	b.SetParallelism((jobs + 1) / 2) // the number of goroutines is this value times GOMAXPROCS
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			f := <-fences
			i := n.Add(1)
			part := store.Part{
				Key: fmt.Sprintf("jobs/%s/parts/%d", f.JobID, i), Shard: int(i % 64), Rows: 100, Size: 50_000,
				Totals: store.RowTotals{Rows: 100, InputTokens: 5000, OutputTokens: 2000},
			}
			must.Succeed(b, s.CommitParts(b.Context(), f, []store.Part{part}))
			fences <- f
		}
	})
	report(n.Load())
	b.ReportMetric(float64(n.Load())/b.Elapsed().Seconds(), "commits/s")
}

// TimePoll measures the time to read the revisions of all open jobs of Fill's accounts,
// as a node does each second for its subscribers. The store must have n open jobs.
func TimePoll(b *testing.B, s store.Store, n int) {
	accounts := make([]string, 10)
	for i := range accounts {
		accounts[i] = fmt.Sprint("account-", i)
	}
	MeasureLatency(b, func(int) {
		found, err := s.ListActiveJobs(b.Context(), accounts, time.Now().Add(-time.Second), 1000)
		ids := slices.Concat(found...)
		if err != nil || len(ids) != n {
			b.Fatal(len(ids), err)
		}
		must.Get(s.Revisions(b.Context(), ids, ""))(b)
	})
}
