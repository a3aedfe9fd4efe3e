package actors_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/internal/wait"
	"github.com/rowmill/rowmill/store"
)

// A calendar is a clock that days can be added to.
type calendar struct{ days atomic.Int64 }

func (c *calendar) now() time.Time { return time.Now().AddDate(0, 0, int(c.days.Load())) }

// Whoever has opened the results reads them whole, or gets an error.
func TestRemovalWhileResultsAreRead(t *testing.T) {
	t.Parallel()
	var clock calendar
	b := setup(t, &scripted{answer: echo}, func(cfg *actors.Config) {
		cfg.Clock, cfg.Janitor.Interval = clock.now, 5*time.Millisecond
	})
	rec := b.end(b.submit(rowmill.Spec{Inline: numbered(3)}))
	object, err := b.cfg.Blob.Open(t.Context(), rec.Artifacts["full"].Key)
	if err != nil {
		t.Fatal(err)
	}
	defer object.Close()
	clock.days.Store(100)
	wait.For(t, "the data is gone", func() bool {
		left, err := b.cfg.Blob.List(t.Context(), layout.Job(rec.Job.ID))
		return err == nil && len(left) == 0
	})
	text := make([]byte, object.Size())
	if n, err := blob.NewReader(object).Read(text); err != nil || n != len(text) || string(text[:4]) != "PAR1" {
		t.Errorf("%d of %d bytes, %v", n, len(text), err)
	}
}

// askedStore counts how often its node looks for data to remove.
type askedStore struct {
	store.Store
	asked *atomic.Int64
}

func (s askedStore) Holders(ctx context.Context) ([]string, error) {
	s.asked.Add(1)
	return s.Store.Holders(ctx)
}

func TestOneNodeRemovesData(t *testing.T) {
	t.Parallel()
	b, net := setup(t, nil), newNetwork()
	asked := map[*host]*atomic.Int64{}
	for _, name := range []string{"one", "two", "three"} {
		var n atomic.Int64
		h := b.join(net, name, nil, func(c *actors.Config) {
			c.Janitor.Interval, c.Store = 5*time.Millisecond, askedStore{c.Store, &n}
		})
		asked[h] = &n
	}
	busy := func() (found *host) {
		t.Helper()
		for _, n := range asked {
			n.Store(0)
		}
		wait.For(t, "a node looks for data to remove", func() bool {
			for h, n := range asked {
				if n.Load() >= 10 {
					found = h
				}
			}
			return found != nil
		})
		return found
	}
	busy() // until all know each other
	first := busy()
	for h, n := range asked {
		if h != first && n.Load() > 1 { // one may have been at it
			t.Errorf("%s looks %d times beside %s", h.member.ID, n.Load(), first.member.ID)
		}
	}
	first.gone.Store(true)
	delete(asked, first)
	if next := busy(); next == first {
		t.Error("nobody else took over")
	}
}
