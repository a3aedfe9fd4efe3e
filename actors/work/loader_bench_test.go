package work

import (
	"bytes"
	"context"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/assign"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/shard"
)

// BenchmarkLoad measures the cost of loading a row of 1 KB from a shard of 8 MiB: in
// input order, and with the shard's rows dealt in 65 shares.
func BenchmarkLoad(b *testing.B) {
	const rows = 8192
	var object bytes.Buffer
	w := shard.NewWriter(&object, 0, false)
	for range rows {
		must.Succeed(b, w.Add(strings.Repeat("x", 1000), rowmill.ID{}))
	}
	must.Succeed(b, w.Close())
	infos := []shard.ManifestEntry{{Rows: rows, Bytes: int64(object.Len())}}
	for _, shares := range []int{1, 65} {
		b.Run(map[int]string{1: "ordered", 65: "dealt"}[shares], func(b *testing.B) {
			others := roaring.New()
			for row := range uint32(rows - 1) {
				if rand.IntN(shares) > 0 {
					others.Add(row)
				}
			}
			span := assign.RowSpan{From: 0, To: rows, Except: assign.NewRowSet(others)}
			b.ReportAllocs()
			n := 0
			for n < b.N {
				l := NewLoader(memory(1<<30), infos, nil, func(context.Context, assign.RowSpan) (*shard.Reader, error) {
					return shard.NewReader(bytes.NewReader(object.Bytes()), int64(object.Len()), nil)
				})
				for l.Add([]assign.RowSpan{span.TrimBefore(0)}, true); !l.Empty(); {
					load, _ := l.Next(true)
					must.Succeed(b, load.Run(b.Context()))
					n += len(l.FinishLoad(load))
				}
			}
		})
	}
}
