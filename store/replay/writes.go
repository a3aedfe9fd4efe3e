package replay

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
)

// hasWriter reports whether the caller tracks its writes with a WriteCounter of its own.
// The Store does not track such writes.
func hasWriter(ctx context.Context) bool { return store.WriteCounterOf(ctx) != nil }

// writeAsOwner makes a write of a job's owner by calling send. It keeps repeat, which
// makes the write again if the store loses it.
func (s *Store) writeAsOwner(ctx context.Context, f store.Fence, repeat *loggedWrite, send func(context.Context, store.Fence) error) error {
	j := s.jobLogFor(f.JobID)
	if !j.isCurrentFence(f) { // the fence of an earlier owner; the store refuses it
		return send(ctx, f)
	}
	repeat.needsFence = true
	err := s.write(ctx, f.JobID, repeat, func(ctx context.Context) error { return send(ctx, f) })
	if errors.Is(err, rowmill.ErrNotFound) { // the job cannot be stored again
		err = fmt.Errorf("%w: %w", rowmill.ErrLeaseLost, err)
	}
	return err
}

// write makes a write by calling send. It keeps repeat, which makes the write again
// if the store loses it. When the store has lost earlier writes, write repeats them
// first.
func (s *Store) write(ctx context.Context, id string, repeat *loggedWrite, send func(context.Context) error) error {
	if hasWriter(ctx) {
		return send(ctx)
	}
	j, repairs := s.beginWrite(id, repeat)
	ctx = store.WithWriteCounter(ctx, j.writer)
	err := send(ctx)
	if errors.Is(err, store.ErrLostWrites) || errors.Is(err, rowmill.ErrNotFound) && (repeat.needsFence || j.writer.AckedWrites() > 0) {
		if err = s.repair(ctx, j); err == nil || errors.Is(err, errEndLost) {
			repairs = j.repairCount()
			err = send(ctx)
		}
	}
	j.recordOutcome(repeat, err, repairs)
	if errors.Is(err, store.ErrLostWrites) { // the store loses writes faster than they are repeated: the caller must try again
		err = fmt.Errorf("%w: %w", rowmill.ErrUnavailable, err)
	}
	return err
}

// updateAsOwner is like writeAsOwner, for a write that returns the record. isEnd reports
// whether a revision shows that this write has ended the job; isEnd is nil if the write
// does not end the job.
func (s *Store) updateAsOwner(ctx context.Context, f store.Fence, isEnd func(store.Revision) bool, send, repeat func(context.Context, store.Fence) (store.Record, error)) (rec store.Record, err error) {
	j := s.jobLogFor(f.JobID)
	w := &loggedWrite{isEnd: isEnd, do: func(ctx context.Context, f store.Fence) error {
		rec, err := repeat(ctx, f)
		if err == nil && rec.Job.Status.IsTerminal() {
			j.setEnded()
		}
		return err
	}}
	err = s.writeAsOwner(ctx, f, w, func(ctx context.Context, f store.Fence) (err error) {
		if rec, err = send(ctx, f); err == nil && rec.Job.Status.IsTerminal() {
			j.setEnded()
		}
		return err
	})
	return rec, err
}

// Create stores a pending job.
func (s *Store) Create(ctx context.Context, rec store.Record, idem *store.Idempotency) (stored store.Record, existed bool, err error) {
	if hasWriter(ctx) {
		return s.Store.Create(ctx, rec, idem)
	}
	w := &loggedWrite{create: true, do: s.newRecreateFunc(rec, idem)}
	j, repairs := s.beginWrite(rec.Job.ID, w)
	stored, existed, err = s.Store.Create(store.WithWriteCounter(ctx, j.writer), rec, idem)
	outcome := err
	if existed {
		outcome = rowmill.ErrConflict
	}
	j.recordOutcome(w, outcome, repairs)
	if existed {
		s.confirmCreate(stored, idem)
	}
	return stored, existed, err
}

