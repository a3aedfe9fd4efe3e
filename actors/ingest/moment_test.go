package ingest

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/fair"
)

// Inputs with many rows are read a few at a time and in turns, so a small input does not
// wait for the end of a large one.
func TestInputsTakeMoments(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t)
		gate := fair.NewGate(2, 0)
		var now, most atomic.Int32 // shards that are being written
		r.Bucket = &hooked{Bucket: r.Bucket, create: func(key string) error {
			if strings.Contains(key, "/shard-") {
				most.Store(max(most.Load(), now.Add(1)))
				defer now.Add(-1)
				time.Sleep(10 * time.Millisecond)
			}
			return nil
		}}
		r.Compute = func(ctx context.Context) (func(), bool) {
			return func() { gate.Leave("a") }, gate.Enter(ctx, "a", rowmill.Production)
		}
		const large, shards = 6, 50
		ends := make(chan string, large+1)
		read := func(name string, rows int) {
			rec, fence := r.job(t, rowmill.Spec{Spooled: r.spool(t, numbered(rows)...)})
			go func() {
				if _, err := r.run(t, rec, fence); err != nil {
					t.Error(err)
				}
				ends <- name
			}()
		}
		for range large {
			read("large", shards*r.ShardRows)
		}
		time.Sleep(100 * time.Millisecond)
		read("small", 1)
		if first := <-ends; first != "small" {
			t.Error("a row waits for the end of a large input")
		}
		for range large {
			<-ends
		}
		if most.Load() > 2 {
			t.Errorf("%d inputs were read at a time, want 2", most.Load())
		}
		for range 2 {
			if !gate.Enter(t.Context(), "a", rowmill.Production) {
				t.Error("a turn was not given back")
			}
		}
	})
}
