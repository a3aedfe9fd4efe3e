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

// minded reports whether a caller minds by itself what is forgotten of its writes.
func minded(ctx context.Context) bool { return store.WriterOf(ctx) != nil }

// owned makes a write of a job's owner by do, and remembers how to make it again.
func (s *Store) owned(ctx context.Context, f store.Fence, again *write, do func(context.Context, store.Fence) error) error {
	j := s.of(f.JobID)
	if !j.owns(f) { // of an owner before, which the store refuses
		return do(ctx, f)
	}
	again.owners = true
	err := s.write(ctx, f.JobID, again, func(ctx context.Context) error { return do(ctx, f) })
	if errors.Is(err, rowmill.ErrNotFound) { // and cannot be stored again
		err = fmt.Errorf("%w: %w", rowmill.ErrLeaseLost, err)
	}
	return err
}

// write makes a write by do, and remembers how to make it again. Where the store
// has forgotten earlier ones they come first.
func (s *Store) write(ctx context.Context, id string, again *write, do func(context.Context) error) error {
	if minded(ctx) {
		return do(ctx)
	}
	j, mends := s.begins(id, again)
	ctx = store.As(ctx, j.writer)
	err := do(ctx)
	if errors.Is(err, store.ErrForgotten) || errors.Is(err, rowmill.ErrNotFound) && (again.owners || j.writer.Acked() > 0) {
		if err = s.mend(ctx, j); err == nil || errors.Is(err, errNotOver) {
			mends = j.count()
			err = do(ctx)
		}
	}
	j.end(again, err, mends)
	if errors.Is(err, store.ErrForgotten) { // it forgets faster than it is told: to be repeated
		err = fmt.Errorf("%w: %w", rowmill.ErrUnavailable, err)
	}
	return err
}

// told is owned for a write that returns the record. brings says which end it is
// that the write brings, nil for none.
func (s *Store) told(ctx context.Context, f store.Fence, brings func(store.Mark) bool, do, again func(context.Context, store.Fence) (store.Record, error)) (rec store.Record, err error) {
	j := s.of(f.JobID)
	w := &write{brings: brings, do: func(ctx context.Context, f store.Fence) error {
		rec, err := again(ctx, f)
		if err == nil && rec.Job.Status.Terminal() {
			j.ended()
		}
		return err
	}}
	err = s.owned(ctx, f, w, func(ctx context.Context, f store.Fence) (err error) {
		if rec, err = do(ctx, f); err == nil && rec.Job.Status.Terminal() {
			j.ended()
		}
		return err
	})
	return rec, err
}

// Create stores a pending job.
func (s *Store) Create(ctx context.Context, rec store.Record, idem *store.Idempotency) (stored store.Record, existed bool, err error) {
	if minded(ctx) {
		return s.Store.Create(ctx, rec, idem)
	}
	w := &write{create: true, do: s.creates(rec, idem)}
	j, mends := s.begins(rec.Job.ID, w)
	stored, existed, err = s.Store.Create(store.As(ctx, j.writer), rec, idem)
	said := err
	if existed {
		said = rowmill.ErrConflict
	}
	j.end(w, said, mends)
	if existed {
		s.vouch(stored, idem)
	}
	return stored, existed, err
}

// Lookup returns the record that an idempotency key led to, of which the client is
// told that it was stored.
func (s *Store) Lookup(ctx context.Context, account string, idem store.Idempotency) (store.Record, error) {
	rec, err := s.Store.Lookup(ctx, account, idem)
	if err == nil {
		s.vouch(rec, &idem)
	}
	return rec, err
}

// vouch remembers a job that another node may have stored as if this one had. One
// that is over cannot be made again from its record.
func (s *Store) vouch(rec store.Record, idem *store.Idempotency) {
	if rec.Job.Status.Terminal() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.locked(rec.Job.ID).vouch(&write{create: true, acked: true, do: s.creates(fresh(rec), idem)})
}

