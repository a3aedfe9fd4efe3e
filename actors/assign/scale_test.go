package assign

import (
	"fmt"
	"testing"
	"time"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/shard"
)

// BenchmarkOwnerReport measures the cost of a report for the owner of a job with a
// billion rows: a heartbeat with a part of 1,000 rows arrives, the part is committed,
// new rows are assigned and the answer is made. Each worker has its share of the rows.
func BenchmarkOwnerReport(b *testing.B) {
	for _, workers := range []int{10, 100, 1_000, 10_000} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			c := newCrowd(b, workers)
			c.took = 0
			for i := 0; b.Loop(); i++ {
				c.report(b, c.hands[i%workers])
			}
			b.ReportMetric(float64(c.took.Nanoseconds())/float64(b.N), "owner-ns/op")
		})
	}
}

// A crowd is an owner with many workers.
type crowd struct {
	owner *Owner
	hands []*hand
	took  time.Duration // time that the owner used
}

const (
	crowdShards    = 61_036 // for a billion rows
	crowdShardRows = 16_384
	crowdPart      = 1_000
)

func newCrowd(tb testing.TB, workers int) *crowd {
	tb.Helper()
	shards := make([]shard.ManifestEntry, crowdShards)
	for i := range shards {
		shards[i] = shard.ManifestEntry{First: int64(i) * crowdShardRows, Rows: crowdShardRows, Bytes: crowdShardRows * 300}
	}
	o := must.Get(NewOwner(shards, nil))(tb)
	o.Assigning, o.Nodes = true, workers
	c := &crowd{owner: o}
	for i := range workers {
		name := fmt.Sprintf("node-%05d-1", i)
		c.hands = append(c.hands, &hand{Worker: NewWorker(name, 1, "s"), name: name})
	}
	for range 3 {
		for _, h := range c.hands {
			c.report(tb, h)
		}
	}
	return c
}

// report simulates the work between two heartbeats of a worker, and sends the next one.
func (c *crowd) report(tb testing.TB, h *hand) {
	for n, rows := range h.unsent.shards {
		some := rows.Clone()
		if last, err := rows.Select(crowdPart); err == nil {
			some.RemoveRange(uint64(last), 1<<32)
		}
		for _, rel := range some.ToArray() {
			h.MarkFinished(n, int(rel))
		}
		h.unsent.remove(n, some)
		h.finished.Add(n, some)
		h.writePart()
		break
	}
	r := h.report()
	r.Want = h.unsent.Count() < 4*crowdPart
	began := time.Now()
	a, parts := c.owner.HandleHeartbeat(r, time.Unix(0, 0))
	if a == nil {
		tb.Fatal("a worker has to stop")
	}
	for _, p := range parts {
		c.owner.MarkCommitted(p.Worker, p.Part, time.Unix(0, 0))
	}
	c.owner.AssignRows()
	m := c.owner.Assignment(a)
	c.took += time.Since(began)
	m.Epoch = 1
	h.obeyOrders(m)
}
