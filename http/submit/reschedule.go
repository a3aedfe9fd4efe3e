package submit

import (
	"errors"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/jobs"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/store"
)

// reschedule answers PATCH /v1/jobs/{job_id}: it changes the priority of an open job, pauses the
// job, or ends its pause.
func (r *resumeHandler) reschedule(c *gin.Context) (any, error) {
	record, err := r.Jobs.FindInPath(c)
	if err != nil {
		return nil, err
	}
	change, err := r.readSchedule(c)
	if err != nil {
		return nil, err
	}
	ctx := c.Request.Context()
	if p := change.Priority; p != nil {
		spec := rowmill.Spec{Priority: p.Priority}
		if err := r.Quotas.ApplyQuotas(ctx, record.Spec.Account, &spec); err != nil {
			return nil, err
		}
		if n := record.Job.NumRows; n != nil && *n > spec.RowQuota && p.Priority != record.Job.Priority {
			return nil, request.Errorf(http.StatusConflict, rowmill.CodeRowQuota, "the job has %d rows, and the quota of a job of priority %d is %d rows", *n, p.Priority, spec.RowQuota).
				WithField("status", record.Job.Status)
		}
		p.RowQuota, p.TokenQuota = spec.RowQuota, spec.TokenQuota
	}
	record, err = r.Store.Reschedule(ctx, record.Job.ID, change)
	switch {
	case errors.Is(err, rowmill.ErrTerminal):
		if record, err = r.Jobs.FindInPath(c); err != nil {
			return nil, err
		}
		return nil, request.Errorf(http.StatusConflict, "job_over", "the job has ended with the status %s; an ended job cannot be paused, and its priority cannot change", record.Job.Status).WithField("status", record.Job.Status)
	case err != nil:
		return nil, err
	}
	r.Jobs.Service.NotifyRescheduled(record)
	return gin.H{"job": jobs.NewView(caller.PrincipalOf(c), r.Jobs.WithWaitReason(&record.Job, record.Spec.Account))}, nil
}

// readSchedule reads and checks the body of a request to reschedule a job.
func (r *resumeHandler) readSchedule(c *gin.Context) (change store.Schedule, err error) {
	body, err := r.ReadObject(c, exchange.SmallObject)
	if err != nil {
		return change, err
	}
	var priority rowmill.Priority
	if body.Read("job_priority", "the integer "+rowmill.PriorityValues, &priority) {
		change.Priority = &store.Reprioritize{Priority: priority}
		if err := priority.Validate(); err != nil {
			body.AddProblem("job_priority", "%v", err)
		}
	}
	var paused bool
	if body.Read("paused", "true or false", &paused) {
		change.Paused = &paused
	}
	body.RejectUnknown("job_priority and paused")
	return change, body.Err()
}
