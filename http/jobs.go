package http

import (
	"context"
	"errors"
	"fmt"
	nethttp "net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/http/sdk"
	"github.com/rowmill/rowmill/internal/spelling"
	"github.com/rowmill/rowmill/store"
)

// listPage is how many jobs of an unpaginated list are in memory at once.
const listPage = 200

// jobStore is what jobs need of a store.
type jobStore interface {
	Get(ctx context.Context, jobID string) (store.Record, error)
	Head(ctx context.Context, jobID string) (*store.Head, error)
	List(ctx context.Context, account string, limit int, cursor string) ([]*rowmill.Job, string, error)
	Cancel(ctx context.Context, jobID string, now time.Time, change func(*store.Record)) (store.Record, error)
	RemoveData(ctx context.Context, jobID string, now time.Time) (store.Record, error)
	DropParts(ctx context.Context, jobID string) error
}

// jobs are the records of jobs that are there: found, listed, cancelled, and
// rid of their data.
type jobs struct {
	*exchange.Exchange
	store     jobStore
	bucket    blob.Bucket
	cancelled func(jobID string)
	waiting   func(*rowmill.Job, string) string // Service's
	announce  func(context.Context, *store.Record) error
	now       func() time.Time
	spelled   spelled
}

// Find returns a job of the caller's account, or a 404.
func (j *jobs) Find(c *gin.Context, id string) (store.Record, error) {
	if !isJobID(id) {
		return store.Record{}, missing(id)
	}
	record, err := j.store.Get(c.Request.Context(), id)
	if err = readBy(c, id, record.Spec.Account, err); err != nil {
		return store.Record{}, err
	}
	return record, nil
}

// Head returns what clients see of a job of the caller's account, or a 404. Do not
// modify it.
func (j *jobs) Head(c *gin.Context, id string) (*store.Head, error) {
	if !isJobID(id) {
		return nil, missing(id)
	}
	head, err := j.store.Head(c.Request.Context(), id)
	if err != nil {
		return nil, readBy(c, id, "", err)
	}
	return head, readBy(c, id, head.Account, nil)
}

// readBy is what the caller is told of the reading of a job of an account.
func readBy(c *gin.Context, id, account string, err error) error {
	switch {
	case errors.Is(err, rowmill.ErrNotFound), err == nil && account != caller(c).account:
		return missing(id)
	case err != nil:
		return fmt.Errorf("read a job: %w", err)
	}
	return nil
}

func missing(id string) error {
	return request.Errorf(nethttp.StatusNotFound, "job_not_found", "no job was found with the ID %s", spelling.Shorten(id, 64))
}

// named is Find for the job that the path names.
func (j *jobs) named(c *gin.Context) (store.Record, error) { return j.Find(c, c.Param("job_id")) }

// isJobID reports whether id has the shape of a job's.
func isJobID(id string) bool {
	rest, found := strings.CutPrefix(id, "job-")
	if !found || len(rest) != 36 {
		return false
	}
	for i := range len(rest) {
		switch b := rest[i]; {
		case b == '-', '0' <= b && b <= '9', 'a' <= b && b <= 'f':
		default:
			return false
		}
	}
	return true
}

// show answers GET /v1/jobs/{job_id}.
func (j *jobs) show(c *gin.Context) (any, error) {
	head, err := j.Head(c, c.Param("job_id"))
	if err != nil {
		return nil, err
	}
	who := caller(c)
	view := who.view(j.current(&head.Job, who.account))
	return exchange.Appender(func(to []byte) ([]byte, error) {
		to, err := view.append(append(to, `{"job":`...))
		return append(to, "}\n"...), err
	}), nil
}

// current is a job of an account with what it waits for now, where its record
// cannot say so.
func (j *jobs) current(job *rowmill.Job, account string) *rowmill.Job {
	if job.Status.Terminal() {
		return job
	}
	waiting := j.waiting(job, account)
	if waiting == "" {
		return job
	}
	now := *job
	now.Message = waiting
	return &now
}

// A statusView is where a job stands.
type statusView struct {
	Status   rowmill.Status `json:"job_status"`
	Message  string         `json:"message"`
	Metadata statusMetadata `json:"metadata"`
}

