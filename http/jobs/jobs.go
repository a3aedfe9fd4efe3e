// Package jobs answers requests about existing jobs: show, list, count, progress, cancel,
// and remove data. It defines the form of a job in answers. It does not create jobs and
// does not read their results.
package jobs

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/http/audit"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/http/sdk"
	"github.com/rowmill/rowmill/http/webhook"
	"github.com/rowmill/rowmill/internal/cache"
	"github.com/rowmill/rowmill/internal/textfmt"
	"github.com/rowmill/rowmill/store"
)

// listPage is how many jobs are in memory at once while an answer lists or counts all
// jobs.
const listPage = 200

// Jobs answers requests about jobs that exist.
type Jobs struct {
	Config
	answers cache.TTL[answerCacheKey, any] // answers that CacheAnswers caches
	counts  cache.TTL[countedJobs, jobCounts]
	encoded cache.LRU[*rowmill.Job, []byte] // JSON texts of ended jobs, for lists
	track   sampleTracker
}

// Config has the dependencies of Jobs.
type Config struct {
	*exchange.Exchange
	Store   store.Store
	Bucket  blob.Bucket
	Service Service
	Audit   *audit.Auditor
	Now     func() time.Time
}

// Service is the part of the pipeline that the package uses.
type Service interface {
	// NotifyCancelled tells the pipeline that a job was just cancelled in the store. The call is
	// only a hint, and must not block.
	NotifyCancelled(jobID string)
	// NotifyRescheduled tells the pipeline that a job was just paused or has a new priority, or
	// that its pause has ended. The call is only a hint, and must not block.
	NotifyRescheduled(record store.Record)
	// WaitReason returns the reason why a job of an account waits. It returns "" if the job
	// does not wait or if the job's record contains the reason. WaitReason uses only the
	// job's id and status, and may be called each second.
	WaitReason(job *rowmill.Job, account string) string
	// RowDistribution returns the nodes and shards of a running job, or nil if they are
	// unknown. It does not change the record.
	RowDistribution(ctx context.Context, record *store.Record) *RowDistribution
}

// New returns the Jobs of a server.
func New(config Config) *Jobs {
	return &Jobs{
		Config:  config,
		answers: cache.TTL[answerCacheKey, any]{Age: sharedAge, Most: maxSharedAnswers, Now: config.Now},
		counts:  cache.TTL[countedJobs, jobCounts]{Age: countsFresh, Most: maxCounts, Now: config.Now},
		encoded: cache.LRU[*rowmill.Job, []byte]{Most: minEncoded},
	}
}

// Route adds the routes of jobs. dialect answers status requests with keys of the sdk
// dialect.
func (j *Jobs) Route(v1 gin.IRoutes, dialect *sdk.Dialect) {
	v1.GET("/jobs/:job_id", j.Handle(j.CacheAnswers(j.show)))
	v1.GET("/job-status/:job_id", j.Handle(j.statusHandler(dialect)))
	v1.GET("/job-cancel/:job_id", j.Handle(j.cancel))
	v1.POST("/jobs/:job_id/cancel", j.Handle(j.cancel))
	v1.POST("/jobs/:job_id/release", j.Handle(j.releaseParkedJob))
	v1.POST("/jobs/cancel", j.Handle(j.cancelSelected))
	v1.GET("/jobs/counts", j.Handle(j.showCounts))
	v1.GET("/list-jobs", j.HandleRaw(j.list))
	v1.DELETE("/jobs/:job_id/data", j.Handle(j.deleteData))
	v1.GET("/jobs/:job_id/progress", j.Handle(j.CacheAnswers(j.showProgress)))
	v1.GET("/jobs/:job_id/timeline", j.Handle(j.CacheAnswers(j.showTimeline)))
}

// Find returns a job, or a 404 if the job does not exist or belongs to another account.
func (j *Jobs) Find(c *gin.Context, id string) (store.Record, error) {
	return find(c, id, ownAccount, j.Store.Get, func(r store.Record) string { return r.Spec.Account })
}

// FindHead returns the part of a job that clients see, or a 404 if the job does not exist or
// belongs to another account. Callers must not modify the result.
func (j *Jobs) FindHead(c *gin.Context, id string) (*store.JobHead, error) {
	return find(c, id, ownAccount, j.Store.Head, func(h *store.JobHead) string { return h.Account })
}

// FindReadable is FindInPath for requests that only read the job's record: an operator may name
// the account of the job in the query.
func (j *Jobs) FindReadable(c *gin.Context) (store.Record, error) {
	return find(c, c.Param("job_id"), caller.ResolveReadAccountOrAll, j.Store.Get, func(r store.Record) string { return r.Spec.Account })
}

