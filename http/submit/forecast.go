package submit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/http/submission"
	"github.com/rowmill/rowmill/store"
)

const (
	// firstPoll and longestPoll are the shortest and the longest time between two reads of
	// the job's record. The time grows by half after each read. A simulated server answers
	// a row within the time of the first few reads.
	firstPoll   = 10 * time.Millisecond
	longestPoll = 250 * time.Millisecond
)

// AwaitJobEnd waits until a job has ended, and returns its record. ended is false, without an error, if
// JobWait passes or the client disconnects first; there is then no record.
func (s *Submissions) AwaitJobEnd(ctx context.Context, jobID string) (record store.Record, ended bool, err error) {
	waiting, cancel := context.WithTimeout(ctx, s.JobWait)
	defer cancel()
	poll := time.NewTimer(firstPoll)
	defer poll.Stop()
	for every := firstPoll; ; every = min(every*3/2, longestPoll) {
		record, err = s.Store.Get(waiting, jobID)
		if err == nil && record.Job.Status.IsTerminal() {
			return record, true, nil
		}
		if err != nil && waiting.Err() == nil && !errors.Is(err, rowmill.ErrUnavailable) { // an unavailable store may answer again
			return store.Record{}, false, fmt.Errorf("read a job: %w", err)
		}
		poll.Reset(every)
		select {
		case <-waiting.Done():
			return store.Record{}, false, nil
		case <-poll.C:
		}
	}
}

// createWithForecast creates a job with a deadline. First it creates an estimate and waits for its end.
// With an idem, a repeated request finds the same estimate, and then the same job.
func (s *Submissions) createWithForecast(ctx context.Context, who caller.Principal, job *submission.CheckedJob, idem *store.Idempotency) (stored store.Record, existed bool, err error) {
	estimate, existed, err := s.Create(ctx, who, job.NewEstimate(), memberIdempotency(idem, 1))
	if err != nil {
		return stored, false, err
	}
	id, late := estimate.Job.ID, ""
	if !existed {
		s.Service.NotifySubmitted(estimate)
	}
	last, ended, err := s.AwaitJobEnd(ctx, id)
	if err == nil {
		err = ctx.Err() // the client has disconnected: a repeated request with the same idem waits for the estimate again
	}
	if err != nil {
		return stored, false, err
	}
	switch {
	case !ended:
		late = fmt.Sprintf("the estimate %s did not end within %v", id, s.JobWait)
		defer s.cancelEstimate(ctx, id, late) // after the job has copied the rows, because the end of the estimate removes them
	case last.Job.Status != rowmill.StatusSucceeded:
		return stored, false, noForecastError(id, fmt.Sprintf("the estimate %s is %s: %s", id, last.Job.Status, describeEnd(&last.Job)))
	default:
		estimate = last
	}
	forecast, reason := job.UseEstimate(estimate, late)
	switch {
	case !job.OnlyIfMet:
	case forecast == nil:
		return stored, false, noForecastError(id, reason)
	case !forecast.Met:
		return stored, false, notMetError(id, forecast)
	}
	return s.Create(ctx, who, job, idem)
}

// cancelEstimate cancels an estimate that took too long, because no request waits for it any more.
func (s *Submissions) cancelEstimate(ctx context.Context, id, reason string) {
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), CreateTimeout)
	defer done()
	if _, _, err := s.Jobs.CancelJob(ctx, id, "cancelled: "+reason); err != nil && !errors.Is(err, rowmill.ErrTerminal) {
		s.Logger.Warn("cannot cancel an estimate that took too long; it ends later", "job", id, "err", err)
	}
}

// describeEnd returns why an estimate has not succeeded.
func describeEnd(job *rowmill.Job) string {
	if job.FailureReason != nil {
		return job.FailureReason.Message
	}
	return job.Message
}

// noForecastError returns the error for a submission that needs a forecast and gets none.
func noForecastError(estimate, reason string) error {
	return request.Errorf(http.StatusConflict, "no_forecast",
		"the job was not created, because no forecast was possible: %s; correct this, or leave deadline and admit out; use a new %s", reason, headerIdempotency).
		WithField("estimate_job_id", estimate).WithField("forecast", nil)
}

// notMetError returns the error for a submission if the forecast misses the deadline.
func notMetError(estimate string, forecast *rowmill.Forecast) error {
	return request.Errorf(http.StatusConflict, "deadline_not_met",
		`the job was not created, because it would end at about %s, after its deadline %s; send a later deadline or leave admit out, with a new %s; or resume the estimate %s with {"rows": %q} to run all rows without a deadline`,
		forecast.FinishesAt.Format(time.RFC3339Nano), forecast.Deadline.Format(time.RFC3339Nano), headerIdempotency, estimate, rowsRest).
		WithField("estimate_job_id", estimate).WithField("forecast", forecast)
}
