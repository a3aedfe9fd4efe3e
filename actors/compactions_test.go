package actors_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/internal/must"
)

// A stingyBucket copies no short ranges.
type stingyBucket struct{ blob.Bucket }

func (stingyBucket) MinStorageCopySize() int64 { return 2 << 10 }

// joining sets limits that give many parts, and joins of parts.
func joining(c *actors.Config) {
	c.Blob = stingyBucket{c.Blob}
	c.Parts.Joined = 64 << 10
	c.Parts.Interval = 20 * time.Millisecond
	c.Shards.Rows = 100
}

// merges returns how many compactions a node has run.
func (h *host) merges(t *testing.T) (n uint64) {
	t.Helper()
	families := must.Get(h.registry.Gather())(t)
	for _, f := range families {
		if f.GetName() == "rowmill_merge_seconds" {
			n = f.GetMetric()[0].GetHistogram().GetSampleCount()
		}
	}
	return n
}

// Nodes that wrote parts merge them. If such a node fails, another node or the
// owner merges them, and every row is in the result once.
func TestPartsAreMergedWhereRowsRan(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		befalls func(one *host)
		here    bool // the owner merges
	}{
		{"nothing", func(*host) {}, false},
		{"does not answer", func(h *host) { h.mute.Store(true) }, false},
		{"cannot write", func(h *host) { h.balks.Store(true) }, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			inVirtualTime(t, func(t *testing.T) {
				b, net := setup(t, nil), newNetwork()
				owner := b.join(net, "owner", nil, joining)
				gpus := func(c *actors.Config) { c.Ownership.OwnsNone = true }
				// One answers after two has written parts. Otherwise the owner
				// could know only one as a writer; if one cannot be asked, the
				// owner would merge itself.
				begun, rows, answer := make(chan struct{}), atomic.Int64{}, slowly(2*time.Millisecond)
				after := func(ctx context.Context, row string, try int) (engine.Reply, error) {
					select {
					case <-ctx.Done():
					case <-begun:
					}
					return answer(ctx, row, try)
				}
				first := func(ctx context.Context, row string, try int) (engine.Reply, error) {
					if rows.Add(1) == 500 {
						close(begun)
					}
					return answer(ctx, row, try)
				}
				one := b.join(net, "one", &scripted{answer: after}, gpus, joining)
				two := b.join(net, "two", &scripted{answer: first}, gpus, joining)
				test.befalls(one)
				texts := numbered(3000)
				b.checkEcho(b.end(b.submitTo(owner, rowmill.Spec{Spooled: b.spool(texts)})), texts)
				ranOnce(t, texts, one, two)
				here, a, z := owner.merges(t), one.merges(t), two.merges(t)
				t.Logf("%d merges at the owner, %d and %d elsewhere", here, a, z)
				if here > 0 != test.here || z == 0 || test.name == "nothing" && a == 0 {
					t.Errorf("%d merges at the owner, %d and %d elsewhere", here, a, z)
				}
			})
		})
	}
}