// ownAccount returns the caller's account, or an error if the query names another one.
func ownAccount(c *gin.Context) (string, error) {
	return caller.PrincipalOf(c).Account, caller.CheckOwnAccount(c)
}

// find returns what read returns for a job. The error is a 404 if the job does not exist, or if its
// account is not the one that resolve returns; "" allows all accounts.
func find[T any](c *gin.Context, id string, resolve func(*gin.Context) (string, error), read func(context.Context, string) (T, error), accountOf func(T) string) (found T, err error) {
	var none T
	allowed, err := resolve(c)
	if err != nil {
		return none, err
	}
	if !isJobID(id) {
		return none, jobNotFoundError(id)
	}
	found, err = read(c.Request.Context(), id)
	switch {
	case errors.Is(err, rowmill.ErrNotFound), err == nil && allowed != "" && accountOf(found) != allowed:
		return none, jobNotFoundError(id)
	case err != nil:
		return none, fmt.Errorf("read a job: %w", err)
	}
	return found, nil
}

func jobNotFoundError(id string) error {
	return request.Errorf(http.StatusNotFound, "job_not_found", "no job was found with the ID %s", textfmt.Shorten(id, 64))
}

// FindInPath returns the job whose id is in the path, or the same errors as Find.
func (j *Jobs) FindInPath(c *gin.Context) (store.Record, error) { return j.Find(c, c.Param("job_id")) }

// isJobID reports whether id has the form of a job id.
func isJobID(id string) bool {
	rest, found := strings.CutPrefix(id, "job-")
	return found && len(rest) == 36 && strings.Trim(rest, "-0123456789abcdef") == ""
}

// show answers GET /v1/jobs/{job_id} with one job.
func (j *Jobs) show(c *gin.Context) (any, error) {
	head, err := find(c, c.Param("job_id"), caller.ResolveReadAccountOrAll, j.Store.Head, func(h *store.JobHead) string { return h.Account })
	if err != nil {
		return nil, err
	}
	view := NewView(caller.PrincipalOf(c), j.WithWaitReason(&head.Job, head.Account))
	view.Account = namedAccount(c, head.Account)
	return gin.H{"job": view}, nil
}

// namedAccount returns the account of a job if the query has the parameter account, else "":
// the answer shows the account only then.
func namedAccount(c *gin.Context, account string) string {
	if c.Query("account") == "" {
		return ""
	}
	return account
}

// WithWaitReason returns the job with its current message. If the job waits for a reason that
// its record does not contain, the message is this reason.
func (j *Jobs) WithWaitReason(job *rowmill.Job, account string) *rowmill.Job {
	if job.Status.IsTerminal() {
		return job
	}
	waiting := j.waitReason(job, account)
	if waiting == "" {
		return job
	}
	now := *job
	now.Message = waiting
	return &now
}

// waitReason returns the reason why an open job waits, if the record does not contain it; else "".
func (j *Jobs) waitReason(job *rowmill.Job, account string) string {
	if job.Paused {
		return "Paused. No new row starts until the pause ends."
	}
	return j.Service.WaitReason(job, account)
}

// A statusView is the answer of GET /v1/job-status/{job_id}.
type statusView struct {
	Status   rowmill.Status `json:"job_status"`
	Message  string         `json:"message"`
	Metadata statusMetadata `json:"metadata"`
}

// statusMetadata has the numbers of committed rows and of their tokens, and the reason of
// a failure.
type statusMetadata struct {
	Context       string  `json:"additional_context,omitempty"`
	FailedRows    int64   `json:"failed_rows"`
	FailureReason *string `json:"failure_reason,omitempty"`
	InputTokens   *int64  `json:"input_tokens"`
	NumRows       *int64  `json:"num_rows"`
	OutputTokens  *int64  `json:"output_tokens"`
	RowsDone      int64   `json:"rows_done"`
}

// showStatus answers GET /v1/job-status/{job_id} with the status of a job.
func (j *Jobs) showStatus(c *gin.Context) (any, error) {
	head, err := j.FindHead(c, c.Param("job_id"))
	if err != nil {
		if e := request.FromError(err); e.Status == http.StatusNotFound {
			err = e.WithField("job_status", rowmill.StatusUnknown).WithField("metadata", gin.H{})
		}
		return nil, err
	}
	job := &head.Job
	view := &statusView{Status: job.Status, Message: statusMessage(j.WithWaitReason(job, head.Account)), Metadata: statusMetadata{
		NumRows: job.NumRows, RowsDone: job.RowsDone, FailedRows: job.FailedRows, InputTokens: job.InputTokens, OutputTokens: job.OutputTokens,
	}}
	if reason := job.FailureReason; job.Status == rowmill.StatusFailed && reason != nil {
		view.Metadata.FailureReason, view.Metadata.Context = &reason.Message, reason.AdditionalContext
	}
	return view, nil
}

