package actors_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
)

// BenchmarkOneRowJob measures a job of one row from submission to success. It also
// measures one fsync of 4 KB on the same disk, for comparison.
func BenchmarkOneRowJob(b *testing.B) {
	f := must.Get(os.Create(b.TempDir() + "/sync"))(b)
	defer f.Close()
	var syncing time.Duration
	const syncs = 100
	page := make([]byte, 4096)
	for range syncs {
		began := time.Now()
		must.Get(f.WriteAt(page, 0))(b)
		must.Succeed(b, f.Sync())
		syncing += time.Since(began)
	}
	r := setup(b, &scripted{answer: echo})
	for b.Loop() {
		id := r.submit(rowmill.Spec{Inline: []string{"one row"}})
		for {
			rec := must.Get(r.store.Get(context.Background(), id))(b)
			if rec.Job.Status == rowmill.StatusSucceeded {
				break
			}
			time.Sleep(100 * time.Microsecond)
		}
	}
	b.ReportMetric(float64(syncing.Microseconds())/syncs, "µs/fsync")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(float64(syncing.Nanoseconds())/syncs), "fsyncs/job")
}
