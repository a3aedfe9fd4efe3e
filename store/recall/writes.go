package recall

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
)

// owned makes a write of a job's owner by do, and remembers how to make it again.
// Where the store has forgotten earlier ones they come first.
func (s *Store) owned(ctx context.Context, f store.Fence, again *write, do func(context.Context, store.Fence) error) error {
	j := s.of(f.JobID)
	if !j.owns(f) { // of an owner before, which the store refuses
		return do(ctx, f)
	}
	f.Told = &j.told
	again.owners = true
	mends := j.begin(again)
	err := do(ctx, f)
	if errors.Is(err, store.ErrForgotten) || errors.Is(err, rowmill.ErrNotFound) {
		if err = s.mend(ctx, j); err == nil {
			mends = j.count()
			err = do(ctx, f)
		}
	}
	if errors.Is(err, store.ErrForgotten) || errors.Is(err, rowmill.ErrNotFound) { // it forgets faster than it is told
		err = fmt.Errorf("%w: %w", rowmill.ErrLeaseLost, err)
	}
	j.end(again, err, mends)
	return err
}

// told is owned for a write that returns the record.
func (s *Store) told(ctx context.Context, f store.Fence, do, again func(context.Context, store.Fence) (store.Record, error)) (rec store.Record, err error) {
	j := s.of(f.JobID)
	note := func(f store.Fence, r store.Record) {
		f.Told.Tell(r.Version)
		if r.Job.Status.Terminal() {
			j.ended()
		}
	}
	w := &write{do: func(ctx context.Context, f store.Fence) error {
		r, err := again(ctx, f)
		if err == nil {
			note(f, r)
		}
		return err
	}}
	err = s.owned(ctx, f, w, func(ctx context.Context, f store.Fence) (err error) {
		if rec, err = do(ctx, f); err == nil {
			note(f, rec)
		}
		return err
	})
	return rec, err
}

// whole has what the store has forgotten of a job written again, before a write
// of somebody who does not know: it would give the record a version that hides it.
func (s *Store) whole(ctx context.Context, id string) error {
	j := s.known(id)
	if j == nil {
		return nil
	}
	marks, err := s.Marks(ctx, []string{id})
	if err != nil || !j.forgotten(marks[0]) {
		return err
	}
	return s.mend(ctx, j)
}

// free makes a write that anybody may make and remembers it.
func (s *Store) free(ctx context.Context, id string, do func(context.Context) (store.Record, error)) (store.Record, error) {
	if err := s.whole(ctx, id); err != nil {
		return store.Record{}, err
	}
	rec, err := do(ctx)
	if err != nil {
		return rec, err
	}
	j := s.of(id)
	j.told.Tell(rec.Version)
	if rec.Job.Status.Terminal() {
		j.ended()
	}
	j.add(&write{do: func(ctx context.Context, _ store.Fence) error {
		_, err := do(ctx)
		return err
	}})
	return rec, nil
}

// Create stores a pending job.
func (s *Store) Create(ctx context.Context, rec store.Record, idem *store.Idempotency) (stored store.Record, existed bool, err error) {
	stored, existed, err = s.Store.Create(ctx, rec, idem)
	if err != nil || existed {
		return stored, existed, err
	}
	j := s.of(rec.Job.ID)
	j.told.Tell(stored.Version)
	j.add(&write{create: true, do: func(ctx context.Context, _ store.Fence) error {
		_, _, err := s.Store.Create(ctx, rec, idem)
		return err
	}})
	return stored, existed, nil
}

// Cancel ends a job on its client's behalf.
func (s *Store) Cancel(ctx context.Context, jobID string, now time.Time, change func(*store.Record)) (store.Record, error) {
	return s.free(ctx, jobID, func(ctx context.Context) (store.Record, error) { return s.Store.Cancel(ctx, jobID, now, change) })
}

// AddArtifact records a further artifact.
func (s *Store) AddArtifact(ctx context.Context, jobID, variant string, a store.Artifact) (store.Record, error) {
	return s.free(ctx, jobID, func(ctx context.Context) (store.Record, error) {
		return s.Store.AddArtifact(ctx, jobID, variant, a)
	})
}

// Continued notes which job takes over from one that is over. Where it is not, and
// was, the store has forgotten its end, and is told of it again by who remembers.
func (s *Store) Continued(ctx context.Context, jobID, by string) error {
	note := func(ctx context.Context) (store.Record, error) {
		if err := s.Store.Continued(ctx, jobID, by); err != nil {
			return store.Record{}, err
		}
		return s.Get(ctx, jobID)
	}
	if err := s.whole(ctx, jobID); err != nil {
		return err
	}
	rec, err := note(ctx)
	if err != nil {
		return err
	}
	j := s.of(jobID)
	j.told.Tell(rec.Version)
	j.ended()
	j.add(&write{do: func(ctx context.Context, _ store.Fence) error {
		_, err := note(ctx)
		if errors.Is(err, rowmill.ErrConflict) { // to be done yet, once its end is mended
			return fmt.Errorf("%w: the store has forgotten the end of job %s", rowmill.ErrUnavailable, jobID)
		}
		return err
	}})
	return nil
}

