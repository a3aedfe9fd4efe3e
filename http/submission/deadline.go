package submission

import (
	"cmp"
	"errors"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/store"
)

// A job with a deadline gets a forecast before it is created: an estimate runs a sample of its rows.
// Then the job takes the input and the answers of the estimate.
//
//	CheckedJob ──► NewEstimate ──► the estimate ends ──► UseEstimate ──► StoreRows ──► ToRecord

const (
	fieldDeadline  = "deadline"
	fieldAdmit     = "admit"
	admitOnlyIfMet = "only_if_met" // the only value of admit
)

// readDeadline reads and checks the field deadline.
func (sub *Submission) readDeadline(job *CheckedJob) {
	var text string
	if !sub.decodeField(fieldDeadline, "a string", &text) {
		return
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		at, err = time.Parse("2006-01-02T15:04Z07:00", text)
	}
	at = at.UTC()
	spec := &job.Spec
	if problem := cmp.Or(
		refuseIf(err != nil || at.Year() > 9999, "must be a time with a time zone, such as 2026-11-27T06:00Z"),
		refuseIf(err == nil && !at.After(sub.Now()), "has passed; send a time in the future, or leave it out"),
		refuseIf(spec.Estimate, "is not for estimates, which make the forecast themselves; leave one of the two out"),
		refuseIf(spec.Limit > 0, "is for jobs that run all rows; leave limit out"),
		refuseIf(spec.Reuse != nil, "cannot be used with reuse, because the forecast does not know how many rows are reused; leave one of the two out"),
		refuseIf(sub.ofSet, "cannot be used in a set; submit the jobs one by one"),
	); problem != nil {
		sub.problems.Add(fieldDeadline, "%s", problem)
		return
	}
	job.Deadline = &at
}

// readAdmit reads and checks the field admit.
func (sub *Submission) readAdmit(job *CheckedJob) {
	var admit string
	if !sub.decodeField(fieldAdmit, "a string", &admit) {
		return
	}
	_, hasDeadline := sub.fields[fieldDeadline]
	if problem := cmp.Or(
		refuseIf(admit != admitOnlyIfMet, "must be %q or null", admitOnlyIfMet),
		refuseIf(!hasDeadline, "needs deadline, the time by which the job must end; send deadline too, or leave admit out"),
	); problem != nil {
		sub.problems.Add(fieldAdmit, "%s", problem)
	}
	job.OnlyIfMet = true
}

// NewEstimate returns the estimate that makes the forecast of a job with a deadline. The estimate has
// the id of the job and the rows that the client sent. UseEstimate gives the job another id.
func (job *CheckedJob) NewEstimate() *CheckedJob {
	estimate := *job
	estimate.Spec.Estimate, estimate.Deadline = true, nil
	return &estimate
}

// UseEstimate makes the job take the rows of its estimate, and sets its forecast. estimate has succeeded,
// or reason says why it did not end. Without a forecast, UseEstimate adds a warning with the reason, and
// returns the reason as why.
func (job *CheckedJob) UseEstimate(estimate store.Record, reason string) (forecast *rowmill.Forecast, why string) {
	job.ID, job.estimate = rowmill.NewJobID(), &estimate // a new id now, because ids sort by time of creation
	made := &estimate.Job
	if job.continuesEstimate() && made.Estimate != nil {
		job.forecast = made.Estimate.ForecastEnd(*made.Completed, *job.Deadline)
	}
	if job.forecast != nil {
		return job.forecast, ""
	}
	if reason == "" {
		reason = "no server of the model answered a sample of the rows"
	}
	if job.Spec.Model.Kind == rowmill.KindEmbedding {
		reason = job.Spec.Model.ID + " is an embedding model"
	}
	job.warn("deadline: no forecast was possible: " + reason)
	return nil, reason
}

// continuesEstimate reports whether the job takes over the answers of its estimate.
func (job *CheckedJob) continuesEstimate() bool {
	return job.estimate != nil && job.estimate.Job.Status == rowmill.StatusSucceeded
}

// takeRowsOfEstimate is StoreRows for a job whose estimate has stored the rows. If the job does not
// continue the estimate, it gets a copy of them.
func (job *CheckedJob) takeRowsOfEstimate() (err error) {
	was := &job.estimate.Spec
	job.Spec.Function = was.Function
	if job.continuesEstimate() || was.Spooled == "" {
		return nil
	}
	rows := *job.sub.rows
	rows.job = job.ID
	job.Spec.Spooled, err = rows.copyObject(was.Spooled)
	if errors.Is(err, rowmill.ErrNotFound) { // the estimate failed meanwhile, and its input was removed
		return request.RetryLater("estimate_ended", "the estimate %s ended meanwhile; send the submission again", job.estimate.Job.ID)
	}
	return err
}
