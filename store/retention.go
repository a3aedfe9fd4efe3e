package store

import (
	"context"
	"fmt"
	"time"

	"github.com/rowmill/rowmill"
)

// Retention tells which jobs that are over still have data, or only an input: inputs, parts and
// results. Removing it takes three steps, each harmless to repeat: RemoveData,
// before anything is deleted, so that no reader starts on what is about to go;
// the deletion of the objects and of the parts' records; DataGone.
type Retention interface {
	// Holders returns the accounts that have held jobs, sorted.
	Holders(ctx context.Context) ([]string, error)

	// Held returns up to limit (> 0) ids of an account's held jobs that ended
	// at or before ended, those that ended first first. When a job ended its
	// record says, unless that is more than EndTolerance off the store's clock.
	// A job is held from its end until DataGone.
	Held(ctx context.Context, account string, ended time.Time, limit int) ([]string, error)

	// RemoveData sets DataRemoved to now, unless it is set, and takes the rows
	// and the URL of the input out of the specification. rowmill.ErrConflict
	// while the job is not over.
	RemoveData(ctx context.Context, jobID string, now time.Time) (Record, error)

	// DataGone says that the objects of a job are deleted. rowmill.ErrConflict
	// before RemoveData.
	DataGone(ctx context.Context, jobID string) error

	// Due returns up to limit (> 0) ids of jobs of which something is to be
	// removed at or before a time, those that have waited longest first. A job
	// is due from its end; after KeepInput, from when that says; not after
	// InputGone or RemoveData.
	Due(ctx context.Context, by time.Time, limit int) ([]string, error)
	// KeepInput says that objects hold all of the input of a job until a time,
	// and nothing else is left of it to be removed: rows that are in its
	// specification are taken out. It changes nothing after InputGone.
	// rowmill.ErrConflict while the job is not over.
	KeepInput(ctx context.Context, jobID string, until time.Time) error
	// InputGone sets InputRemoved to now, unless it is set, and takes the rows
	// of the input out of the specification. rowmill.ErrConflict while the job
	// is not over.
	InputGone(ctx context.Context, jobID string, now time.Time) error
}

// EndTolerance is how far the end that a record tells may be from the store's
// clock before retention counts from the latter. A minute is nothing to those
// who keep data for days, and more than healthy clocks differ by.
const EndTolerance = time.Minute

// EndedAt is when a job that is over ended, as retention counts.
func (rec *Record) EndedAt() time.Time {
	switch {
	case rec.Ended != nil:
		return *rec.Ended
	case rec.Job.Completed == nil:
		return rec.Job.Created
	}
	return *rec.Job.Completed
}

// End notes when a job ended by the store's clock, if it has just ended: was
// is its status before. The clock of whoever ended it may be days off, and its
// data would go at once, or never.
func (rec *Record) End(was rowmill.Status, now time.Time) {
	if was.Terminal() || !rec.Job.Status.Terminal() {
		return
	}
	rec.Ended, rec.Adopters = nil, nil
	if now.Sub(rec.EndedAt()).Abs() > EndTolerance {
		now = now.UTC().Round(0)
		rec.Ended = &now
	}
}

// Due is when something of a job is to be removed next, if anything is, as
// Retention.Due says.
func (rec *Record) Due() (at time.Time, due bool) {
	switch {
	case !rec.Job.Status.Terminal() || rec.InputRemoved != nil:
		return time.Time{}, false
	case rec.InputUntil != nil:
		return *rec.InputUntil, true
	}
	return rec.EndedAt(), true
}

// Tidied reports whether all that is to be done when a job has ended was done, but for
// the removal of an input that is kept for a while.
func (rec *Record) Tidied() bool { return rec.InputUntil != nil || rec.InputRemoved != nil }

// KeepInput applies a KeepInput to rec, and reports whether that changed it.
func (rec *Record) KeepInput(until time.Time) (changed bool, err error) {
	if !rec.Job.Status.Terminal() {
		return false, fmt.Errorf("keep the input of job %s, which is %s: %w", rec.Job.ID, rec.Job.Status, rowmill.ErrConflict)
	}
	if rec.InputRemoved != nil || rec.InputUntil != nil && rec.InputUntil.Equal(until) && rec.Spec.Inline == nil {
		return false, nil
	}
	until = until.UTC()
	rec.InputUntil, rec.Spec.Inline = &until, nil
	return true, nil
}

// InputGone applies an InputGone to rec, and reports whether that changed it.
func (rec *Record) InputGone(now time.Time) (changed bool, err error) {
	switch {
	case !rec.Job.Status.Terminal():
		return false, fmt.Errorf("remove the input of job %s, which is %s: %w", rec.Job.ID, rec.Job.Status, rowmill.ErrConflict)
	case rec.InputRemoved != nil:
		return false, nil
	}
	now = now.UTC()
	rec.InputRemoved, rec.Spec.Inline = &now, nil
	return true, nil
}

// Continued applies a Continued to rec, and reports whether that changed it.
func (rec *Record) Continued(by string) (changed bool, err error) {
	switch {
	case !rec.Job.Status.Terminal():
		return false, fmt.Errorf("continue job %s, which is %s: %w", rec.Job.ID, rec.Job.Status, rowmill.ErrConflict)
	case rec.Job.ContinuedBy != nil && *rec.Job.ContinuedBy >= by:
		return false, nil
	}
	rec.Job.ContinuedBy = &by
	return true, nil
}

// RemoveData applies a RemoveData to rec, and reports whether that is to be
// written. It is if the data was removed before, too: who asks is told that it was,
// and minds what is forgotten of its own writes.
func (rec *Record) RemoveData(now time.Time) (changed bool, err error) {
	switch {
	case !rec.Job.Status.Terminal():
		return false, fmt.Errorf("remove the data of job %s, which is %s: %w", rec.Job.ID, rec.Job.Status, rowmill.ErrConflict)
	case rec.DataRemoved != nil:
		return true, nil
	}
	now = now.UTC()
	rec.DataRemoved = &now
	if rec.InputRemoved == nil {
		rec.InputRemoved = &now
	}
	rec.Spec.Inline, rec.Spec.URL, rec.Spec.Spooled, rec.Spec.File, rec.Spec.FileName = nil, "", "", "", ""
	return true, nil
}
