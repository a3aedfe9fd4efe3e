package jobs

import (
	"context"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/http/request"
)

const (
	// countsFresh is how long job counts are reused. Console pages request
	// them every few seconds, and counting reads the records of all jobs.
	countsFresh = 2 * time.Second
	// maxCounts limits the cached counts.
	maxCounts = 1000
)

// countedJobs selects the jobs to count. An empty account means all accounts, an empty kind both kinds.
type countedJobs struct {
	account string
	kind    jobKind
}

// jobCounts has the number of jobs in each status; a paused job counts only as paused.
type jobCounts struct {
	Counts  map[rowmill.Status]int `json:"counts"`
	Failed  int                    `json:"with_failed_rows"` // jobs of any status
	Tests   int                    `json:"tests"`            // jobs of kindTests, whatever kind is counted
	Counted int                    `json:"counted"`
	OfAll   bool                   `json:"of_all"` // false if the oldest jobs were not counted
}

// showCounts answers GET /v1/jobs/counts with the number of the jobs of an account, or of all
// accounts, by status.
func (j *Jobs) showCounts(c *gin.Context) (any, error) {
	var p request.Problems
	of := countedJobs{kind: parseKind(c.Query("kind"), "kind", &p)}
	err := p.Err()
	if err != nil {
		return nil, err
	}
	if of.account, err = caller.ResolveReadAccountOrAll(c); err != nil {
		return nil, err
	}
	return j.counts.Get(c.Request.Context(), of, func(ctx context.Context) (jobCounts, error) { return j.countByStatus(ctx, of) })
}

// countByStatus counts jobs by status: all jobs, but not more than the newest maxScanned.
func (j *Jobs) countByStatus(ctx context.Context, of countedJobs) (counted jobCounts, err error) {
	counted.Counts = map[rowmill.Status]int{}
	for _, status := range shownStatuses() {
		counted.Counts[status] = 0
	}
	_, counted.OfAll, err = j.scanJobs(ctx, of.account, "", listPage, func(job listedJob) bool {
		kind := kindOf(job.Job)
		if kind == kindTests {
			counted.Tests++
		}
		if of.kind != "" && kind != of.kind {
			return false
		}
		status := job.ShownStatus()
		if _, known := counted.Counts[status]; known { // unknown: the status of a newer version
			counted.Counts[status]++
		}
		if job.FailedRows > 0 {
			counted.Failed++
		}
		counted.Counted++
		return false
	})
	return counted, err
}
