package bolt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
)

// Update changes a record under a fence.
func (s *Store) Update(ctx context.Context, f store.Fence, change func(*store.Record) error) (store.Record, error) {
	return s.change(ctx, f, change, false)
}

// Finish ends a job under a fence.
func (s *Store) Finish(ctx context.Context, f store.Fence, change func(*store.Record) error) (store.Record, error) {
	return s.change(ctx, f, change, true)
}

// change is Update, and with end Finish. A success is recounted whichever of
// the two it comes through.
func (s *Store) change(ctx context.Context, f store.Fence, change func(*store.Record) error, end bool) (store.Record, error) {
	var changed store.Record
	err := s.write(ctx, func(t *tx) error {
		before, err := s.fenced(t, f)
		if err != nil {
			return fmt.Errorf("change: %w", err)
		}
		rec, err := t.record(before)
		if err != nil {
			return err
		}
		kept := keep(rec)
		if err := change(&rec); err != nil {
			return err
		}
		if err := t.check(kept, &rec); err != nil {
			return fmt.Errorf("change job %s: %w", f.JobID, err)
		}
		if end && !rec.Job.Status.Terminal() {
			return fmt.Errorf("finish job %s: the change leaves it %s", f.JobID, rec.Job.Status)
		}
		if rec.Job.Status == rowmill.StatusSucceeded && rec.Job.RunType != rowmill.RunEstimate {
			if err := t.recount(&rec); err != nil {
				return fmt.Errorf("finish job %s: %w", f.JobID, err)
			}
		}
		rec.Version++
		if err := t.save(&before, rec, before.Account); err != nil {
			return err
		}
		changed, err = t.whole(f.JobID)
		return err
	})
	if err != nil {
		return store.Record{}, err
	}
	return changed, nil
}

// Cancel ends a job on its client's behalf. change sees the record as it was
// before the cancel and may be nil.
func (s *Store) Cancel(ctx context.Context, jobID string, now time.Time, change func(*store.Record)) (store.Record, error) {
	var cancelled store.Record
	err := s.write(ctx, func(t *tx) error {
		before, err := t.header(jobID)
		if err != nil {
			return err
		}
		rec, err := t.record(before)
		if err != nil {
			return err
		}
		if before.Job.Status.Terminal() {
			cancelled = rec
			return fmt.Errorf("cancel job %s, which is %s: %w", jobID, before.Job.Status, rowmill.ErrTerminal)
		}
		kept := keep(rec)
		if change != nil {
			change(&rec)
		}
		if rec.Job.Status != kept.status {
			return fmt.Errorf("cancel job %s: the change made it %s, which is for Cancel to do", jobID, rec.Job.Status)
		}
		if err := rec.Job.Become(rowmill.StatusCancelled, now); err != nil {
			return fmt.Errorf("cancel job %s: %w", jobID, err)
		}
		if err := t.check(kept, &rec); err != nil {
			return fmt.Errorf("cancel job %s: %w", jobID, err)
		}
		rec.Version++
		if err := t.save(&before, rec, before.Account); err != nil {
			return err
		}
		cancelled, err = t.whole(jobID)
		return err
	})
	if err != nil && !errors.Is(err, rowmill.ErrTerminal) {
		return store.Record{}, err
	}
	return cancelled, err
}

