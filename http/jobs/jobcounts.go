package jobs

import (
	"context"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/internal/memo"
)

const (
	// countsFresh is how long counts are reused. Console pages ask every few seconds, and
	// counting reads the records of all jobs.
	countsFresh = 2 * time.Second
	// maxCounts limits the accounts with cached counts.
	maxCounts = 1000
)

// jobCounts has the number of an account's jobs by status.
type jobCounts struct {
	Counts  map[rowmill.Status]int `json:"counts"`
	Counted int                    `json:"counted"`
	OfAll   bool                   `json:"of_all"` // false if older jobs were not counted
}

// A tally counts the jobs of accounts and caches the counts.
type tally struct {
	jobs *Jobs
	kept memo.Memo[string, jobCounts] // by account
}

func newTally(jobs *Jobs) *tally {
	return &tally{jobs, memo.Memo[string, jobCounts]{Age: countsFresh, Most: maxCounts, Now: jobs.Now}}
}

// show answers GET /v1/jobs/counts.
func (n *tally) show(c *gin.Context) (any, error) {
	account := caller.Of(c).Account
	return n.kept.Get(c.Request.Context(), account, func(ctx context.Context) (jobCounts, error) { return n.count(ctx, account) })
}

func (n *tally) count(ctx context.Context, account string) (counted jobCounts, err error) {
	counted.Counts = map[rowmill.Status]int{}
	for _, status := range rowmill.Statuses() {
		counted.Counts[status] = 0
	}
	_, counted.OfAll, err = n.jobs.scan(ctx, account, "", listPage, func(job *rowmill.Job) bool {
		if _, known := counted.Counts[job.Status]; known { // unknown: the status of a newer version
			counted.Counts[job.Status]++
		}
		counted.Counted++
		return false
	})
	return counted, err
}
