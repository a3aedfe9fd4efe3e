package actors_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
)

// BenchmarkOneRowJob measures a job of one row from submission to success. It also
// measures one fsync of 4 KB on the same disk, for comparison.
func BenchmarkOneRowJob(b *testing.B) {
	f, err := os.Create(b.TempDir() + "/sync")
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	var syncing time.Duration
	const syncs = 100
	page := make([]byte, 4096)
	for range syncs {
		began := time.Now()
		if _, err := f.WriteAt(page, 0); err != nil {
			b.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			b.Fatal(err)
		}
		syncing += time.Since(began)
	}
	r := setup(b, &scripted{answer: echo})
	for b.Loop() {
		id := r.submit(rowmill.Spec{Inline: []string{"one row"}})
		for {
			rec, err := r.store.Get(context.Background(), id)
			if err != nil {
				b.Fatal(err)
			}
			if rec.Job.Status == rowmill.StatusSucceeded {
				break
			}
			time.Sleep(100 * time.Microsecond)
		}
	}
	b.ReportMetric(float64(syncing.Microseconds())/syncs, "µs/fsync")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(float64(syncing.Nanoseconds())/syncs), "fsyncs/job")
}