// AddArtifact records a further artifact of a succeeded job.
func (s *Store) AddArtifact(ctx context.Context, jobID, variant string, a store.Artifact) (store.Record, error) {
	if err := checkName("the variant", variant); err != nil {
		return store.Record{}, fmt.Errorf("add an artifact to job %s: %w", jobID, err)
	}
	var rec store.Record
	err := s.write(ctx, func(t *tx) error {
		before, err := t.header(jobID)
		if err != nil {
			return err
		}
		switch {
		case before.Job.Status != rowmill.StatusSucceeded:
			return fmt.Errorf("add an artifact to job %s, which is %s: %w", jobID, before.Job.Status, rowmill.ErrConflict)
		case before.DataRemoved != nil:
			return fmt.Errorf("add an artifact to job %s: %w", jobID, rowmill.ErrExpired)
		}
		after := before
		if _, taken := before.Artifacts[variant]; !taken {
			after.Artifacts = maps.Clone(before.Artifacts)
			if after.Artifacts == nil {
				after.Artifacts = map[string]store.Artifact{}
			}
			after.Artifacts[variant] = a
			after.Version++
			if err := t.saveHeader(before, after); err != nil {
				return err
			}
		}
		rec, err = t.record(after)
		return err
	})
	if err != nil {
		return store.Record{}, err
	}
	return rec, nil
}

// kept is what a change must leave alone, copied out of reach of the change.
type kept struct {
	id       string
	created  time.Time
	run      rowmill.RunType
	status   rowmill.Status
	counted  bool // NumRows is set
	rows     int64
	session  string
	epoch    int64
	version  int64
	schema   int
	reserved rowmill.Money
}

func keep(rec store.Record) kept {
	k := kept{
		id: rec.Job.ID, created: rec.Job.Created, run: rec.Job.RunType, status: rec.Job.Status,
		session: rec.Session, epoch: rec.Epoch, version: rec.Version, schema: rec.SchemaVersion, reserved: rec.Reserved,
	}
	if rec.Job.NumRows != nil {
		k.counted, k.rows = true, *rec.Job.NumRows
	}
	return k
}

// check refuses a change of what never changes, and a status step that the
// state machine lacks.
func (t *tx) check(before kept, rec *store.Record) error {
	switch {
	case rec.Job.ID != before.id:
		return errors.New("its id cannot change")
	case !rec.Job.Created.Equal(before.created):
		return errors.New("its time of creation cannot change")
	case rec.Job.RunType != before.run:
		return errors.New("its run type cannot change")
	case rec.Reserved != before.reserved:
		return errors.New("what it has reserved is changed by Reserve alone")
	case rec.Session != before.session || rec.Epoch != before.epoch:
		return errors.New("its owner and epoch are changed by Claim and Release alone")
	case rec.Version != before.version || rec.SchemaVersion != before.schema:
		return errors.New("its versions are changed by the store alone")
	case before.counted && (rec.Job.NumRows == nil || *rec.Job.NumRows != before.rows):
		return fmt.Errorf("its number of rows is %d and cannot change", before.rows)
	case rec.Job.Status != before.status && !reachable(before.status, rec.Job.Status):
		return &rowmill.TransitionError{From: before.status, To: rec.Job.Status}
	}
	spec, err := writeSpec(rec.Spec)
	if err != nil {
		return err
	}
	if !bytes.Equal(spec, t.get(bucketSpecs, []byte(before.id))) {
		return errors.New("its account and specification cannot change")
	}
	return nil
}

// reachable reports whether to can follow from, over any number of steps. The
// states have an order, so the search ends.
func reachable(from, to rowmill.Status) bool {
	if from.CanBecome(to) {
		return true
	}
	for _, next := range rowmill.Statuses() {
		if from.CanBecome(next) && reachable(next, to) {
			return true
		}
	}
	return false
}

// recount compares the rows that the parts hold with the job's.
func (t *tx) recount(rec *store.Record) error {
	if rec.Job.NumRows == nil {
		return fmt.Errorf("its rows were never counted: %w", rowmill.ErrConflict)
	}
	var rows int64
	err := t.eachPart(partsOf(rec.Job.ID), func(_ []byte, p store.Part) error {
		rows += p.Rows
		return nil
	})
	if err != nil {
		return err
	}
	if rows != *rec.Job.NumRows {
		return fmt.Errorf("its parts hold %d rows of %d: %w", rows, *rec.Job.NumRows, rowmill.ErrConflict)
	}
	return nil
}