// creates is how a job is stored again.
func (s *Store) creates(rec store.Record, idem *store.Idempotency) func(context.Context, store.Fence) error {
	return func(ctx context.Context, _ store.Fence) error {
		got, existed, err := s.Store.Create(ctx, rec, idem)
		if existed && got.Job.ID != rec.Job.ID || errors.Is(err, rowmill.ErrConflict) { // its key leads elsewhere by now
			if rec.Spec.Continue != nil { // another job may continue the same job by now
				continued := *rec.Spec.Continue
				continued.Again, rec.Spec.Continue = true, &continued
			}
			_, _, err = s.Store.Create(ctx, rec, nil)
		}
		return err
	}
}

// Cancel ends a job on its client's behalf. A client that is told that it was
// cancelled before may count on it as well.
func (s *Store) Cancel(ctx context.Context, jobID string, now time.Time, change func(*store.Record)) (rec store.Record, err error) {
	again := func(ctx context.Context, _ store.Fence) error {
		_, err := s.Store.Cancel(ctx, jobID, now, change)
		return err
	}
	cancels := func(m store.Mark) bool { return m.Status == rowmill.StatusCancelled }
	err = s.write(ctx, jobID, &write{brings: cancels, do: again}, func(ctx context.Context) (err error) {
		rec, err = s.Store.Cancel(ctx, jobID, now, change)
		return err
	})
	switch {
	case err == nil:
		s.of(jobID).ended()
	case errors.Is(err, rowmill.ErrTerminal) && rec.Job.Status == rowmill.StatusCancelled && !minded(ctx):
		s.of(jobID).vouchEnd(&write{brings: cancels, do: again})
	}
	return rec, err
}

// AddArtifact records a further artifact.
func (s *Store) AddArtifact(ctx context.Context, jobID, variant string, a store.Artifact) (rec store.Record, err error) {
	err = s.write(ctx, jobID, &write{do: func(ctx context.Context, _ store.Fence) error {
		_, err := s.Store.AddArtifact(ctx, jobID, variant, a)
		return err
	}}, func(ctx context.Context) (err error) {
		rec, err = s.Store.AddArtifact(ctx, jobID, variant, a)
		return err
	})
	if err == nil {
		s.of(jobID).ended()
	}
	return rec, err
}

// ReplaceArtifact records an artifact that was made again.
func (s *Store) ReplaceArtifact(ctx context.Context, jobID, variant string, was, is store.Artifact) (rec store.Record, err error) {
	err = s.write(ctx, jobID, &write{do: func(ctx context.Context, _ store.Fence) error {
		_, err := s.Store.ReplaceArtifact(ctx, jobID, variant, was, is)
		return err
	}}, func(ctx context.Context) (err error) {
		rec, err = s.Store.ReplaceArtifact(ctx, jobID, variant, was, is)
		return err
	})
	return rec, err
}

// Continued notes which job takes over from one that is over.
func (s *Store) Continued(ctx context.Context, jobID, by string) error {
	note := func(ctx context.Context) error { return s.Store.Continued(ctx, jobID, by) }
	return s.afterEnd(ctx, jobID, note, note)
}

// RemoveData says that a job's data must not be read any more.
func (s *Store) RemoveData(ctx context.Context, jobID string, now time.Time) (rec store.Record, err error) {
	err = s.afterEnd(ctx, jobID, func(ctx context.Context) (err error) {
		rec, err = s.Store.RemoveData(ctx, jobID, now)
		return err
	}, func(ctx context.Context) error {
		_, err := s.Store.RemoveData(ctx, jobID, now)
		return err
	})
	return rec, err
}

// afterEnd makes a write by do that only a job takes that is over, and remembers to
// make it by again. Where it is not over, and was, the store has forgotten its end,
// and is told of it again by who remembers: until then the write is still due.
func (s *Store) afterEnd(ctx context.Context, jobID string, do, again func(context.Context) error) error {
	err := s.write(ctx, jobID, &write{do: func(ctx context.Context, _ store.Fence) error {
		err := again(ctx)
		if errors.Is(err, rowmill.ErrConflict) {
			return errNotOver
		}
		return err
	}}, do)
	if err == nil {
		s.of(jobID).ended()
	}
	return err
}

