package bolt_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store/bolt"
	"github.com/rowmill/rowmill/store/storetest"
)

// stored is the number of jobs in the store for the benchmarks.
const stored = 100_000

// filled opens a store with jobs of ten accounts, ended or waiting.
func filled(b *testing.B, over bool) *bolt.Store {
	b.Helper()
	path := filepath.Join(b.TempDir(), "records.db")
	s := open(b, bolt.Config{Path: path})
	storetest.FillJobs(b, s, stored, over)
	if info, err := os.Stat(path); err == nil {
		b.Logf("%d jobs: %d MiB", stored, info.Size()>>20)
	}
	return s
}

// BenchmarkFsync measures the disk alone: a page is written and synced.
func BenchmarkFsync(b *testing.B) {
	f := must.Get(os.Create(filepath.Join(b.TempDir(), "f")))(b)
	defer func() { _ = f.Close() }()
	page := make([]byte, 4096)
	storetest.MeasureLatency(b, func(i int) {
		must.Get(f.WriteAt(page, int64(i%1000)*4096))(b)
		must.Succeed(b, f.Sync())
	})
}

func BenchmarkOver(b *testing.B) {
	s := filled(b, true)
	b.Run("create 1 KB", func(b *testing.B) { storetest.TimeCreate(b, s, 1<<10) })
	b.Run("create 64 KB", func(b *testing.B) { storetest.TimeCreate(b, s, 64<<10) })
	b.Run("get", func(b *testing.B) { storetest.TimeGet(b, s, stored) })
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
				if _, _, err := s.Create(b.Context(), storetest.NewRecord(fmt.Sprintf("job-%d-%d", start, i), "w", "x"), nil); err != nil {
					ended <- err
					return
				}
			}
		}()
		storetest.TimeGet(b, s, stored)
		close(stop)
		must.Succeed(b, <-ended)
	})
	b.Run("list 100", func(b *testing.B) { storetest.TimeList(b, s) })
	b.Run("orphans", func(b *testing.B) { storetest.TimeOrphans(b, s, false) })
	uncounted := func() func(int64) { return func(int64) {} }
	b.Run("commit part, 64 KB inline", func(b *testing.B) { storetest.TimeCommit(b, s, 1, uncounted) })
	b.Run("commit part x16", func(b *testing.B) { storetest.TimeCommit(b, s, 16, uncounted) })
}

func BenchmarkWaiting(b *testing.B) {
	s := filled(b, false)
	b.Run("orphans", func(b *testing.B) { storetest.TimeOrphans(b, s, true) })
}

// BenchmarkPoll measures the check that a node makes each second for its subscribers:
// 1,000 open jobs of ten accounts.
func BenchmarkPoll(b *testing.B) {
	s := open(b, bolt.Config{Path: filepath.Join(b.TempDir(), "records.db")})
	storetest.FillJobs(b, s, 1000, false)
	storetest.TimePoll(b, s, 1000)
}