// statusMetadata says how far a job is, by counts of committed rows and their tokens,
// and of one that has failed why.
type statusMetadata struct {
	Context       string  `json:"additional_context,omitempty"`
	FailedRows    int64   `json:"failed_rows"`
	FailureReason *string `json:"failure_reason,omitempty"`
	InputTokens   *int64  `json:"input_tokens"`
	NumRows       *int64  `json:"num_rows"`
	OutputTokens  *int64  `json:"output_tokens"`
	RowsDone      int64   `json:"rows_done"`
}

// status answers GET /v1/job-status/{job_id}.
func (j *jobs) status(c *gin.Context) (any, error) {
	head, err := j.Head(c, c.Param("job_id"))
	if err != nil {
		if e := request.Describe(err); e.Status == nethttp.StatusNotFound {
			err = e.With("job_status", rowmill.StatusUnknown).With("metadata", gin.H{})
		}
		return nil, err
	}
	job := &head.Job
	view := &statusView{Status: job.Status, Message: statusMessage(j.current(job, head.Account)), Metadata: statusMetadata{
		NumRows: job.NumRows, RowsDone: job.RowsDone, FailedRows: job.FailedRows, InputTokens: job.InputTokens, OutputTokens: job.OutputTokens,
	}}
	if reason := job.FailureReason; job.Status == rowmill.StatusFailed && reason != nil {
		view.Metadata.FailureReason, view.Metadata.Context = &reason.Message, reason.AdditionalContext
	}
	return view, nil
}

// statusIn answers GET /v1/job-status/{job_id} in the dialect of the key.
func (j *jobs) statusIn(dialect *sdk.Dialect) func(*gin.Context) (any, error) {
	return func(c *gin.Context) (any, error) {
		if speaksSDK(c) {
			return dialect.Status(c)
		}
		return j.status(c)
	}
}

// statusMessage says where a job stands, for a person.
func statusMessage(job *rowmill.Job) string {
	if job.Message != "" && !job.Status.Terminal() {
		return job.Message
	}
	switch job.Status {
	case rowmill.StatusPending:
		return "Job is pending"
	case rowmill.StatusSubmitted:
		return "Job has been submitted"
	case rowmill.StatusStarting:
		return "Job is starting"
	case rowmill.StatusRunning:
		return "Job is running"
	case rowmill.StatusSucceeded:
		if job.FailedRows > 0 && job.NumRows != nil {
			return fmt.Sprintf("Job completed; %d of %d rows failed", job.FailedRows, *job.NumRows)
		}
		return "Job completed successfully"
	case rowmill.StatusCancelled:
		return "Job was cancelled"
	case rowmill.StatusFailed:
		if job.FailureReason != nil {
			return "Job failed: " + job.FailureReason.Message
		}
		return "Job failed"
	}
	return "Status is unknown"
}

// cancel answers POST /v1/jobs/{job_id}/cancel and GET /v1/job-cancel/{job_id}. The cancellation is durable
// before the answer; the pipeline stops the work afterwards.
func (j *jobs) cancel(c *gin.Context) (any, error) {
	var record store.Record
	head, err := j.Head(c, c.Param("job_id")) // a job with a damaged specification has one too
	if err == nil {
		record, _, err = j.end(c.Request.Context(), head.Job.ID, "cancelled on request")
	}
	switch {
	case err == nil:
		return gin.H{"cancelled": true, "message": "The job was cancelled. Rows that are being run may take a moment to stop."}, nil
	case errors.Is(err, rowmill.ErrTerminal):
		return gin.H{"cancelled": false, "message": "The job cannot be cancelled: " + whyOver(record.Job.Status)}, nil
	}
	if e := request.Describe(err); e.Status == nethttp.StatusNotFound {
		err = e.With("cancelled", false)
	}
	return nil, err
}

// end cancels a job for a reason, and returns its record and what it was doing.
func (j *jobs) end(ctx context.Context, id, reason string) (record store.Record, doing string, err error) {
	record, err = j.store.Cancel(ctx, id, j.now().UTC(), func(r *store.Record) {
		doing, r.Job.Message = r.Job.Message, reason
		r.Job.JobCost = r.Spec.Model.Cost(&r.Job)
	})
	if err == nil {
		j.cancelled(id)
	}
	return record, doing, err
}

func whyOver(status rowmill.Status) string {
	switch status {
	case rowmill.StatusSucceeded:
		return "it already completed."
	case rowmill.StatusCancelled:
		return "it was cancelled before."
	}
	return "it already failed."
}

// maxJobsPage bounds a page of jobs.
const maxJobsPage = 100

