package records

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
	return s.updateRecord(ctx, f, change, false)
}

// Finish ends a job under a fence.
func (s *Store) Finish(ctx context.Context, f store.Fence, change func(*store.Record) error) (store.Record, error) {
	return s.updateRecord(ctx, f, change, true)
}

// updateRecord runs Update, or Finish if end is true. It checks that a succeeded job has
// all its rows.
func (s *Store) updateRecord(ctx context.Context, f store.Fence, change func(*store.Record) error, end bool) (store.Record, error) {
	return writeResult(ctx, s, func(t *tx) (rec store.Record, err error) {
		t.prefetchRecord(f.JobID)
		before, err := t.readOwnedHeader(f)
		if err != nil {
			return rec, fmt.Errorf("change: %w", err)
		}
		if rec, err = t.completeRecord(before); err != nil {
			return rec, err
		}
		if err := rec.ApplyChange(change, end); err != nil {
			return rec, err
		}
		rec.RecordEnd(before.Job.Status, t.Now())
		if err := t.checkSpecUnchanged(rec); err != nil {
			return rec, fmt.Errorf("change job %s: %w", f.JobID, err)
		}
		if rec.Job.Status == rowmill.StatusSucceeded && rec.Job.RunType != rowmill.RunEstimate {
			if err := t.checkRowCount(&rec); err != nil {
				return rec, fmt.Errorf("finish job %s: %w", f.JobID, err)
			}
		}
		return t.replaceRecord(before, rec)
	})
}

// Cancel ends a job for its client. change gets the record before the cancel and may be
// nil.
func (s *Store) Cancel(ctx context.Context, jobID string, now time.Time, change func(*store.Record)) (store.Record, error) {
	var cancelled store.Record
	err := s.write(ctx, func(t *tx) error {
		t.prefetchRecord(jobID)
		before, err := t.readHeaderForWrite(jobID)
		if err != nil {
			return err
		}
		rec, err := t.completeRecord(before)
		ruined := errors.Is(err, store.ErrDamaged)
		if ruined {
			rec, err = t.buildRuinedRecord(before)
		}
		if err != nil {
			return err
		}
		if err := rec.Cancel(now, change); err != nil {
			cancelled = rec
			return err
		}
		if ruined {
			cancelled, err = t.endRuined(before, rec)
			return err
		}
		rec.RecordEnd(before.Job.Status, t.Now())
		if err := t.checkSpecUnchanged(rec); err != nil {
			return fmt.Errorf("cancel job %s: %w", jobID, err)
		}
		cancelled, err = t.replaceRecord(before, rec)
		return err
	})
	if err != nil && !errors.Is(err, rowmill.ErrTerminal) {
		return store.Record{}, err
	}
	return cancelled, err
}

// AddArtifact adds an artifact to a job that has ended.
func (s *Store) AddArtifact(ctx context.Context, jobID, variant string, a store.Artifact) (store.Record, error) {
	return s.setArtifact(ctx, jobID, variant, a, func(_ store.Artifact, taken bool) bool { return !taken })
}

// ReplaceArtifact replaces an artifact that was made again.
func (s *Store) ReplaceArtifact(ctx context.Context, jobID, variant string, old, remade store.Artifact) (store.Record, error) {
	return s.setArtifact(ctx, jobID, variant, remade, func(has store.Artifact, _ bool) bool { return has == old })
}

// setArtifact sets the artifact of a variant if allowed returns true. allowed gets the
// present artifact of the variant; taken is false if there is none.
func (s *Store) setArtifact(ctx context.Context, jobID, variant string, a store.Artifact, allowed func(has store.Artifact, taken bool) bool) (store.Record, error) {
	if err := store.CheckName("the variant", variant); err != nil {
		return store.Record{}, fmt.Errorf("add an artifact to job %s: %w", jobID, err)
	}
	return writeResult(ctx, s, func(t *tx) (rec store.Record, err error) {
		t.prefetchRecord(jobID)
		before, err := t.readHeaderForWrite(jobID)
		switch {
		case err != nil:
			return rec, err
		case !before.Job.Status.IsTerminal():
			return rec, fmt.Errorf("add an artifact to job %s, which is %s: %w", jobID, before.Job.Status, rowmill.ErrConflict)
		case before.DataRemoved != nil:
			return rec, fmt.Errorf("add an artifact to job %s: %w", jobID, rowmill.ErrExpired)
		}
		after := before
		if has, taken := before.Artifacts[variant]; allowed(has, taken) {
			after.Artifacts = maps.Clone(before.Artifacts)
			if after.Artifacts == nil {
				after.Artifacts = map[string]store.Artifact{}
			}
			after.Artifacts[variant] = a
			if err := t.saveHeader(before, &after); err != nil {
				return rec, err
			}
		}
		return t.completeRecord(after)
	})
}

// checkSpecUnchanged returns an error when the specification of rec differs from the stored one.
func (t *tx) checkSpecUnchanged(rec store.Record) error {
	stored, err := t.Get(tableSpecs, []byte(rec.Job.ID))
	if err != nil {
		return err
	}
	spec, err := encodeSpec(stored, rec.Spec)
	if err != nil || bytes.Equal(spec, stored) {
		return err
	}
	// Another version of the program may have written the same specification with its
	// members in a different order.
	before, err := decodeSpec(stored)
	if err == nil {
		stored, err = encodeSpec(spec, before)
	}
	if err == nil && !bytes.Equal(spec, stored) {
		err = errors.New("its account and specification cannot change")
	}
	return err
}

// checkRowCount returns an error unless the parts hold exactly NumRows rows.
func (t *tx) checkRowCount(rec *store.Record) error {
	if rec.Job.NumRows == nil {
		return fmt.Errorf("its rows were never counted: %w", rowmill.ErrConflict)
	}
	var rows int64
	for p, err := range t.scanParts(partsPrefix(rec.Job.ID)) {
		if err != nil {
			return err
		}
		rows += p.Rows
	}
	if rows != *rec.Job.NumRows {
		return fmt.Errorf("its parts hold %d of its %d rows: %w", rows, *rec.Job.NumRows, rowmill.ErrConflict)
	}
	return nil
}