// statusHandler answers GET /v1/job-status/{job_id} in the dialect of the key.
func (j *Jobs) statusHandler(dialect *sdk.Dialect) func(*gin.Context) (any, error) {
	return func(c *gin.Context) (any, error) {
		if sdk.UsesDialect(c) {
			return dialect.ShowStatus(c)
		}
		return j.showStatus(c)
	}
}

var statusMessages = map[rowmill.Status]string{
	rowmill.StatusPending: "Job is pending", rowmill.StatusSubmitted: "Job has been submitted", rowmill.StatusStarting: "Job is starting",
	rowmill.StatusRunning: "Job is running", rowmill.StatusSucceeded: "Job completed successfully",
	rowmill.StatusCancelled: "Job was cancelled", rowmill.StatusFailed: "Job failed",
}

// statusMessage returns a sentence for people about a job's status.
func statusMessage(job *rowmill.Job) string {
	switch {
	case job.Message != "" && !job.Status.IsTerminal():
		return job.Message
	case job.Status == rowmill.StatusSucceeded && job.FailedRows > 0 && job.NumRows != nil:
		return fmt.Sprintf("Job completed; %d of %d rows failed", job.FailedRows, *job.NumRows)
	case job.Status == rowmill.StatusFailed && job.FailureReason != nil:
		return "Job failed: " + job.FailureReason.Message
	}
	return cmp.Or(statusMessages[job.Status], "Status is unknown")
}

// cancel answers POST /v1/jobs/{job_id}/cancel and GET /v1/job-cancel/{job_id}. The
// cancellation is durable before the answer; the pipeline stops the work afterwards.
func (j *Jobs) cancel(c *gin.Context) (any, error) {
	var record store.Record
	head, err := j.FindHead(c, c.Param("job_id")) // FindHead also reads a job whose specification is damaged
	if err == nil {
		record, _, err = j.CancelJob(c.Request.Context(), head.Job.ID, "cancelled on request")
	}
	switch {
	case err == nil:
		return gin.H{"cancelled": true, "message": "The job was cancelled. Rows that are being run may take a moment to stop."}, nil
	case errors.Is(err, rowmill.ErrTerminal):
		return gin.H{"cancelled": false, "message": "The job cannot be cancelled: " + describeEnd(record.Job.Status)}, nil
	}
	if e := request.FromError(err); e.Status == http.StatusNotFound {
		err = e.WithField("cancelled", false)
	}
	return nil, err
}

// CancelJob cancels a job and sets its message to reason. It returns the job's new record
// and, as oldMessage, the message that the job had before.
func (j *Jobs) CancelJob(ctx context.Context, id, reason string) (record store.Record, oldMessage string, err error) {
	record, err = j.Store.Cancel(ctx, id, j.Now().UTC(), func(r *store.Record) {
		oldMessage, r.Job.Message = r.Job.Message, reason
		r.Job.JobCost = r.Spec.Model.Cost(&r.Job)
	})
	if err == nil {
		j.Service.NotifyCancelled(id)
	}
	return record, oldMessage, err
}

// releaseParkedJob answers POST /v1/jobs/{job_id}/release: it ends the pause of a parked job, so
// that the job runs again now.
func (j *Jobs) releaseParkedJob(c *gin.Context) (any, error) {
	head, err := j.FindHead(c, c.Param("job_id"))
	if err == nil {
		err = j.Store.Unpark(c.Request.Context(), head.Job.ID)
	}
	if errors.Is(err, rowmill.ErrConflict) {
		return nil, request.Errorf(http.StatusConflict, "job_not_parked", "the job is %s and not parked", head.Job.Status).WithField("status", head.Job.Status)
	}
	if err != nil {
		return nil, err
	}
	return j.show(c)
}

// describeEnd says how a job ended before the request to cancel it.
func describeEnd(status rowmill.Status) string {
	switch status {
	case rowmill.StatusSucceeded:
		return "it already completed."
	case rowmill.StatusCancelled:
		return "it was cancelled before."
	}
	return "it already failed."
}

// maxJobsPage limits the jobs on a page of GET /v1/list-jobs.
const maxJobsPage = 100

// list answers GET /v1/list-jobs: one page of jobs if the query has a limit or a filter,
// else all jobs.
func (j *Jobs) list(c *gin.Context) error {
	_, paginated := c.GetQuery("limit")
	if text := readQueryFilter(c); !paginated && text == (rawJobFilter{}) {
		return j.streamAllJobs(c)
	}
	j.Handle(j.CacheAnswers(j.showJobsPage))(c)
	return nil
}

