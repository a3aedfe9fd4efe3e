package actors_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/wait"
	"github.com/rowmill/rowmill/store"
)

// parts returns how many records and objects of parts a job has.
func (b *rig) parts(id string) (records, objects int) {
	b.t.Helper()
	parts := must.Get(b.store.ListParts(b.t.Context(), id))(b.t)
	list := must.Get(b.cfg.Blob.List(b.t.Context(), layout.PartsPrefix(id)))(b.t)
	return len(parts), len(list)
}

// A backdated store returns finished jobs as running, like a store that has lost
// their end.
type backdated struct {
	store.Store
	forgot atomic.Bool
	asked  atomic.Int64
}

func (s *backdated) Get(ctx context.Context, id string) (store.Record, error) {
	rec, err := s.Store.Get(ctx, id)
	if err == nil && s.forgot.Load() && rec.Job.Status.IsTerminal() {
		s.asked.Add(1)
		rec.Job.Status = rowmill.StatusRunning
	}
	return rec, err
}

// Data for a second end of a job stays until the end is safe.
func TestPartsStayUntilTheEndIsSafe(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		b := setup(t, &scripted{answer: echo}, func(cfg *actors.Config) { cfg.Ownership.Settle = 2 * time.Second })
		rec := b.end(b.submit(rowmill.Spec{Inline: numbered(3)}))
		if records, objects := b.parts(rec.Job.ID); records == 0 || objects == 0 {
			t.Errorf("%d records and %d objects of parts just after the end", records, objects)
		}
		wait.For(t, "the parts are gone", func() bool {
			records, objects := b.parts(rec.Job.ID)
			return records+objects == 0
		})
	})
}

func TestAForgottenEndKeepsAll(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		var s *backdated
		b := setup(t, &scripted{answer: echo}, func(cfg *actors.Config) {
			cfg.Ownership.Settle = 100 * time.Millisecond
			s = &backdated{Store: cfg.Store}
			s.forgot.Store(true)
			cfg.Store = s
		})
		rec := b.end(b.submit(rowmill.Spec{Inline: numbered(3)}))
		wait.For(t, "the node looks whether the job is over", func() bool { return s.asked.Load() > 0 })
		must.Succeed(t, b.system.Stop(context.Background()))
		if records, objects := b.parts(rec.Job.ID); records == 0 || objects == 0 {
			t.Errorf("%d records and %d objects of parts of a job whose end was forgotten", records, objects)
		}
	})
}

// A mumbling store makes the first end of a job, but returns an error for it.
type mumbling struct {
	store.Store
	once sync.Once
}

func (s *mumbling) Finish(ctx context.Context, f store.Fence, change func(*store.Record) error) (rec store.Record, err error) {
	rec, err = s.Store.Finish(ctx, f, change)
	s.once.Do(func() { rec, err = store.Record{}, errors.Join(err, store.ErrOutcomeUnknown) })
	return rec, err
}

// A success whose acknowledgement was lost is cleaned up as a success.
func TestAnEndWithoutItsAnswerIsTheEnd(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		b := setup(t, &scripted{answer: echo}, func(cfg *actors.Config) { cfg.Store = &mumbling{Store: cfg.Store} })
		rec := b.end(b.submit(rowmill.Spec{Inline: numbered(3)}))
		if rec.Job.Status != rowmill.StatusSucceeded {
			t.Fatalf("the job is %s", rec.Job.Status)
		}
		wait.For(t, "the parts are gone", func() bool {
			records, objects := b.parts(rec.Job.ID)
			return records+objects == 0
		})
	})
}

// An owner that was lost at the end of a job may have made result files that
// another owner made again. Only the files in the record stay.
func TestResultsOfALostOwnerGo(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		b := setup(t, &scripted{answer: echo}, func(cfg *actors.Config) { cfg.Ownership.Settle = 200 * time.Millisecond })
		id := b.submit(rowmill.Spec{Inline: numbered(3)})
		for _, name := range []string{layout.Full, layout.Rows} {
			w := must.Get(b.cfg.Blob.Create(t.Context(), layout.NewArtifactKey(id, name, 1), layout.Parquet))(t)
			must.Get(w.Commit())(t)
		}
		rec := b.end(id)
		wait.For(t, "the others are gone", func() bool {
			objects, err := b.cfg.Blob.List(t.Context(), layout.JobPrefix(id)+"results/")
			return err == nil && len(objects) == len(rec.Artifacts)
		})
		for name, a := range rec.Artifacts {
			if _, err := b.cfg.Blob.Stat(t.Context(), a.Key); err != nil {
				t.Errorf("%s, which counts: %v", name, err)
			}
		}
	})
}

// A node on the losing side of a partition reads an old record, while a later owner has
// written parts and results that the node does not know.
func TestObjectsOfALaterOwnerStay(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		b := setup(t, &scripted{answer: echo}, func(cfg *actors.Config) { cfg.Ownership.Settle = 200 * time.Millisecond })
		id := b.submit(rowmill.Spec{Inline: numbered(3)})
		const epoch = 1 << 50
		later := []string{layout.NewArtifactKey(id, layout.Full, epoch), layout.NewArtifactKey(id, layout.Rows, epoch), layout.NewPartKey(id, 0, epoch)}
		for _, key := range later {
			w := must.Get(b.cfg.Blob.Create(t.Context(), key, layout.Parquet))(t)
			must.Get(w.Commit())(t)
		}
		if rec := b.end(id); rec.Job.Status != rowmill.StatusSucceeded {
			t.Fatalf("the job is %s: %+v", rec.Job.Status, rec.Job.FailureReason)
		}
		wait.For(t, "the node's own parts are gone", func() bool {
			records, objects := b.parts(id)
			return records == 0 && objects == 1
		})
		must.Succeed(t, b.system.Stop(context.Background()))
		for _, key := range later {
			if _, err := b.cfg.Blob.Stat(t.Context(), key); err != nil {
				t.Errorf("%s: %v", key, err)
			}
		}
	})
}

