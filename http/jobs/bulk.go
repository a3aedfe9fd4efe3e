package jobs

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"github.com/gin-gonic/gin"
	"golang.org/x/sync/errgroup"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/audit"
	"github.com/rowmill/rowmill/http/caller"
)

const (
	// maxBulk limits the jobs that one request cancels. The answer is sent when all
	// cancellations are durable, and clients wait only a minute or two for an answer.
	maxBulk = 1000
	// bulkAtOnce is how many cancellations of one request run in parallel. The store groups
	// their writes.
	bulkAtOnce = 8
	// maxBulkShown limits the job ids in the answer and in the audit record.
	maxBulkShown = 100
	// maxBulkBody limits the size of the request body, in bytes: enough for maxBulk ids.
	maxBulkBody = 128 << 10
)

// bulkCancelRequest is a request to cancel many jobs. It selects the jobs by id or by filter.
type bulkCancelRequest struct {
	ids    []string
	filter *jobFilter
	dry    bool
}

// bulkView is the answer to a request to cancel many jobs, or to its dry run.
type bulkView struct {
	Matched   int      `json:"matched"`
	Cancelled int      `json:"cancelled"`
	Over      int      `json:"already_over"`
	Dry       bool     `json:"dry_run"`
	All       bool     `json:"scanned_all"` // false if the filter did not search the oldest jobs
	JobIDs    []string `json:"job_ids"`     // ids of the first cancelled jobs, at most maxBulkShown
}

// cancelSelected answers POST /v1/jobs/cancel: it cancels all selected jobs that have not
// ended.
func (j *Jobs) cancelSelected(c *gin.Context) (any, error) {
	if err := caller.CheckOwnAccount(c); err != nil {
		return nil, err
	}
	asked, err := j.readBulkCancel(c)
	if err != nil {
		return nil, err
	}
	view := bulkView{Dry: asked.dry}
	open, err := j.selectOpen(c, asked, &view)
	if err != nil {
		return nil, err
	}
	open = open[:min(len(open), maxBulk)]
	view.Cancelled, view.JobIDs = len(open), open[:min(len(open), maxBulkShown)]
	if asked.dry || len(open) == 0 {
		return view, nil
	}
	details := gin.H{"jobs": len(open), "job_ids": view.JobIDs}
	err = j.Audit.RecordAndRun(c, audit.Action{Name: audit.JobsCancel, Account: caller.PrincipalOf(c).Account, Target: "", Details: details}, func(ctx context.Context) error {
		cancelled, err := j.cancelJobs(context.WithoutCancel(ctx), open) // cancels all jobs even if the client disconnects
		view.Over += len(open) - cancelled
		view.Cancelled = cancelled
		return err
	})
	return view, err
}

// readBulkCancel reads and checks the body of a request to cancel many jobs.
func (j *Jobs) readBulkCancel(c *gin.Context) (asked bulkCancelRequest, err error) {
	body, err := j.ReadObject(c, maxBulkBody)
	if err != nil {
		return asked, err
	}
	ids := body.Read("job_ids", "an array of ids of jobs", &asked.ids)
	if n := len(asked.ids); ids && (n == 0 || n > maxBulk) {
		body.AddProblem("job_ids", "are %d; send 1 to %d at once", n, maxBulk)
	}
	if fields, given := body.ReadInnerObject("filter"); given {
		f := readBodyFilter(fields)
		asked.filter = &f
	}
	if ids == (asked.filter != nil) && body.Problems.Len() == 0 {
		body.AddProblem("job_ids", "and filter: send one of the two")
	}
	body.Read("dry_run", "true or false", &asked.dry)
	body.RejectUnknown("job_ids, filter and dry_run")
	return asked, body.Err()
}

// selectOpen returns the ids of the selected jobs that have not ended; with a filter, the
// newest first. It adds the numbers of all selected jobs and of the ended ones to view.
func (j *Jobs) selectOpen(c *gin.Context, asked bulkCancelRequest, view *bulkView) (open []string, err error) {
	open = []string{} // JSON [] if no job matches
	take := func(job *rowmill.Job) {
		view.Matched++
		if job.Status.IsTerminal() {
			view.Over++
			return
		}
		open = append(open, job.ID)
	}
	if asked.filter == nil {
		view.All = true
		slices.Sort(asked.ids)
		for _, id := range slices.Compact(asked.ids) {
			record, err := j.Find(c, id)
			if err != nil {
				return nil, err
			}
			take(&record.Job)
		}
		return open, nil
	}
	_, view.All, err = j.scanJobs(c.Request.Context(), caller.PrincipalOf(c).Account, "", listPage, func(job listedJob) bool {
		if asked.filter.matches(job.Job) {
			take(job.Job)
		}
		return asked.filter.isTooOld(job.Job)
	})
	return open, err
}

// cancelJobs cancels jobs and returns how many it cancelled. Jobs that had already ended do
// not count.
func (j *Jobs) cancelJobs(ctx context.Context, ids []string) (int, error) {
	var cancelled atomic.Int64
	var g errgroup.Group
	g.SetLimit(bulkAtOnce)
	for _, id := range ids {
		g.Go(func() error {
			_, _, err := j.CancelJob(ctx, id, "cancelled on request")
			switch {
			case err == nil:
				cancelled.Add(1)
			case errors.Is(err, rowmill.ErrTerminal):
				err = nil
			}
			return err
		})
	}
	err := g.Wait()
	return int(cancelled.Load()), err
}