// Lookup returns the record that was created with an idempotency key. It keeps the
// submission, because the client now relies on it.
func (s *Store) Lookup(ctx context.Context, account string, idem store.Idempotency) (store.Record, error) {
	rec, err := s.Store.Lookup(ctx, account, idem)
	if err == nil {
		s.confirmCreate(rec, &idem)
	}
	return rec, err
}

// confirmCreate keeps a submission that another node may have made. It skips an ended
// job, because an ended job cannot be created again from its record.
func (s *Store) confirmCreate(rec store.Record, idem *store.Idempotency) {
	if rec.Job.Status.IsTerminal() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jobLocked(rec.Job.ID).confirmCreate(&loggedWrite{create: true, acked: true, do: s.newRecreateFunc(resetToSubmitted(rec), idem)})
}

// newRecreateFunc returns a function that stores a job again.
func (s *Store) newRecreateFunc(rec store.Record, idem *store.Idempotency) func(context.Context, store.Fence) error {
	return func(ctx context.Context, _ store.Fence) error {
		got, existed, err := s.Store.Create(ctx, rec, idem)
		if existed && got.Job.ID != rec.Job.ID || errors.Is(err, rowmill.ErrConflict) { // the idempotency key belongs to another job now
			if rec.Spec.Continue != nil { // another job may continue the same job now
				continued := *rec.Spec.Continue
				continued.AllowDuplicate, rec.Spec.Continue = true, &continued
			}
			_, _, err = s.Store.Create(ctx, rec, nil)
		}
		return err
	}
}

// Cancel ends a job for its client. A repeated cancel is kept too, because its client
// relies on it.
func (s *Store) Cancel(ctx context.Context, jobID string, now time.Time, change func(*store.Record)) (rec store.Record, err error) {
	again := func(ctx context.Context, _ store.Fence) error {
		_, err := s.Store.Cancel(ctx, jobID, now, change)
		return err
	}
	cancels := func(m store.Revision) bool { return m.Status == rowmill.StatusCancelled }
	err = s.write(ctx, jobID, &loggedWrite{isEnd: cancels, do: again}, func(ctx context.Context) (err error) {
		rec, err = s.Store.Cancel(ctx, jobID, now, change)
		return err
	})
	switch {
	case err == nil:
		s.jobLogFor(jobID).setEnded()
	case errors.Is(err, rowmill.ErrTerminal) && rec.Job.Status == rowmill.StatusCancelled && !hasWriter(ctx):
		s.jobLogFor(jobID).confirmEnd(&loggedWrite{isEnd: cancels, do: again})
	}
	return rec, err
}

// AddArtifact adds an artifact to a job that has ended.
func (s *Store) AddArtifact(ctx context.Context, jobID, variant string, a store.Artifact) (rec store.Record, err error) {
	err = s.write(ctx, jobID, &loggedWrite{do: func(ctx context.Context, _ store.Fence) error {
		_, err := s.Store.AddArtifact(ctx, jobID, variant, a)
		return err
	}}, func(ctx context.Context) (err error) {
		rec, err = s.Store.AddArtifact(ctx, jobID, variant, a)
		return err
	})
	if err == nil {
		s.jobLogFor(jobID).setEnded()
	}
	return rec, err
}

// ReplaceArtifact replaces an artifact that was made again.
func (s *Store) ReplaceArtifact(ctx context.Context, jobID, variant string, old, remade store.Artifact) (rec store.Record, err error) {
	err = s.write(ctx, jobID, &loggedWrite{do: func(ctx context.Context, _ store.Fence) error {
		_, err := s.Store.ReplaceArtifact(ctx, jobID, variant, old, remade)
		return err
	}}, func(ctx context.Context) (err error) {
		rec, err = s.Store.ReplaceArtifact(ctx, jobID, variant, old, remade)
		return err
	})
	if err == nil {
		s.jobLogFor(jobID).setEnded()
	}
	return rec, err
}

// MarkContinued records which job continues a job that has ended.
func (s *Store) MarkContinued(ctx context.Context, jobID, successorID string) error {
	note := func(ctx context.Context) error { return s.Store.MarkContinued(ctx, jobID, successorID) }
	return s.writeAfterEnd(ctx, jobID, note, note)
}

