package retention

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/store"
)

// tidyJobs cleans up after jobs whose owners did not, removes inputs whose retention has
// ended, and finishes removals that a client or a lost node began. A job whose cleanup
// fails is tried again later and delays no other job. more is true if other jobs wait.
func (j *Janitor) tidyJobs(ctx context.Context, now, today time.Time) (more bool, err error) {
	jobs, err := j.Store.ListDueRemovals(ctx, today.Add(-j.TidyAfter), j.Batch+len(j.failures))
	if err != nil {
		return false, err
	}
	j.failures.forgetUnlisted(due, jobs)
	var errs []error
	tried := 0
	for _, id := range jobs {
		if tried == j.Batch {
			break
		}
		if j.failures.isBackingOff(id, j.Running()) {
			continue
		}
		tried++
		err := j.tidyJob(ctx, id, now)
		if err == nil {
			continue
		}
		j.failures.recordFailure(due, id, j.Running())
		if !errors.Is(err, errNeeded) {
			errs = append(errs, fmt.Errorf("clean up after job %s: %w", id, err))
		}
	}
	return tried >= j.Batch, errors.Join(errs...)
}

// tidyJob cleans up after one job, or finishes the removal of its data. It returns errNeeded if the time
// of the job's input has ended, but an open job reads the input.
func (j *Janitor) tidyJob(ctx context.Context, id string, now time.Time) error {
	rec, err := j.Store.Get(ctx, id)
	if err == nil && rec.DataRemoved != nil {
		return j.removeJobData(ctx, id, now)
	}
	if err == nil && rec.InputUntil != nil {
		needed, err := j.neededJobs(ctx, rec.Spec.Account, now)
		if err != nil {
			return err
		}
		if needed[id] {
			return errNeeded
		}
	}
	return j.Tidy(ctx, id)
}

// isKeptInput reports whether an object is part of an input that is stored for a continuation
// of the job.
func isKeptInput(rec store.Record, key string) bool {
	return rec.InputUntil != nil && rec.InputRemoved == nil && strings.HasPrefix(key, layout.InputPrefix(rec.Job.ID))
}