// listIn answers GET /v1/list-jobs: a page of jobs with limit or a filter, all of
// them without.
func (j *jobs) listIn(shared *sharing) func(*gin.Context) error {
	page := j.Handle(shared.of(j.page))
	return func(c *gin.Context) error {
		_, paginated := c.GetQuery("limit")
		if text := filterOf(c); !paginated && text == (filterText{}) {
			return j.stream(c, caller(c))
		}
		page(c)
		return nil
	}
}

// page is a page of jobs.
func (j *jobs) page(c *gin.Context) (any, error) {
	who := caller(c)
	var p request.Problems
	limit := int(queryInt(c, &p, "limit", maxJobsPage, 1, maxJobsPage))
	filter := filterOf(c).read("", &p)
	if err := p.Err(); err != nil {
		return nil, err
	}
	page, next, all, err := j.filtered(c.Request.Context(), who.account, c.Query("cursor"), limit, filter)
	if err != nil {
		return nil, err
	}
	for i, job := range page {
		page[i] = j.current(job, who.account)
	}
	return exchange.Appender(func(to []byte) (_ []byte, err error) {
		to = append(to, `{"jobs":[`...)
		for i, job := range page {
			if i > 0 {
				to = append(to, ',')
			}
			if to, err = j.spelled.append(to, who, job); err != nil {
				return to, err
			}
		}
		to = append(to, `],"next_cursor":`...)
		to = appendText(to, orNull(next))
		to = append(to, `,"scanned_all":`...)
		to = strconv.AppendBool(to, all)
		return append(to, "}\n"...), nil
	}), nil
}

// stream answers with all jobs of an account, a page in memory at a time.
func (j *jobs) stream(c *gin.Context, who principal) error {
	const head = `{"message":"All jobs of the account, newest first.","jobs":`
	return j.List(c, head, func(yield func(any) error) error {
		for cursor := ""; ; {
			page, next, err := j.store.List(c.Request.Context(), who.account, listPage, cursor)
			if err != nil {
				return fmt.Errorf("list jobs: %w", err)
			}
			if cursor == "" && who.dialect == sdk.Name {
				page = sdk.Dated(page)
			}
			for _, job := range page {
				view, err := who.listed(j.current(job, who.account))
				if err == nil {
					err = yield(view)
				}
				if err != nil {
					return err
				}
			}
			if cursor = next; cursor == "" {
				return nil
			}
		}
	})
}

// deleteData answers DELETE /v1/jobs/{job_id}/data: input, parts and results of
// a job that is over go now instead of at the end of its retention.
func (j *jobs) deleteData(c *gin.Context) (any, error) {
	record, err := j.named(c)
	if err == nil {
		// A client that leaves must not leave half of the data behind.
		record, err = j.removeData(context.WithoutCancel(c.Request.Context()), record)
	}
	if err != nil {
		return nil, err
	}
	j.Logger.Info("data removed on request", exchange.KeyRequest, exchange.RequestID(c), exchange.KeyJob, record.Job.ID)
	return gin.H{"job_id": record.Job.ID, "data_removed": record.DataRemoved}, nil
}

// removeData marks the job first, so that no reader starts on what is about to
// go. The job stays in the hands of retention, which looks again for what a
// worker may still have written.
func (j *jobs) removeData(ctx context.Context, record store.Record) (store.Record, error) {
	id := record.Job.ID
	// With its data it leaves what is to be done after its end.
	if err := j.announce(ctx, &record); err != nil {
		return record, err
	}
	removed, err := j.store.RemoveData(ctx, id, j.now())
	if errors.Is(err, rowmill.ErrConflict) {
		return removed, request.Errorf(nethttp.StatusConflict, "job_not_over",
			"the job is %s; cancel it or wait for its end before its data is deleted", record.Job.Status).With("status", record.Job.Status)
	}
	if err != nil {
		return removed, fmt.Errorf("remove the data of a job: %w", err)
	}
	err = errors.Join(j.bucket.DeletePrefix(ctx, layout.Job(id)), j.store.DropParts(ctx, id))
	if errors.Is(err, rowmill.ErrConflict) { // it was over: the store has forgotten that, and will be told
		err = fmt.Errorf("%w: %w", rowmill.ErrUnavailable, err)
	}
	if err != nil {
		return removed, fmt.Errorf("delete the objects of a job: %w", err)
	}
	return removed, nil
}
