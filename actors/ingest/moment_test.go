package ingest

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/fair"
	"github.com/rowmill/rowmill/blob"
)

// A countingBucket counts the shards that are being written at the same time. Each write
// takes a while.
type countingBucket struct {
	blob.Bucket
	now, most atomic.Int32
}

func (b *countingBucket) Create(ctx context.Context, key, contentType string) (blob.Writer, error) {
	if strings.Contains(key, "/shard-") {
		b.most.Store(max(b.most.Load(), b.now.Add(1)))
		defer b.now.Add(-1)
		time.Sleep(10 * time.Millisecond)
	}
	return b.Bucket.Create(ctx, key, contentType)
}

// Inputs with many rows are read a few at a time and in turns, so a small input does not
// wait for the end of a large one.
func TestInputsTakeMoments(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t)
		bucket, gate := &countingBucket{Bucket: r.Bucket}, fair.NewGate(2, 0)
		r.Bucket = bucket
		r.Compute = func(ctx context.Context) (func(), bool) {
			return func() { gate.Leave("a") }, gate.Enter(ctx, "a", rowmill.Production)
		}
		const large, shards = 6, 50
		ends := make(chan string, large+1)
		read := func(name string, rows int) {
			texts := make([]string, rows)
			for i := range texts {
				texts[i] = fmt.Sprint("row ", i)
			}
			rec, fence := r.job(t, rowmill.Spec{Spooled: r.spool(t, texts...)})
			counter := tokenCounter(t, &rec.Spec, words{})
			go func() {
				if _, err := Run(t.Context(), r.Config, rec, fence, counter); err != nil {
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
		if most := bucket.most.Load(); most > 2 {
			t.Errorf("%d inputs were read at a time, want 2", most)
		}
		for range 2 {
			if !gate.Enter(t.Context(), "a", rowmill.Production) {
				t.Error("a turn was not given back")
			}
		}
	})
}
