package jobs

import (
	"context"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/caller"
)

const (
	// countsFresh is how long the job counts of an account are reused. Console pages request
	// them every few seconds, and counting reads the records of all jobs.
	countsFresh = 2 * time.Second
	// maxCounts limits the accounts with cached counts.
	maxCounts = 1000
)

// jobCounts has the number of an account's jobs in each status; a paused job counts only as paused.
type jobCounts struct {
	Counts  map[rowmill.Status]int `json:"counts"`
	Failed  int                    `json:"with_failed_rows"` // jobs of any status
	Counted int                    `json:"counted"`
	OfAll   bool                   `json:"of_all"` // false if the oldest jobs were not counted
}

// showCounts answers GET /v1/jobs/counts with the number of the jobs of an account, or of all
// accounts, by status.
func (j *Jobs) showCounts(c *gin.Context) (any, error) {
	account, err := caller.ResolveReadAccountOrAll(c)
	if err != nil {
		return nil, err
	}
	return j.counts.Get(c.Request.Context(), account, func(ctx context.Context) (jobCounts, error) { return j.countByStatus(ctx, account) })
}

// countByStatus counts the jobs of an account by status: all jobs, but not more than the newest
// maxScanned.
func (j *Jobs) countByStatus(ctx context.Context, account string) (counted jobCounts, err error) {
	counted.Counts = map[rowmill.Status]int{}
	for _, status := range shownStatuses() {
		counted.Counts[status] = 0
	}
	_, counted.OfAll, err = j.scanJobs(ctx, account, "", listPage, func(job listedJob) bool {
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