// A replaced store refuses Confirm, as a server does that a failover has replaced.
type replaced struct {
	store.Store
	is    atomic.Bool
	asked atomic.Int64
}

func (s *replaced) ConfirmPrimary(context.Context) error {
	s.asked.Add(1)
	if s.is.Load() {
		return rowmill.ErrUnavailable
	}
	return nil
}

func TestAReplacedStoreRemovesNothing(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		s := &replaced{}
		s.is.Store(true)
		b := setup(t, &scripted{answer: echo}, func(cfg *actors.Config) {
			cfg.Ownership.Settle = 100 * time.Millisecond
			s.Store, cfg.Store = cfg.Store, s
		})
		id := b.end(b.submit(rowmill.Spec{Inline: numbered(3)})).Job.ID
		wait.For(t, "the node has asked", func() bool { return s.asked.Load() > 1 })
		if records, objects := b.parts(id); records == 0 || objects == 0 {
			t.Errorf("%d records and %d objects of parts", records, objects)
		}
		s.is.Store(false)
		wait.For(t, "the parts are gone", func() bool {
			records, objects := b.parts(id)
			return records+objects == 0
		})
	})
}

// TestALatePartOfTheLosingSideGoes tests that a node removes a part that it wrote after the other side
// of a partition had ended the job and had cleaned up: as soon as the store confirms the end, and
// not with the sweep of the next day.
func TestALatePartOfTheLosingSideGoes(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		s := &replaced{}
		b := setup(t, &scripted{answer: echo}, func(cfg *actors.Config) {
			cfg.Ownership.Settle = 2 * time.Second
			s.Store, cfg.Store = cfg.Store, s
		})
		rec := b.end(b.submit(rowmill.Spec{Inline: numbered(3)}))
		id := rec.Job.ID
		b.await(id, func(r store.Record) bool { return r.IsCleanedUp() })
		s.is.Store(true)
		w := must.Get(b.cfg.Blob.Create(t.Context(), layout.NewPartKey(id, 0, rec.Epoch-1), layout.Parquet))(t)
		must.Get(w.Commit())(t)
		asked := s.asked.Load()
		b.system.NotifyCancelled(id)
		wait.For(t, "the node has asked", func() bool { return s.asked.Load() > asked })
		if _, objects := b.parts(id); objects != 1 {
			t.Errorf("%d parts while the store confirms nothing", objects)
		}
		s.is.Store(false)
		began := time.Now()
		wait.For(t, "the part is gone", func() bool {
			_, objects := b.parts(id)
			return objects == 0
		})
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("the part was there for %v", took)
		}
	})
}

// A clinging store refuses to drop parts until lets is set.
type clinging struct {
	store.Store
	lets  atomic.Bool
	asked atomic.Int64
}

func (s *clinging) DropParts(ctx context.Context, id string) error {
	if !s.lets.Load() {
		s.asked.Add(1)
		return errors.New("not now")
	}
	return s.Store.DropParts(ctx, id)
}

// The janitor removes data that the owner of a job could not remove at its end, and
// tries again until nothing is left.
func TestCleaningUpIsOverWhenAllIsGone(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		var clock calendar
		var s *clinging
		b := setup(t, &scripted{answer: echo}, func(cfg *actors.Config) {
			s = &clinging{Store: clockedStore{cfg.Store, &clock}}
			cfg.Store, cfg.Clock, cfg.Janitor.Interval, cfg.Janitor.CatchUp = s, clock.now, 5*time.Millisecond, 1e9
		})
		id := b.end(b.submit(rowmill.Spec{Inline: numbered(3)})).Job.ID
		wait.For(t, "the owner has tried", func() bool { return s.asked.Load() > 0 })
		clock.days.Store(1)
		wait.For(t, "the janitor has tried", func() bool { return s.asked.Load() > 1 })
		s.lets.Store(true)
		wait.For(t, "the parts are gone", func() bool {
			records, objects := b.parts(id)
			return records+objects == 0
		})
		b.cleaned(id, "input/", "parts/")
	})
}

// Each end of a job is announced, again after an error, and before any of the job's
// data is removed.
func TestEndsAreAnnounced(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		var mu sync.Mutex
		told := map[string]int{}
		b := setup(t, &scripted{answer: echo}, func(cfg *actors.Config) {
			cfg.Ownership.Settle = 50 * time.Millisecond
			cfg.Ended = func(_ context.Context, rec *store.Record) error {
				mu.Lock()
				defer mu.Unlock()
				if told[rec.Job.ID]++; !rec.Job.Status.IsTerminal() || rec.IsCleanedUp() {
					t.Errorf("announced a job that is %s, tidied %v", rec.Job.Status, rec.IsCleanedUp())
				}
				if told[rec.Job.ID] == 1 {
					return errors.New("not now")
				}
				return nil
			}
		})
		done := b.end(b.submit(rowmill.Spec{Inline: numbered(3)}))
		cancelled := b.submit(rowmill.Spec{Inline: numbered(3), Model: rowmill.Model{ID: "of nobody"}})
		must.Get(b.store.Cancel(t.Context(), cancelled, time.Now(), nil))(t)
		b.system.NotifyCancelled(cancelled)
		wait.For(t, "both were told of again", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return told[done.Job.ID] >= 2 && told[cancelled] >= 2
		})
	})
}
