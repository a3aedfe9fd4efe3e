package redis_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rowmill/rowmill/internal/redistest"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/redis"
)

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

// counted adds what the server has done since for each of n: commands, and
// bytes received, sent, and appended to its file.
func counted(b *testing.B, server *redistest.Server) (report func(n int64)) {
	b.Helper()
	names := map[string]string{
		"total_commands_processed": "commands/op", "total_net_input_bytes": "in-B/op",
		"total_net_output_bytes": "out-B/op", "aof_current_size": "file-B/op",
	}
	read := func() map[string]int64 {
		values := map[string]int64{}
		for line := range strings.SplitSeq(command(b, server, "INFO"), "\r\n") {
			name, text, _ := strings.Cut(line, ":")
			if _, wanted := names[name]; wanted {
				n, err := strconv.ParseInt(text, 10, 64)
				if err != nil {
					b.Fatal(err)
				}
				values[name] = n
			}
		}
		return values
	}
	before := read()
	return func(n int64) {
		after := read()
		for name, unit := range names {
			b.ReportMetric(float64(after[name]-before[name])/float64(n), unit)
		}
	}
}

// stored is how many jobs the benchmarks find in the store, of ten accounts.
const stored = 20_000

func jobID(i int) string { return fmt.Sprintf("job-%08d", i) }

func filled(b *testing.B, server *redistest.Server, over bool) *redis.Store {
	b.Helper()
	s := open(b, redis.Config{URL: server.URL()})
	row := strings.Repeat("x", 1000)
	var next atomic.Int64
	const writers = 64
	failed := make(chan error, writers)
	for range writers {
		go func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= stored {
					failed <- nil
					return
				}
				_, _, err := s.Create(b.Context(), newRecord(jobID(i), fmt.Sprint("account-", i%10), row), nil)
				if err == nil && over {
					_, err = s.Cancel(b.Context(), jobID(i), time.Now(), nil)
				}
				if err != nil {
					failed <- err
					return
				}
			}
		}()
	}
	for range writers {
		if err := <-failed; err != nil {
			b.Fatal(err)
		}
	}
	return s
}

func BenchmarkStore(b *testing.B) {
	for _, fsync := range []string{"always", "everysec"} {
		b.Run(fsync, func(b *testing.B) {
			server := redistest.Start(b, "appendfsync "+fsync, "auto-aof-rewrite-percentage 0")
			s := filled(b, server, true)
			b.Run("create 1 KB", func(b *testing.B) { benchmarkCreate(b, server, s, 1<<10) })
			b.Run("create 64 KB", func(b *testing.B) { benchmarkCreate(b, server, s, 64<<10) })
			b.Run("get", func(b *testing.B) {
				timed(b, func(i int) {
					if _, err := s.Get(b.Context(), jobID(i*7919%stored)); err != nil {
						b.Fatal(err)
					}
				})
			})
			b.Run("list 100", func(b *testing.B) {
				timed(b, func(int) {
					if jobs, _, err := s.List(b.Context(), "account-3", 100, ""); err != nil || len(jobs) != 100 {
						b.Fatal(len(jobs), err)
					}
				})
			})
			b.Run("renew", func(b *testing.B) {
				session := newSession(b, s)
				timed(b, func(int) {
					if err := s.RenewSession(b.Context(), session); err != nil {
						b.Fatal(err)
					}
				})
			})
			for _, jobs := range []int{1, 16, 64} {
				b.Run(fmt.Sprintf("commit part x%d", jobs), func(b *testing.B) { benchmarkCommit(b, server, s, jobs) })
			}
		})
	}
}

// BenchmarkOrphans looks for work among jobs that wait, and some that are owned.
func BenchmarkOrphans(b *testing.B) {
	server := redistest.Start(b, "appendfsync everysec")
	s := filled(b, server, false)
	session := newSession(b, s)
	for i := range 1000 {
		if _, err := s.Claim(b.Context(), jobID(i), session); err != nil {
			b.Fatal(err)
		}
	}
	report := counted(b, server)
	n := int64(0)
	timed(b, func(int) {
		n++
		if jobs, err := s.Orphans(b.Context(), 64); err != nil || len(jobs) != 64 {
			b.Fatal(len(jobs), err)
		}
	})
	report(n)
}

func benchmarkCreate(b *testing.B, server *redistest.Server, s *redis.Store, size int) {
	row, start := strings.Repeat("x", size), time.Now().UnixNano()
	report := counted(b, server)
	n := int64(0)
	timed(b, func(i int) {
		n++
		if _, _, err := s.Create(b.Context(), newRecord(fmt.Sprintf("job-%d-%d", start, i), "new", row), nil); err != nil {
			b.Fatal(err)
		}
	})
	report(n)
}

// benchmarkCommit commits to jobs of 64 KB of input from as many goroutines.
func benchmarkCommit(b *testing.B, server *redistest.Server, s *redis.Store, jobs int) {
	session := newSession(b, s)
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
	report := counted(b, server)
	var n atomic.Int64
	b.SetParallelism((jobs + 1) / 2) // times GOMAXPROCS
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			f := <-fences
			i := n.Add(1)
			part := store.Part{
				Key: fmt.Sprintf("jobs/%s/parts/%d", f.JobID, i), Shard: int(i % 64), Rows: 100, Size: 50_000,
				Totals: store.Totals{Rows: 100, InputTokens: 5000, OutputTokens: 2000},
			}
			if err := s.CommitParts(b.Context(), f, []store.Part{part}, store.Totals{Rows: i, InputTokens: i, OutputTokens: i}); err != nil {
				b.Fatal(err)
			}
			fences <- f
		}
	})
	b.ReportMetric(float64(n.Load())/b.Elapsed().Seconds(), "commits/s")
	report(n.Load())
}
