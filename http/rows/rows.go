// Package rows answers requests about single rows of a job: one row, failed rows, a
// preview, and a comparison with the rows of other jobs.
package rows

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/jobs"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/internal/textfmt"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/results/archive"
	"github.com/rowmill/rowmill/store"
)

// maxErrorsPage limits the failed rows of a page, because each may contain 64 KiB of the
// inference server's answer.
const maxErrorsPage = 100

// Rows answers requests for single rows of a job. It reads the rows from the results if
// the job succeeded, else from the job's committed parts.
type Rows struct {
	Jobs    *jobs.Jobs
	Archive *archive.Archive
}

// Route adds the routes of rows.
func (r *Rows) Route(v1 gin.IRoutes) {
	v1.GET("/jobs/:job_id/rows/:row", r.Jobs.Handle(r.show))
	v1.GET("/jobs/:job_id/errors", r.Jobs.Handle(r.listFailedRows))
	v1.GET("/jobs/:job_id/errors/counts", r.Jobs.Handle(r.Jobs.CacheAnswers(r.countFailures)))
	v1.GET("/jobs/:job_id/preview", r.Jobs.Handle(r.showPreview))
	v1.GET("/jobs/:job_id/preview/counts", r.Jobs.Handle(r.Jobs.CacheAnswers(r.countProperties)))
	v1.GET("/jobs/compare", r.Jobs.Handle(r.compare))
	v1.GET("/jobs/compare/summary", r.Jobs.Handle(r.summarize))
}

// show answers GET /v1/jobs/{job_id}/rows/{row} with one row.
func (r *Rows) show(c *gin.Context) (any, error) {
	n, err := strconv.ParseInt(c.Param("row"), 10, 64)
	if err != nil || n < 0 || n > store.MaxRows {
		return nil, rowmill.Invalid("row", "is %q; it must be the number of a row, from 0", textfmt.Shorten(c.Param("row"), 32))
	}
	record, err := r.jobWithRows(c)
	if err != nil {
		return nil, err
	}
	view, err := r.Archive.ReadRow(c.Request.Context(), record, n)
	switch total, status := record.Job.NumRows, record.Job.Status; {
	case errors.Is(err, archive.ErrNoRow) && total != nil:
		err = request.Errorf(http.StatusNotFound, "row_not_found", "the job has no row %d; its rows are numbered 0 to %d", n, *total-1)
	case errors.Is(err, archive.ErrNoRow):
		err = request.Errorf(http.StatusNotFound, "row_not_found", "the job has no row %d", n)
	case errors.Is(err, archive.ErrNotDone):
		err = request.Errorf(http.StatusConflict, "row_not_done", "row %d is not done; the job is %s", n, status).WithField("status", status)
	}
	view.Output = exchange.ToDecimals(view.Output)
	return view, err
}

// jobWithRows returns the job in the path, or an error if no rows of the job are stored.
func (r *Rows) jobWithRows(c *gin.Context) (store.Record, error) {
	return withRows(r.Jobs.FindInPath(c))
}

// withRows returns a job that was found. It refuses an estimate job, because the rows of an
// estimate job are not stored.
func withRows(record store.Record, err error) (store.Record, error) {
	if err == nil && record.Job.RunType == rowmill.RunEstimate {
		err = request.CheckHasPartialRows(record, results.FileVariant{})
	}
	return record, err
}

// listFailedRows answers GET /v1/jobs/{job_id}/errors with a page of failed rows and, unless
// not_run is false, the rows that an ended job did not run.
func (r *Rows) listFailedRows(c *gin.Context) (any, error) {
	var p request.Problems
	limit := int(exchange.QueryInt(c, &p, "limit", maxErrorsPage, 1, maxErrorsPage))
	notRun := true
	if _, given := c.GetQuery("not_run"); given {
		notRun = exchange.QueryBool(c, &p, "not_run")
	}
	from, ok := parseFailureCursor(c.Query("cursor"))
	if !ok {
		p.Add("cursor", "is not a cursor of this list; send the next_cursor of the previous page, unchanged")
	}
	if err := p.Err(); err != nil {
		return nil, err
	}
	record, err := r.jobWithRows(c)
	if err != nil {
		return nil, err
	}
	list, job := r.Archive.ListFailures, record.Job
	if notRun && job.Status.IsTerminal() && job.Status != rowmill.StatusSucceeded && record.IsCutIntoShards() {
		list = r.Archive.ListFailedAndMissing
	}
	found, more, err := list(c.Request.Context(), record, from, limit)
	body := gin.H{"errors": exchange.OrEmptyList(found), "next_cursor": nil}
	if more != nil {
		body["next_cursor"] = fmt.Sprintf("%d.%d", more.Shard, more.After)
	}
	return body, err
}

const (
	// maxFailuresRead limits how many failed rows a request reads to count the reasons.
	// Fewer rows already show the main reason.
	maxFailuresRead = 100_000
	// failuresAtOnce limits how many failed rows are in memory at once. Each may contain
	// 64 KiB of the inference server's answer.
	failuresAtOnce = 500
)

// failureCount is the number of rows that failed with one error code.
type failureCount struct {
	Code    string `json:"code"`
	Rows    int64  `json:"rows"`
	First   int64  `json:"first_row"`
	Message string `json:"message"` // error message of the first row
}

// countFailures answers GET /v1/jobs/{job_id}/errors/counts: the number of failed rows by
// code, the most frequent first.
func (r *Rows) countFailures(c *gin.Context) (any, error) {
	record, err := withRows(r.Jobs.FindReadable(c))
	if err != nil {
		return nil, err
	}
	counts, at, counted := []failureCount{}, map[string]int{}, 0
	for place := archive.FirstFailurePosition(); counted < maxFailuresRead; {
		found, more, err := r.Archive.ListFailures(c.Request.Context(), record, place, min(failuresAtOnce, maxFailuresRead-counted))
		if err != nil {
			return nil, err
		}
		for _, f := range found {
			i, known := at[f.Code]
			if !known {
				i = len(counts)
				at[f.Code] = i
				counts = append(counts, failureCount{Code: f.Code, First: f.Row, Message: f.Message})
			}
			counts[i].Rows++
		}
		if counted += len(found); more == nil {
			break
		}
		place = *more
	}
	slices.SortStableFunc(counts, func(a, b failureCount) int { return cmp.Compare(b.Rows, a.Rows) })
	return gin.H{"counts": counts, "counted": counted, "failed_rows": record.Job.FailedRows}, nil
}

// parseFailureCursor parses a cursor in the list of failed rows: <shard>.<row>.
func parseFailureCursor(cursor string) (place archive.FailurePosition, ok bool) {
	if cursor == "" {
		return archive.FirstFailurePosition(), true
	}
	first, second, _ := strings.Cut(cursor, ".")
	shard, err := strconv.Atoi(first)
	if err != nil || shard < 0 {
		return place, false
	}
	after, err := strconv.ParseInt(second, 10, 64)
	return archive.FailurePosition{Shard: shard, After: after}, err == nil && after >= 0
}