// RemoveData records that a job's data must not be read any more. It keeps the end of the
// job too, because a job without its data cannot continue from its parts: if the store
// loses the end and the node that wrote the end is gone, all rows would run again.
func (s *Store) RemoveData(ctx context.Context, jobID string, now time.Time) (rec store.Record, err error) {
	err = s.writeAfterEnd(ctx, jobID, func(ctx context.Context) (err error) {
		rec, err = s.Store.RemoveData(ctx, jobID, now)
		return err
	}, func(ctx context.Context) error {
		_, err := s.Store.RemoveData(ctx, jobID, now)
		return err
	})
	if err == nil && !hasWriter(ctx) {
		s.jobLogFor(jobID).confirmEnd(s.newEndAgain(rec))
	}
	return rec, err
}

// newEndAgain returns a write that ends a job again as ended shows it.
func (s *Store) newEndAgain(ended store.Record) *loggedWrite {
	id := ended.Job.ID
	w := &loggedWrite{isEnd: func(m store.Revision) bool { return m.Status == ended.Job.Status }}
	if ended.Job.Status == rowmill.StatusCancelled {
		w.do = func(ctx context.Context, _ store.Fence) error {
			_, err := s.Store.Cancel(ctx, id, *ended.Job.Completed, nil)
			return err
		}
		return w
	}
	finish := func(ctx context.Context, f store.Fence) error {
		_, err := s.Store.Finish(ctx, f, func(r *store.Record) error {
			r.Job, r.Artifacts = ended.Job, ended.Artifacts
			return nil
		})
		return err
	}
	w.do = func(ctx context.Context, _ store.Fence) error {
		err := finish(ctx, store.Fence{JobID: id, Session: ended.Session, Epoch: ended.Epoch})
		if !errors.Is(err, rowmill.ErrLeaseLost) {
			return err
		}
		s.mu.Lock()
		session := s.session
		s.mu.Unlock()
		rec, err := s.Store.Claim(ctx, id, session, store.Claim{})
		switch {
		case errors.Is(err, rowmill.ErrConflict), errors.Is(err, rowmill.ErrLeaseLost): // another node owns the job, or this node has no session now
			return errEndLost
		case err != nil:
			return err
		}
		fence := store.Fence{JobID: id, Session: session, Epoch: rec.Epoch}
		if previousClaimEpoch(rec) != ended.Epoch { // a later owner has continued the job
			return s.Store.Release(ctx, fence)
		}
		return finish(ctx, fence)
	}
	return w
}

// OpenSession starts a session for the node. newEndAgain uses the newest session.
func (s *Store) OpenSession(ctx context.Context, node string, ttl time.Duration) (string, error) {
	session, err := s.Store.OpenSession(ctx, node, ttl)
	if err == nil {
		s.mu.Lock()
		s.session = session
		s.mu.Unlock()
	}
	return session, err
}

// writeAfterEnd makes a write that needs an ended job by calling send. It keeps repeat,
// which makes the write again if the store loses it. If the store has lost the end, the
// repeat returns errEndLost until another node has repeated the end.
func (s *Store) writeAfterEnd(ctx context.Context, jobID string, send, repeat func(context.Context) error) error {
	err := s.write(ctx, jobID, &loggedWrite{do: func(ctx context.Context, _ store.Fence) error {
		err := repeat(ctx)
		if errors.Is(err, rowmill.ErrConflict) {
			return errEndLost
		}
		return err
	}}, send)
	if err == nil {
		s.jobLogFor(jobID).setEnded()
	}
	return err
}

// DropParts removes the part records of a job that has ended.
func (s *Store) DropParts(ctx context.Context, jobID string) error {
	drop := func(ctx context.Context) error { return s.Store.DropParts(ctx, jobID) }
	return s.write(ctx, jobID, &loggedWrite{do: func(ctx context.Context, _ store.Fence) error { return drop(ctx) }}, drop)
}

