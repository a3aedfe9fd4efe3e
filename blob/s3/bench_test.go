package s3

import (
	"io"
	"runtime"
	"testing"
	"time"

	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/internal/s3test"
)

// BenchmarkBig uploads and reads 1 GiB with the default settings, and reports
// the largest heap: live objects and garbage that is not collected yet. Run it
// with -benchtime=1x.
func BenchmarkBig(b *testing.B) {
	const size = 1 << 30
	bucket := openBucket(b, configFor(s3test.Start(b)))
	piece := random(1<<20 + 7)
	b.Run("write", func(b *testing.B) {
		b.SetBytes(size)
		peak := watchHeap(b)
		for b.Loop() {
			w, err := bucket.Create(b.Context(), "big", "")
			if err != nil {
				b.Fatal(err)
			}
			for left := size; left > 0; {
				n, err := w.Write(piece[:min(left, len(piece))])
				if err != nil {
					b.Fatal(err)
				}
				left -= n
			}
			if _, err := w.Commit(); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(peak())/(1<<20), "MiB-heap")
	})
	b.Run("read", func(b *testing.B) {
		b.SetBytes(size)
		peak := watchHeap(b)
		for b.Loop() {
			o, err := bucket.Open(b.Context(), "big")
			if err != nil {
				b.Fatal(err)
			}
			if n, err := io.Copy(io.Discard, struct{ io.Reader }{blob.NewReader(o)}); err != nil || n != size {
				b.Fatal(n, err)
			}
			if err := o.Close(); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(peak())/(1<<20), "MiB-heap")
	})
}

// BenchmarkSmall writes, reads and deletes objects of 64 KiB.
func BenchmarkSmall(b *testing.B) {
	bucket := openBucket(b, configFor(s3test.Start(b)))
	content := random(64 << 10)
	for b.Loop() {
		if err := put(b.Context(), bucket, "k", content); err != nil {
			b.Fatal(err)
		}
		if _, err := get(b.Context(), bucket, "k"); err != nil {
			b.Fatal(err)
		}
		if err := bucket.Delete(b.Context(), "k"); err != nil {
			b.Fatal(err)
		}
	}
}

// watchHeap samples the heap. peak returns the largest growth since the call,
// in bytes.
func watchHeap(b *testing.B) (peak func() uint64) {
	b.Helper()
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	runtime.GC()
	start := heap()
	stop, result := make(chan struct{}), make(chan uint64)
	go func() {
		most := start
		ticks := time.NewTicker(5 * time.Millisecond)
		defer ticks.Stop()
		for {
			select {
			case <-ticks.C:
				most = max(most, heap())
			case <-stop:
				result <- most - start
				return
			}
		}
	}()
	return func() uint64 {
		close(stop)
		return <-result
	}
}
