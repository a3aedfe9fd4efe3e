package store

import (
	"context"
	"fmt"
	"time"

	"github.com/rowmill/rowmill"
)

// Retention tells which jobs that are over still have data: inputs, parts and
// results. Removing it takes three steps, each harmless to repeat: RemoveData,
// before anything is deleted, so that no reader starts on what is about to go;
// the deletion of the objects and of the parts' records; DataGone.
type Retention interface {
	// Holders returns the accounts that have held jobs, sorted.
	Holders(ctx context.Context) ([]string, error)

	// Held returns up to limit (> 0) ids of an account's held jobs that ended
	// at or before ended, those that ended first first. A job is held from its
	// end until DataGone.
	Held(ctx context.Context, account string, ended time.Time, limit int) ([]string, error)

	// RemoveData sets DataRemoved to now, unless it is set, and takes the rows
	// and the URL of the input out of the specification. rowmill.ErrConflict
	// while the job is not over.
	RemoveData(ctx context.Context, jobID string, now time.Time) (Record, error)

	// DataGone says that the objects of a job are deleted. rowmill.ErrConflict
	// before RemoveData.
	DataGone(ctx context.Context, jobID string) error
}

// EndedAt is when a job that is over ended.
func (rec *Record) EndedAt() time.Time {
	if rec.Job.Completed == nil {
		return rec.Job.Created
	}
	return *rec.Job.Completed
}

// RemoveData applies a RemoveData to rec, and reports whether that changed it.
func (rec *Record) RemoveData(now time.Time) (changed bool, err error) {
	switch {
	case !rec.Job.Status.Terminal():
		return false, fmt.Errorf("remove the data of job %s, which is %s: %w", rec.Job.ID, rec.Job.Status, rowmill.ErrConflict)
	case rec.DataRemoved != nil:
		return false, nil
	}
	now = now.UTC()
	rec.DataRemoved = &now
	rec.Spec.Inline, rec.Spec.URL, rec.Spec.Spooled = nil, "", ""
	return true, nil
}
