package virtual

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowmill/rowmill/actors/peerstest"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/blobtest"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/kv/mem"
	"github.com/rowmill/rowmill/store/storetest"
)

// calm returns a world without faults.
func calm(nodes int) *world {
	w := &world{began: time.Now(), net: newNetwork(), ended: make(chan struct{})}
	w.Nodes, w.halts = make([]Node, nodes), make([]time.Time, nodes)
	for range nodes {
		w.gates = append(w.gates, &gate{counts: map[string]int{}})
	}
	w.connect()
	return w
}

// quiet returns a process of a world without faults and latencies.
func quiet() *proc {
	w := calm(1)
	w.still = true
	return newProc(w, 0, 0)
}

// The store of a node passes the suite of stores.
func TestRecords_Conformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		var mu sync.Mutex
		now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		read := func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
		engine := mem.New(read)
		return storetest.Harness{
			Open: func(testing.TB) store.Store {
				engine = engine.Reopen()
				v := newVault(engine, newLeases())
				return closing{&records{Store: v.base, proc: quiet(), vault: v}}
			},
			Advance: func(d time.Duration) { mu.Lock(); defer mu.Unlock(); now = now.Add(d) },
			Now:     read,
		}
	})
}

// closing also closes the vault.
type closing struct{ *records }

func (c closing) Close() error { return c.vault.base.Close() }

// The bucket passes the suite of buckets, except for signed URLs.
func TestBucket_Conformance(t *testing.T) {
	t.Parallel()
	blobtest.RunObjects(t, func(*testing.T) blobtest.Harness {
		s := newShelf()
		open := func() blob.Bucket {
			return newBucket(s, func(ctx context.Context, e effect) error {
				if err := ctx.Err(); err != nil {
					return err
				}
				return e.do()
			})
		}
		return blobtest.Harness{
			Bucket: open(), Reopen: func(testing.TB) blob.Bucket { return open() }, Unpinned: true,
			Leftovers: func(testing.TB) int { return 0 }, BigObject: 1 << 20,
		}
	})
}

// The network without faults passes the suite of the real network.
func TestNetwork_Conformance(t *testing.T) {
	t.Parallel()
	peerstest.Run(t, synctest.Test, func(t *testing.T, handleTimeout time.Duration) peerstest.Harness {
		w := calm(3)
		w.net.handleTimeout = handleTimeout
		starts := make([]int, 3)
		t.Cleanup(func() {
			w.all.Wait()
			time.Sleep(time.Second) // until the last cancelled request arrives
		})
		return peerstest.Harness{MaxWaiting: 4096, Start: func(t *testing.T, place int) peerstest.Process {
			p := newProc(w, place, starts[place])
			starts[place]++
			t.Cleanup(p.kill)
			p.join()
			return peerstest.Process{Peers: p.port, Serve: p.port.server.SetHandler, Leave: p.leave, Kill: p.kill}
		}}
	})
}
