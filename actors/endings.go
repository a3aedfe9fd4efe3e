package actors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"syscall"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/assign"
	"github.com/rowmill/rowmill/actors/storage"
	"github.com/rowmill/rowmill/internal/retry"
	"github.com/rowmill/rowmill/store"
)

// This file records how jobs end: success, failure, or a finished estimate.

// recordSuccess records the success of a job. setResults adds its results to the record.
func recordSuccess(ctx context.Context, s store.Jobs, f store.Fence, now time.Time, setResults func(*store.Record)) (store.Record, error) {
	return s.Finish(ctx, f, func(r *store.Record) error {
		advanceStatus(&r.Job, []rowmill.Status{rowmill.StatusStarting, rowmill.StatusRunning}, now)
		if err := r.Job.Become(rowmill.StatusSucceeded, now); err != nil {
			return err
		}
		r.Job.Message = successMessage(&r.Job)
		r.Job.JobCost = r.Spec.Model.Cost(&r.Job)
		setResults(r)
		return nil
	})
}

// successMessage returns the message of a succeeded job, which says how many rows have
// no output.
func successMessage(job *rowmill.Job) string {
	if job.FailedRows == 0 || job.NumRows == nil {
		return "Job succeeded."
	}
	return fmt.Sprintf("Job succeeded; %d of %d rows failed and have no output. The errors of the job say why.", job.FailedRows, *job.NumRows)
}

// estimateRecorder returns a function that records an estimate.
func estimateRecorder(usd float64, e rowmill.Estimate) func(*store.Record) {
	return func(r *store.Record) {
		setEstimate(r, usd, e)
		r.Job.Message = estimateMessage(r.Spec.Model)
	}
}

// setEstimate sets the estimate of a record, with its cost if the model has a price.
func setEstimate(r *store.Record, usd float64, e rowmill.Estimate) {
	r.Job.Estimate = &e
	if !r.Spec.Model.NoPrice {
		r.Job.CostEstimate = &usd
	}
}

// estimateMessage returns the message of a finished estimate job.
func estimateMessage(m rowmill.Model) string {
	if m.NoPrice {
		return fmt.Sprintf("The tokens were estimated. %s has no price, so there is no cost.", m.ID)
	}
	return "The cost was estimated."
}

// recordFailure records the failure of a job. It retries while this node owns the job,
// because a full disk may get free space again.
func recordFailure(ctx context.Context, s store.Jobs, f store.Fence, failure *rowmill.Failure, now time.Time, log *slog.Logger) (rec store.Record, err error) {
	err = retry.Storage.Do(ctx, func() (err error) {
		rec, err = s.Finish(ctx, f, func(r *store.Record) error {
			advanceStatus(&r.Job, []rowmill.Status{rowmill.StatusFailed}, now)
			r.Job.FailureReason = failure
			r.Job.Message = failure.Message
			r.Job.JobCost = r.Spec.Model.Cost(&r.Job)
			return nil
		})
		return err
	}, func(err error) bool { return !rowmill.ShouldStopJob(err) }, func(err error) {
		if !storage.IsTransient(err) { // else storage has logged it once already
			log.Warn("recording the job's failure failed, will be tried again", "err", err)
		}
	})
	return rec, err
}

// internalFailure returns the failure that clients see if the service itself has caused
// the failure of a job.
func internalFailure(err error) *rowmill.Failure {
	f := &rowmill.Failure{Code: rowmill.CodeInternalError, AdditionalContext: err.Error()}
	f.Message = "The service could not continue the job. Its log has the cause; once the cause is fixed, submit the job again."
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		f.Message = "The disk of the service is full. Once its operator has made room, submit the job again."
	}
	return f
}

// windowFailure returns the failure of a batch after the end of its completion window.
// Rows that the store has recorded by then stay in the results.
func windowFailure(rec *store.Record) *rowmill.Failure {
	return rowmill.Failf(rowmill.CodeWindowExpired,
		"The completion window of %s ended before all requests had run. POST /v1/jobs/%s/resume runs the rest.", rec.Spec.Raw.Window, rec.Job.ID)
}

// rowFailure returns the failure of a job that must end because of an error of one row.
func rowFailure(job string, f *assign.Fault) *rowmill.Failure {
	switch f.Code {
	case rowmill.RowTooLong:
		return rowmill.Failf(rowmill.CodeRowTooLong, "Row %d does not fit the context of the model: %s", f.Row, f.Message)
	case rowmill.CodeModelUnavailable:
		return rowmill.Failf(rowmill.CodeModelUnavailable, "%s. POST /v1/jobs/%s/resume runs the rest once the engine answers again. The limit is jobs.wait_for_engine.", f.Message, job)
	}
	return rowmill.Failf(rowmill.CodeEngineError, "The engine refuses the job (seen at row %d): %s", f.Row, f.Message)
}

// advanceStatus sets the job's status to each of the steps in order, and skips statuses that
// the job has passed already.
func advanceStatus(job *rowmill.Job, steps []rowmill.Status, now time.Time) {
	for _, next := range steps {
		_ = job.Become(next, now) // an error means that the job has this status already, or a later one
	}
}

// errForgotten means that the store has lost acknowledged parts. The job then starts
// again from the parts that are still recorded.
var errForgotten = errors.New("the store has lost parts that it had acknowledged")

// parkMessage returns the message that tells a client why a job is parked. It names the
// nodes that last owned the job.
func parkMessage(id string, ended []store.Claim) string {
	var when []string
	for _, a := range ended {
		when = append(when, fmt.Sprintf("%s, which claimed it at %s", a.Node, a.ClaimedAt().Format("2006-01-02 15:04:05Z")))
	}
	return fmt.Sprintf(
		"Parked, because the job may crash nodes: %d processes in a row ended while they owned it and before it made progress: %s. "+
			"The logs of these nodes say why they ended; if the operating system killed them for lack of memory, its log does. rowmill jobs release %s runs the job at once.",
		len(ended), strings.Join(when, "; "), id)
}
