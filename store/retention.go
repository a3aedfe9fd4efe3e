package store

import (
	"context"
	"fmt"
	"time"

	"github.com/rowmill/rowmill"
)

// Retention finds ended jobs that still have data (input, parts and results) or only an
// input. Data is removed in three steps, and each step is harmless to repeat: RemoveData,
// so that no reader starts to read data that is about to be deleted; the deletion of the
// objects and of the part records; MarkDataDeleted.
type Retention interface {
	// AccountsWithData returns the accounts that have retained jobs, sorted.
	AccountsWithData(ctx context.Context) ([]string, error)

	// RetainedJobs returns up to limit (> 0) ids of an account's retained jobs that ended
	// at or before ended, earliest end first. The end is Record.EndedAt. A job is retained
	// from its end until MarkDataDeleted.
	RetainedJobs(ctx context.Context, account string, ended time.Time, limit int) ([]string, error)

	// RemoveData sets DataRemoved to now, unless it is set, and removes the rows and
	// the URL of the input from the specification. The error is rowmill.ErrConflict while
	// the job is open.
	RemoveData(ctx context.Context, jobID string, now time.Time) (Record, error)

	// MarkDataDeleted records that the objects and part records of a job are deleted. The error
	// is rowmill.ErrConflict before RemoveData.
	MarkDataDeleted(ctx context.Context, jobID string) error

	// ListDueRemovals returns up to limit (> 0) ids of jobs whose next removal of data is due at
	// the time by or earlier, the earliest first. A removal is due at the end of the job
	// or, after KeepInput, at the time until which the input is kept. After MarkInputRemoved no
	// removal is due. From RemoveData to MarkDataDeleted a removal is due too, because the node
	// that began the removal may have stopped.
	ListDueRemovals(ctx context.Context, by time.Time, limit int) ([]string, error)
	// KeepInput records that objects hold the whole input of a job until a time, and
	// that nothing else of the job needs removal. It removes input rows from the
	// specification. It changes nothing after MarkInputRemoved. The error is rowmill.ErrConflict
	// while the job is open.
	KeepInput(ctx context.Context, jobID string, until time.Time) error
	// MarkInputRemoved sets InputRemoved to now, unless it is set, and removes the rows of the
	// input from the specification. The error is rowmill.ErrConflict while the job is
	// open.
	MarkInputRemoved(ctx context.Context, jobID string, now time.Time) error
}

// EndTolerance is the largest allowed difference between the end time in a record and the
// store's clock. If the difference is larger, retention counts from the store's clock.
// One minute does not matter to retention in days, and healthy clocks differ by less.
const EndTolerance = time.Minute

// EndedAt returns the time from which retention counts for an ended job.
func (rec *Record) EndedAt() time.Time {
	switch {
	case rec.Ended != nil:
		return *rec.Ended
	case rec.Job.Completed == nil:
		return rec.Job.Created
	}
	return *rec.Job.Completed
}

// RecordEnd completes the record of a job that this change has ended; previous is the
// status before the change, and now is the time of the store's clock. RecordEnd clears
// rec.Claims. If the end time in the record differs from now by more than EndTolerance,
// RecordEnd sets rec.Ended to now. The clock of the node that ended the job may be wrong by
// days; retention by that clock would delete the data at once, or never.
func (rec *Record) RecordEnd(previous rowmill.Status, now time.Time) {
	if previous.IsTerminal() || !rec.Job.Status.IsTerminal() {
		return
	}
	rec.Ended, rec.Claims = nil, nil
	if now.Sub(rec.EndedAt()).Abs() > EndTolerance {
		now = now.UTC().Round(0)
		rec.Ended = &now
	}
}

// NextRemoval returns the time of the next removal of data of the job. due is false if no removal
// is necessary; see Retention.ListDueRemovals.
func (rec *Record) NextRemoval() (at time.Time, due bool) {
	switch {
	case rec.DataRemoved != nil:
		return *rec.DataRemoved, !rec.DataGone
	case !rec.Job.Status.IsTerminal() || rec.InputRemoved != nil:
		return time.Time{}, false
	case rec.InputUntil != nil:
		return *rec.InputUntil, true
	}
	return rec.EndedAt(), true
}

// IsCleanedUp reports whether the cleanup after the end of a job is done. The input may remain
// until InputUntil.
func (rec *Record) IsCleanedUp() bool { return rec.InputUntil != nil || rec.InputRemoved != nil }

// KeepInput applies Retention.KeepInput to rec and reports whether rec changed.
func (rec *Record) KeepInput(until time.Time) (changed bool, err error) {
	if !rec.Job.Status.IsTerminal() {
		return false, fmt.Errorf("keep the input of job %s, which is %s: %w", rec.Job.ID, rec.Job.Status, rowmill.ErrConflict)
	}
	if rec.InputRemoved != nil || rec.InputUntil != nil && rec.InputUntil.Equal(until) && rec.Spec.Inline == nil {
		return false, nil
	}
	until = until.UTC()
	rec.InputUntil, rec.Spec.Inline = &until, nil
	return true, nil
}

// MarkInputRemoved applies Retention.MarkInputRemoved to rec and reports whether rec changed.
func (rec *Record) MarkInputRemoved(now time.Time) (changed bool, err error) {
	switch {
	case !rec.Job.Status.IsTerminal():
		return false, fmt.Errorf("remove the input of job %s, which is %s: %w", rec.Job.ID, rec.Job.Status, rowmill.ErrConflict)
	case rec.InputRemoved != nil:
		return false, nil
	}
	now = now.UTC()
	rec.InputRemoved, rec.Spec.Inline = &now, nil
	return true, nil
}

// MarkContinued applies Jobs.MarkContinued to rec and reports whether rec changed.
func (rec *Record) MarkContinued(successorID string) (changed bool, err error) {
	switch {
	case !rec.Job.Status.IsTerminal():
		return false, fmt.Errorf("continue job %s, which is %s: %w", rec.Job.ID, rec.Job.Status, rowmill.ErrConflict)
	case rec.Job.ContinuedBy != nil && *rec.Job.ContinuedBy >= successorID:
		return false, nil
	}
	rec.Job.ContinuedBy = &successorID
	return true, nil
}

// RemoveData applies Retention.RemoveData to rec and reports whether the record must be
// written. It must be written even if the data was removed before: the write acknowledges
// the removal to the caller and counts as one of the caller's writes (see WriteCounter).
func (rec *Record) RemoveData(now time.Time) (changed bool, err error) {
	switch {
	case !rec.Job.Status.IsTerminal():
		return false, fmt.Errorf("remove the data of job %s, which is %s: %w", rec.Job.ID, rec.Job.Status, rowmill.ErrConflict)
	case rec.DataRemoved != nil:
		return true, nil
	}
	now = now.UTC()
	rec.DataRemoved = &now
	if rec.InputRemoved == nil {
		rec.InputRemoved = &now
	}
	rec.Spec.Inline, rec.Spec.URL, rec.Spec.Spooled, rec.Spec.File, rec.Spec.FileName, rec.Spec.Source, rec.Job.Input, rec.Job.InputFile = nil, "", "", "", "", "", "", ""
	return true, nil
}