// DropParts removes the part records of a job that is over.
func (s *Store) DropParts(ctx context.Context, jobID string) error {
	drop := func(ctx context.Context) error { return s.Store.DropParts(ctx, jobID) }
	return s.write(ctx, jobID, &write{do: func(ctx context.Context, _ store.Fence) error { return drop(ctx) }}, drop)
}

// Claim makes session the owner of a job. What was acknowledged to it or to a
// client of this node before, and is forgotten, is written again first.
func (s *Store) Claim(ctx context.Context, jobID, session string, by store.Adopter) (store.Record, error) {
	if minded(ctx) {
		return s.Store.Claim(ctx, jobID, session, by)
	}
	w := store.NewWriter(s.name)
	rec, err := s.Store.Claim(store.As(ctx, w), jobID, session, by)
	if errors.Is(err, rowmill.ErrLeaseLost) || errors.Is(err, rowmill.ErrTerminal) || errors.Is(err, rowmill.ErrNotFound) {
		return rec, err
	}
	j := s.asks(jobID, session)
	if err != nil {
		return rec, err
	}
	if !j.claimed(rec, w.Acked()) {
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
	if err := s.repeat(ctx, j, fence); err != nil && !errors.Is(err, errNotOver) {
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

// Head returns what clients see of the record that Get returns.
func (s *Store) Head(ctx context.Context, jobID string) (*store.Head, error) {
	if s.known(jobID) == nil {
		return s.Store.Head(ctx, jobID)
	}
	rec, err := s.Get(ctx, jobID)
	return rec.Head(), err
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
	stand := j.stands()
	marks, markErr := s.Marks(ctx, []string{jobID}, s.name)
	switch {
	case markErr != nil:
		return nil, markErr
	case stand.forgotten(marks[0]):
		if err := s.mend(ctx, j); err != nil && !errors.Is(err, errNotOver) {
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
	return s.told(ctx, f, nil, do, do)
}

// Finish ends a job under a fence.
func (s *Store) Finish(ctx context.Context, f store.Fence, change func(*store.Record) error) (store.Record, error) {
	do := func(ctx context.Context, f store.Fence) (store.Record, error) { return s.Store.Finish(ctx, f, change) }
	finishes := func(m store.Mark) bool {
		return m.Status != rowmill.StatusCancelled && m.Session == f.Session && m.Epoch == f.Epoch
	}
	return s.told(ctx, f, finishes, do, do)
}

// Reserve sets money aside for a job. What was granted is not asked for again.
func (s *Store) Reserve(ctx context.Context, f store.Fence, usd float64, limit *float64) (store.Record, error) {
	var granted atomic.Bool
	return s.told(ctx, f, nil, func(ctx context.Context, f store.Fence) (store.Record, error) {
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

// LoseParts marks parts as lost.
func (s *Store) LoseParts(ctx context.Context, f store.Fence, keys []string, change func(*store.Record)) (lost store.Totals, err error) {
	again := func(ctx context.Context, f store.Fence) error {
		_, err := s.Store.LoseParts(ctx, f, keys, change)
		return err
	}
	do := func(ctx context.Context, f store.Fence) (err error) {
		lost, err = s.Store.LoseParts(ctx, f, keys, change)
		return err
	}
	if f.Session != "" {
		err = s.owned(ctx, f, &write{do: again}, do)
		return lost, err
	}
	err = s.write(ctx, f.JobID, &write{do: again}, func(ctx context.Context) error { return do(ctx, f) })
	return lost, err
}

// ReplaceParts swaps the parts of a shard for the complete one.
func (s *Store) ReplaceParts(ctx context.Context, f store.Fence, complete store.Part) error {
	do := func(ctx context.Context, f store.Fence) error { return s.Store.ReplaceParts(ctx, f, complete) }
	return s.owned(ctx, f, &write{do: do}, do)
}
