package actors_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/wait"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/deployment"
)

// A calendar is a clock that a test moves on by days.
type calendar struct{ days atomic.Int64 }

func (c *calendar) now() time.Time { return time.Now().AddDate(0, 0, int(c.days.Load())) }

// lines is a log that a test reads while it is written.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// A clockedStore has the time of a calendar.
type clockedStore struct {
	store.Store
	clock *calendar
}

func (s clockedStore) Time(ctx context.Context) (time.Time, error) { return s.clock.now(), ctx.Err() }

// A reader that has opened the results reads the whole file, or gets an error.
func TestRemovalWhileResultsAreRead(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		var clock calendar
		b := setup(t, &scripted{answer: echo}, func(cfg *actors.Config) {
			cfg.Clock, cfg.Janitor.Interval = clock.now, 5*time.Millisecond
			cfg.Store, cfg.Janitor.CatchUp = clockedStore{cfg.Store, &clock}, 1e9
		})
		rec := b.end(b.submit(rowmill.Spec{Inline: numbered(3)}))
		object := must.Get(b.cfg.Blob.Open(t.Context(), rec.Artifacts["full"].Key))(t)
		defer object.Close()
		clock.days.Store(100)
		wait.For(t, "the data is gone", func() bool {
			left, err := b.cfg.Blob.List(t.Context(), layout.JobPrefix(rec.Job.ID))
			return err == nil && len(left) == 0
		})
		text := make([]byte, object.Size())
		if n, err := blob.NewReader(object).Read(text); err != nil || n != len(text) || string(text[:4]) != "PAR1" {
			t.Errorf("%d of %d bytes, %v", n, len(text), err)
		}
	})
}

// askedStore counts the searches of its node for data to remove.
type askedStore struct {
	store.Store
	asked *atomic.Int64
}

func (s askedStore) AccountsWithData(ctx context.Context) ([]string, error) {
	s.asked.Add(1)
	return s.Store.AccountsWithData(ctx)
}

// A node with the storage of another deployment, or with a clock that is wrong by
// days, removes nothing and logs the reason once. It removes data again after the
// fault is fixed.
func TestNoDataIsRemovedInDoubt(t *testing.T) {
	t.Parallel()
	for name, hold := range map[string]func(cfg *actors.Config, held *atomic.Bool){
		"another deployment's": func(cfg *actors.Config, held *atomic.Bool) {
			cfg.Janitor.Confirm = func(context.Context) error {
				if held.Load() {
					return &deployment.MismatchError{Why: "the records were lost"}
				}
				return nil
			}
		},
		"the clock is wrong": func(cfg *actors.Config, held *atomic.Bool) {
			right := cfg.Clock
			cfg.Clock = func() time.Time {
				if held.Load() {
					return right().AddDate(0, 0, 100)
				}
				return right()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inVirtualTime(t, func(t *testing.T) {
				var clock calendar
				var held atomic.Bool
				held.Store(true)
				var log lines
				b := setup(t, &scripted{answer: echo}, func(cfg *actors.Config) {
					cfg.Clock, cfg.Janitor.Interval = clock.now, 5*time.Millisecond
					cfg.Store, cfg.Janitor.CatchUp = clockedStore{cfg.Store, &clock}, 1e9
					cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
					hold(cfg, &held)
				})
				rec := b.end(b.submit(rowmill.Spec{Inline: numbered(3)}))
				clock.days.Store(100)
				wait.For(t, "the node says why", func() bool { return b.system.StorageStatus().Held != nil })
				<-time.After(50 * time.Millisecond) // ten more rounds
				if left, err := b.cfg.Blob.List(t.Context(), layout.JobPrefix(rec.Job.ID)); err != nil || len(left) == 0 {
					t.Fatalf("%v are left, %v", left, err)
				}
				if n := strings.Count(log.String(), "NO DATA IS REMOVED"); n != 1 {
					t.Errorf("the reason was logged %d times, want once:\n%s", n, log.String())
				}
				held.Store(false)
				wait.For(t, "the data is gone", func() bool {
					left, err := b.cfg.Blob.List(t.Context(), layout.JobPrefix(rec.Job.ID))
					return err == nil && len(left) == 0
				})
				wait.For(t, "the node says that all is well", func() bool { return b.system.StorageStatus().Held == nil })
			})
		})
	}
}

func TestOneNodeRemovesData(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
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
			if h != first && n.Load() > 1 { // one may have been in progress
				t.Errorf("%s searches %d times beside %s", h.member.ID, n.Load(), first.member.ID)
			}
		}
		first.gone.Store(true)
		delete(asked, first)
		if next := busy(); next == first {
			t.Error("no other node took over")
		}
	})
}