// KeepInput says that objects hold the input of a job that is over.
func (s *Store) KeepInput(ctx context.Context, jobID string, until time.Time) error {
	if err := s.whole(ctx, jobID); err != nil {
		return err
	}
	return s.Store.KeepInput(ctx, jobID, until)
}

// InputGone says that a job's input was removed.
func (s *Store) InputGone(ctx context.Context, jobID string, now time.Time) error {
	if err := s.whole(ctx, jobID); err != nil {
		return err
	}
	return s.Store.InputGone(ctx, jobID, now)
}

// RemoveData says that a job's data must not be read any more.
func (s *Store) RemoveData(ctx context.Context, jobID string, now time.Time) (store.Record, error) {
	return s.free(ctx, jobID, func(ctx context.Context) (store.Record, error) { return s.Store.RemoveData(ctx, jobID, now) })
}

// Claim makes session the owner of a job. What was acknowledged to it or to a
// client of this node before, and is forgotten, is written again first.
func (s *Store) Claim(ctx context.Context, jobID, session string) (store.Record, error) {
	rec, err := s.Store.Claim(ctx, jobID, session)
	if errors.Is(err, rowmill.ErrLeaseLost) || errors.Is(err, rowmill.ErrTerminal) || errors.Is(err, rowmill.ErrNotFound) {
		return rec, err
	}
	j := s.asks(jobID, session)
	if err != nil {
		return rec, err
	}
	if !j.claimed(rec) {
		return rec, nil
	}
	done, err := j.repeats(ctx)
	if err != nil {
		j.fallBehind()
		return rec, err
	}
	defer done()
	s.cfg.Log.Warn("the store had forgotten that the job was claimed; what was recorded since is written again", "job", jobID)
	fence := store.Fence{JobID: jobID, Session: session, Epoch: rec.Epoch}
	if err := s.repeat(ctx, j, fence); err != nil {
		j.fallBehind()
		return rec, err
	}
	return s.Get(ctx, jobID)
}

// Get returns a record, which may tell that a claim has taken effect.
func (s *Store) Get(ctx context.Context, jobID string) (store.Record, error) {
	rec, err := s.Store.Get(ctx, jobID)
	if j := s.known(jobID); err == nil && j != nil {
		j.found(rec)
	}
	return rec, err
}

// ListParts returns the parts of a job with those that the store has forgotten: an
// owner that does not hear of them has their rows run again.
func (s *Store) ListParts(ctx context.Context, jobID string) ([]store.Part, error) {
	j := s.known(jobID)
	if j == nil {
		return s.Store.ListParts(ctx, jobID)
	}
	mends := j.count()
	parts, err := s.Store.ListParts(ctx, jobID)
	if err != nil && !errors.Is(err, rowmill.ErrNotFound) {
		return nil, err
	}
	marks, markErr := s.Marks(ctx, []string{jobID})
	switch {
	case markErr != nil:
		return nil, markErr
	case j.forgotten(marks[0]):
		if err := s.mend(ctx, j); err != nil {
			return nil, err
		}
	case j.count() == mends:
		return parts, err
	}
	return s.Store.ListParts(ctx, jobID)
}

// Release gives a job back.
func (s *Store) Release(ctx context.Context, f store.Fence) error {
	return s.owned(ctx, f, &write{gives: true, do: s.Store.Release}, s.Store.Release)
}

// Update changes a record under a fence.
func (s *Store) Update(ctx context.Context, f store.Fence, change func(*store.Record) error) (store.Record, error) {
	do := func(ctx context.Context, f store.Fence) (store.Record, error) { return s.Store.Update(ctx, f, change) }
	return s.told(ctx, f, do, do)
}

// Finish ends a job under a fence.
func (s *Store) Finish(ctx context.Context, f store.Fence, change func(*store.Record) error) (store.Record, error) {
	do := func(ctx context.Context, f store.Fence) (store.Record, error) { return s.Store.Finish(ctx, f, change) }
	return s.told(ctx, f, do, do)
}

// Reserve sets money aside for a job. What was granted is not asked for again.
func (s *Store) Reserve(ctx context.Context, f store.Fence, usd float64, limit *float64) (store.Record, error) {
	var granted atomic.Bool
	return s.told(ctx, f, func(ctx context.Context, f store.Fence) (store.Record, error) {
		rec, err := s.Store.Reserve(ctx, f, usd, limit)
		granted.Store(err == nil)
		return rec, err
	}, func(ctx context.Context, f store.Fence) (store.Record, error) {
		if granted.Load() {
			return s.Store.Reserve(ctx, f, usd, nil)
		}
		return s.Store.Reserve(ctx, f, usd, limit)
	})
}

// CommitParts records parts.
func (s *Store) CommitParts(ctx context.Context, f store.Fence, parts []store.Part, totals store.Totals) error {
	do := func(ctx context.Context, f store.Fence) error { return s.Store.CommitParts(ctx, f, parts, totals) }
	return s.owned(ctx, f, &write{do: do}, do)
}

// ReplaceParts swaps the parts of a shard for the complete one.
func (s *Store) ReplaceParts(ctx context.Context, f store.Fence, complete store.Part) error {
	do := func(ctx context.Context, f store.Fence) error { return s.Store.ReplaceParts(ctx, f, complete) }
	return s.owned(ctx, f, &write{do: do}, do)
}