// Claim makes session the owner of a job. When the store has lost acknowledged writes
// of this process, Claim repeats them first.
func (s *Store) Claim(ctx context.Context, jobID, session string, by store.Claim) (store.Record, error) {
	if hasWriter(ctx) {
		return s.Store.Claim(ctx, jobID, session, by)
	}
	w := store.NewWriteCounter(s.name)
	rec, err := s.Store.Claim(store.WithWriteCounter(ctx, w), jobID, session, by)
	if errors.Is(err, rowmill.ErrLeaseLost) || errors.Is(err, rowmill.ErrTerminal) || errors.Is(err, rowmill.ErrNotFound) {
		return rec, err
	}
	j := s.recordSentClaim(jobID, session)
	if err != nil {
		return rec, err
	}
	if j.hasGap(w.AckedWrites() - 1) { // the number of writes before this claim
		j.loseOwnership()
	}
	if !j.recordClaim(rec, w.AckedWrites()) {
		return rec, nil
	}
	done, err := j.lockRepair(ctx)
	if err != nil {
		j.requireRepeat()
		return rec, err
	}
	defer done()
	s.cfg.Log.Warn("the store had lost this node's claim of the job; the writes after the claim are repeated", "job", jobID)
	fence := store.Fence{JobID: jobID, Session: session, Epoch: rec.Epoch}
	if err := s.repeatWrites(ctx, j, fence); err != nil && !errors.Is(err, errEndLost) {
		j.requireRepeat()
		return rec, err
	}
	return s.Get(ctx, jobID)
}

// Get returns a record. If the record shows the outcome of an earlier claim or
// submission, Get notes the outcome.
func (s *Store) Get(ctx context.Context, jobID string) (store.Record, error) {
	rec, err := s.Store.Get(ctx, jobID)
	if j := s.existingJob(jobID); err == nil && j != nil {
		j.applyRecord(rec)
	}
	return rec, s.hideRecentLoss(err)
}

// hideRecentLoss turns rowmill.ErrNotFound into rowmill.ErrUnavailable if the store has just
// failed. Otherwise a client would believe that a job does not exist, although a node is
// about to write the job again.
func (s *Store) hideRecentLoss(err error) error {
	if !errors.Is(err, rowmill.ErrNotFound) || time.Since(s.cfg.FailedAt()) > 3*s.cfg.CheckInterval {
		return err
	}
	return fmt.Errorf("%w: the record store has just come back, and may have lost writes that are repeated within seconds", rowmill.ErrUnavailable)
}

// Head returns the part of the record that clients see.
func (s *Store) Head(ctx context.Context, jobID string) (*store.JobHead, error) {
	if s.existingJob(jobID) == nil {
		head, err := s.Store.Head(ctx, jobID)
		return head, s.hideRecentLoss(err)
	}
	rec, err := s.Get(ctx, jobID)
	return rec.Head(), err
}

// ListParts returns the parts of a job. It first repeats lost commits, because otherwise
// the owner would run the rows of missing parts again.
func (s *Store) ListParts(ctx context.Context, jobID string) ([]store.Part, error) {
	j := s.existingJob(jobID)
	if j == nil {
		return s.Store.ListParts(ctx, jobID)
	}
	repairs := j.repairCount()
	parts, err := s.Store.ListParts(ctx, jobID)
	if err != nil && !errors.Is(err, rowmill.ErrNotFound) {
		return nil, err
	}
	least := j.computeRequiredState()
	marks, markErr := s.Revisions(ctx, []string{jobID}, s.name)
	switch {
	case markErr != nil:
		return nil, markErr
	case least.isUnmetBy(marks[0]):
		if err := s.repair(ctx, j); err != nil && !errors.Is(err, errEndLost) {
			return nil, err
		}
	case j.repairCount() == repairs:
		return parts, err
	}
	return s.Store.ListParts(ctx, jobID)
}

