package actors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"syscall"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/storage"
	"github.com/rowmill/rowmill/internal/retry"
	"github.com/rowmill/rowmill/store"
)

// How the record of a job ends.

// recordSuccess ends a job whose result is made.
func recordSuccess(ctx context.Context, s store.Jobs, f store.Fence, artifacts map[string]store.Artifact, now time.Time) (store.Record, error) {
	return s.Finish(ctx, f, func(r *store.Record) error {
		if err := r.Job.Become(rowmill.StatusSucceeded, now); err != nil {
			return err
		}
		r.Artifacts = artifacts
		r.Job.Message = succeeded(&r.Job)
		r.Job.JobCost = r.Spec.Model.Cost(&r.Job)
		return nil
	})
}

// succeeded says how a job has ended, and of which rows there is no output.
func succeeded(job *rowmill.Job) string {
	if job.FailedRows == 0 || job.NumRows == nil {
		return "Job succeeded."
	}
	return fmt.Sprintf("Job succeeded; %d of %d rows failed and have no output. GET /v1/jobs/%s/errors says why.", job.FailedRows, *job.NumRows, job.ID)
}

// recordEstimate ends a job that asked what its rows would cost.
func recordEstimate(ctx context.Context, s store.Jobs, f store.Fence, rows int64, usd float64, e rowmill.Estimate, now time.Time) (store.Record, error) {
	return s.Finish(ctx, f, func(r *store.Record) error {
		advance(&r.Job, []rowmill.Status{rowmill.StatusStarting, rowmill.StatusRunning, rowmill.StatusSucceeded}, now)
		if r.Job.NumRows == nil {
			r.Job.NumRows = &rows
		}
		r.Job.Estimate = &e
		if !r.Spec.Model.NoPrice {
			r.Job.CostEstimate = &usd
		}
		r.Job.JobCost = r.Spec.Model.Cost(&r.Job)
		r.Job.Message = estimated(r.Spec.Model)
		return nil
	})
}

// estimated says how an estimate has ended.
func estimated(m rowmill.Model) string {
	if m.NoPrice {
		return fmt.Sprintf("The tokens were estimated. %s has no price, so that there is no cost.", m.ID)
	}
	return "The cost was estimated."
}

// recordFailure ends a job that has failed, as often as it takes while the fence
// holds: a disk that was full has room again some time.
func recordFailure(ctx context.Context, s store.Jobs, f store.Fence, failure *rowmill.Failure, now time.Time, log *slog.Logger) (rec store.Record, err error) {
	err = retry.Storage.Do(ctx, func() (err error) {
		rec, err = s.Finish(ctx, f, func(r *store.Record) error {
			advance(&r.Job, []rowmill.Status{rowmill.StatusFailed}, now)
			r.Job.FailureReason = failure
			r.Job.Message = failure.Message
			r.Job.JobCost = r.Spec.Model.Cost(&r.Job)
			return nil
		})
		return err
	}, func(err error) bool { return !rowmill.MustStop(err) }, func(err error) {
		if !storage.Passing(err) { // else the watch has said so, once
			log.Warn("recording a job's failure failed, will be tried again", "err", err)
		}
	})
	return rec, err
}

// internalFailure says what a client can know of a fault of the service.
func internalFailure(err error) *rowmill.Failure {
	f := &rowmill.Failure{Code: rowmill.CodeInternalError, AdditionalContext: err.Error()}
	f.Message = "The service could not go on with the job. Its log says why; after the cause is mended, submit the job again."
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		f.Message = "The disk of the service is full. Once its operator has made room, submit the job again."
	}
	return f
}

// advance takes the job through those of the steps that it has not taken.
func advance(job *rowmill.Job, steps []rowmill.Status, now time.Time) {
	for _, next := range steps {
		_ = job.Become(next, now) // refused where the job is there or beyond already
	}
}

// errForgotten says that the store has other parts than we thought.
var errForgotten = errors.New("the store has lost parts that it had acknowledged")
