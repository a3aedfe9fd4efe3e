package bolt_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/bolt"
)

// stored is how many jobs the benchmarks find in the store.
const stored = 100_000

// filled opens a store that holds jobs of ten accounts, over or waiting.
func filled(b *testing.B, over bool) *bolt.Store {
	b.Helper()
	path := filepath.Join(b.TempDir(), "records.db")
	s := open(b, bolt.Config{Path: path})
	row := strings.Repeat("x", 1000)
	work := make(chan int)
	done := make(chan error)
	const writers = 256 // so that commits are shared
	for range writers {
		go func() {
			for i := range work {
				id := jobID(i)
				_, _, err := s.Create(b.Context(), newRecord(id, fmt.Sprint("account-", i%10), row), nil)
				if err == nil && over {
					_, err = s.Cancel(b.Context(), id, time.Now(), nil)
				}
				if err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for i := range stored {
		work <- i
	}
	close(work)
	for range writers {
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
	if info, err := os.Stat(path); err == nil {
		b.Logf("%d jobs: %d MiB", stored, info.Size()>>20)
	}
	return s
}

func jobID(i int) string { return fmt.Sprintf("job-%08d", i) }

// timed runs step in the benchmark's loop and adds percentiles to its mean.
func timed(b *testing.B, step func(i int)) {
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
}

// BenchmarkFsync is the disk's share: a page written and synced.
func BenchmarkFsync(b *testing.B) {
	f, err := os.Create(filepath.Join(b.TempDir(), "f"))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	page := make([]byte, 4096)
	timed(b, func(i int) {
		if _, err := f.WriteAt(page, int64(i%1000)*4096); err != nil {
			b.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			b.Fatal(err)
		}
	})
}

func BenchmarkOver(b *testing.B) {
	s := filled(b, true)
	b.Run("create 1 KB", func(b *testing.B) { benchmarkCreate(b, s, 1<<10) })
	b.Run("create 64 KB", func(b *testing.B) { benchmarkCreate(b, s, 64<<10) })
	b.Run("get", func(b *testing.B) {
		timed(b, func(i int) {
			if _, err := s.Get(b.Context(), jobID(i*7919%stored)); err != nil {
				b.Fatal(err)
			}
		})
	})
	b.Run("get beside writes", func(b *testing.B) {
		stop, start := make(chan struct{}), time.Now().UnixNano()
		ended := make(chan error)
		go func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					ended <- nil
					return
				default:
				}
				if _, _, err := s.Create(b.Context(), newRecord(fmt.Sprintf("job-%d-%d", start, i), "w", "x"), nil); err != nil {
					ended <- err
					return
				}
			}
		}()
		timed(b, func(i int) {
			if _, err := s.Get(b.Context(), jobID(i*7919%stored)); err != nil {
				b.Fatal(err)
			}
		})
		close(stop)
		if err := <-ended; err != nil {
			b.Fatal(err)
		}
	})
	b.Run("list 100", func(b *testing.B) {
		timed(b, func(int) {
			if jobs, _, err := s.List(b.Context(), "account-3", 100, ""); err != nil || len(jobs) != 100 {
				b.Fatal(len(jobs), err)
			}
		})
	})
	b.Run("orphans", func(b *testing.B) {
		timed(b, func(int) {
			if _, err := s.Orphans(b.Context(), 64); err != nil {
				b.Fatal(err)
			}
		})
	})
	b.Run("commit part, 64 KB inline", func(b *testing.B) { benchmarkCommit(b, s, 1) })
	b.Run("commit part x16", func(b *testing.B) { benchmarkCommit(b, s, 16) })
}

func BenchmarkWaiting(b *testing.B) {
	s := filled(b, false)
	b.Run("orphans", func(b *testing.B) {
		timed(b, func(int) {
			if jobs, err := s.Orphans(b.Context(), 64); err != nil || len(jobs) != 64 {
				b.Fatal(len(jobs), err)
			}
		})
	})
}

func benchmarkCreate(b *testing.B, s *bolt.Store, size int) {
	row, start := strings.Repeat("x", size), time.Now().UnixNano()
	timed(b, func(i int) {
		if _, _, err := s.Create(b.Context(), newRecord(fmt.Sprintf("job-%s-%d-%d", b.Name(), start, i), "new", row), nil); err != nil {
			b.Fatal(err)
		}
	})
}

func benchmarkCommit(b *testing.B, s *bolt.Store, jobs int) {
	session, err := s.OpenSession(b.Context(), "n", time.Hour)
	if err != nil {
		b.Fatal(err)
	}
	fences := make(chan store.Fence, jobs)
	for i := range jobs {
		id := fmt.Sprintf("job-%d-%s-%d", i, session, jobs)
		if _, _, err := s.Create(b.Context(), newRecord(id, "c", strings.Repeat("x", 64<<10)), nil); err != nil {
			b.Fatal(err)
		}
		rec, err := s.Claim(b.Context(), id, session)
		if err != nil {
			b.Fatal(err)
		}
		fences <- store.Fence{JobID: id, Session: session, Epoch: rec.Epoch}
	}
	var n atomic.Int64
	b.SetParallelism((jobs + 1) / 2) // times GOMAXPROCS
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			f := <-fences
			i := n.Add(1)
			part := store.Part{
				Key: fmt.Sprintf("jobs/%s/parts/%d", f.JobID, i), Shard: int(i % 64), Rows: 100,
				Totals: store.Totals{Rows: 100, InputTokens: 5000, OutputTokens: 2000},
			}
			if err := s.CommitParts(b.Context(), f, []store.Part{part}, store.Totals{Rows: i}); err != nil {
				b.Fatal(err)
			}
			fences <- f
		}
	})
	b.ReportMetric(float64(n.Load())/b.Elapsed().Seconds(), "commits/s")
}