// Reschedule changes the priority of an open job, pauses the job, or ends its pause.
func (s *Store) Reschedule(ctx context.Context, jobID string, change store.Schedule) (rec store.Record, err error) {
	reschedule := func(ctx context.Context) (err error) {
		rec, err = s.Store.Reschedule(ctx, jobID, change)
		return err
	}
	err = s.write(ctx, jobID, &loggedWrite{do: func(ctx context.Context, _ store.Fence) error {
		_, err := s.Store.Reschedule(ctx, jobID, change)
		return err
	}}, reschedule)
	return rec, err
}

// Park releases a job. No node runs the job for the time pause.
func (s *Store) Park(ctx context.Context, f store.Fence, pause time.Duration, message string) error {
	park := func(ctx context.Context, f store.Fence) error { return s.Store.Park(ctx, f, pause, message) }
	return s.release(ctx, f, park)
}

// Release ends the ownership of a job, so that another session can claim the job.
func (s *Store) Release(ctx context.Context, f store.Fence) error {
	return s.release(ctx, f, s.Store.Release)
}

// release releases a job by calling do.
func (s *Store) release(ctx context.Context, f store.Fence, do func(context.Context, store.Fence) error) error {
	err := s.writeAsOwner(ctx, f, &loggedWrite{releases: true, do: do}, do)
	if err == nil {
		s.jobLogFor(f.JobID).setReleased(f)
	}
	return err
}

// Update changes a record under a fence.
func (s *Store) Update(ctx context.Context, f store.Fence, change func(*store.Record) error) (store.Record, error) {
	do := func(ctx context.Context, f store.Fence) (store.Record, error) { return s.Store.Update(ctx, f, change) }
	return s.updateAsOwner(ctx, f, nil, do, do)
}

// Finish ends a job under a fence.
func (s *Store) Finish(ctx context.Context, f store.Fence, change func(*store.Record) error) (store.Record, error) {
	do := func(ctx context.Context, f store.Fence) (store.Record, error) { return s.Store.Finish(ctx, f, change) }
	finishes := func(m store.Revision) bool {
		return m.Status != rowmill.StatusCancelled && m.Session == f.Session && m.Epoch == f.Epoch
	}
	return s.updateAsOwner(ctx, f, finishes, do, do)
}

// Reserve sets money aside for a job. If the store loses a granted reservation, it is
// repeated without a check of the limit.
func (s *Store) Reserve(ctx context.Context, f store.Fence, usd float64, limit *float64) (store.Record, error) {
	var granted atomic.Bool
	return s.updateAsOwner(ctx, f, nil, func(ctx context.Context, f store.Fence) (store.Record, error) {
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

// CommitParts stores the records of finished parts of a job.
func (s *Store) CommitParts(ctx context.Context, f store.Fence, parts []store.Part) error {
	do := func(ctx context.Context, f store.Fence) error { return s.Store.CommitParts(ctx, f, parts) }
	return s.writeAsOwner(ctx, f, &loggedWrite{do: do}, do)
}

// MarkPartsLost marks the records of parts as lost, because their objects cannot be read. It
// removes nothing.
func (s *Store) MarkPartsLost(ctx context.Context, f store.Fence, keys []string, change func(*store.Record)) (lost store.RowTotals, err error) {
	again := func(ctx context.Context, f store.Fence) error {
		_, err := s.Store.MarkPartsLost(ctx, f, keys, change)
		return err
	}
	do := func(ctx context.Context, f store.Fence) (err error) {
		lost, err = s.Store.MarkPartsLost(ctx, f, keys, change)
		return err
	}
	if f.Session != "" {
		err = s.writeAsOwner(ctx, f, &loggedWrite{do: again}, do)
		return lost, err
	}
	err = s.write(ctx, f.JobID, &loggedWrite{do: again}, func(ctx context.Context) error { return do(ctx, f) })
	return lost, err
}

// ReplaceParts replaces the parts of a shard with the complete part.
func (s *Store) ReplaceParts(ctx context.Context, f store.Fence, complete store.Part) error {
	do := func(ctx context.Context, f store.Fence) error { return s.Store.ReplaceParts(ctx, f, complete) }
	return s.writeAsOwner(ctx, f, &loggedWrite{do: do}, do)
}