// showJobsPage answers with one page of the jobs that the query's filter selects.
func (j *Jobs) showJobsPage(c *gin.Context) (any, error) {
	who := caller.PrincipalOf(c)
	var p request.Problems
	limit := int(exchange.QueryInt(c, &p, "limit", maxJobsPage, 1, maxJobsPage))
	filter := readQueryFilter(c).parse("", &p)
	if err := p.Err(); err != nil {
		return nil, err
	}
	account, err := caller.ResolveReadAccountOrAll(c)
	if err != nil {
		return nil, err
	}
	page, next, all, err := j.filteredPage(c.Request.Context(), account, c.Query("cursor"), limit, filter)
	if err != nil {
		return nil, err
	}
	pieces, comma := exchange.EncodedJSON{[]byte(`{"jobs":[`)}, []byte(",")
	for i, job := range page {
		if i > 0 {
			pieces = append(pieces, comma)
		}
		encoded, err := j.encode(who, j.WithWaitReason(job.Job, job.account), namedAccount(c, job.account))
		if err != nil {
			return nil, err
		}
		pieces = append(pieces, encoded)
	}
	rest, err := exchange.Encode(gin.H{"next_cursor": exchange.NilIfZero(next), "scanned_all": all})
	return append(pieces, []byte("],"), bytes.TrimPrefix(rest, []byte("{"))), err
}

// streamAllJobs answers with all jobs of an account, or of all accounts. Only one page of jobs is
// in memory at a time.
func (j *Jobs) streamAllJobs(c *gin.Context) error {
	who := caller.PrincipalOf(c)
	account, err := caller.ResolveReadAccountOrAll(c)
	if err != nil {
		return err
	}
	const head = `{"message":"All jobs of the account, newest first.","jobs":`
	return j.StreamList(c, head, func(yield func(any) error) error {
		for cursor := ""; ; {
			page, next, err := j.listPage(c.Request.Context(), account, listPage, cursor)
			if err != nil {
				return err
			}
			if cursor == "" && who.Dialect == sdk.Name {
				jobs := make([]*rowmill.Job, len(page))
				for i, job := range page {
					jobs[i] = job.Job
				}
				for i, dated := range sdk.WithCompletionTime(jobs) {
					page[i].Job = dated
				}
			}
			for _, job := range page {
				view, err := newListItem(who, j.WithWaitReason(job.Job, job.account), namedAccount(c, job.account))
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

// deleteData answers DELETE /v1/jobs/{job_id}/data: it removes the input, parts and
// results of an ended job before their retention ends.
func (j *Jobs) deleteData(c *gin.Context) (any, error) {
	record, err := j.FindInPath(c)
	if err == nil {
		// The removal continues even if the client disconnects.
		record, err = j.DropData(context.WithoutCancel(c.Request.Context()), record)
	}
	if err != nil {
		return nil, err
	}
	j.Logger.Info("the data of a job was removed on request", exchange.KeyRequest, exchange.RequestID(c), exchange.KeyJob, record.Job.ID)
	return gin.H{"job_id": record.Job.ID, "data_removed": record.DataRemoved}, nil
}

// DropData removes the data of an ended job. It first marks the data as removed, so
// that no request starts to read data that is about to be deleted. Retention removes
// the data again later, because a worker may still write an object.
func (j *Jobs) DropData(ctx context.Context, record store.Record) (store.Record, error) {
	id := record.Job.ID
	// CreateDeliveries must run before RemoveData: after RemoveData the record counts as
	// cleaned up, and CreateDeliveries does nothing.
	if _, err := webhook.CreateDeliveries(ctx, j.Store, &record); err != nil {
		return record, err
	}
	removed, err := j.Store.RemoveData(ctx, id, j.Now())
	if errors.Is(err, rowmill.ErrConflict) {
		return removed, request.Errorf(http.StatusConflict, "job_not_over",
			"the job is %s; cancel it or wait for its end before its data is deleted", record.Job.Status).WithField("status", record.Job.Status)
	}
	if err != nil {
		return removed, fmt.Errorf("remove the data of a job: %w", err)
	}
	err = errors.Join(j.Bucket.DeletePrefix(ctx, layout.JobPrefix(id)), j.Store.DropParts(ctx, id))
	if errors.Is(err, rowmill.ErrConflict) { // the store lost the write that ended the job; the write will be repeated
		err = fmt.Errorf("%w: %w", rowmill.ErrUnavailable, err)
	}
	if err != nil {
		return removed, fmt.Errorf("delete the objects of a job: %w", err)
	}
	return removed, nil
}
