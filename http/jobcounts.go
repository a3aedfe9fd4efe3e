package http

import (
	"context"
	"sync"
	"time"

	"github.com/gin-gonic/gin"
	"golang.org/x/sync/singleflight"

	"github.com/rowmill/rowmill"
)

const (
	// countsFresh is how long counts are told again: pages ask for them every few
	// seconds, and to count reads the records of all the jobs.
	countsFresh = 2 * time.Second
	// maxCounts is the accounts whose counts are kept at once; beyond it all are
	// forgotten, and counted anew when they are asked for.
	maxCounts = 1000
)

// jobCounts are how many jobs of an account there are in each state.
type jobCounts struct {
	Counts  map[rowmill.Status]int `json:"counts"`
	Counted int                    `json:"counted"`
	OfAll   bool                   `json:"of_all"` // no older job was left out

	at time.Time
}

// A tally counts jobs.
type tally struct {
	jobs *jobs
	once singleflight.Group

	mu   sync.Mutex
	kept map[string]jobCounts // by account
}

// show answers GET /v1/jobs/counts.
func (n *tally) show(c *gin.Context) (any, error) {
	account := caller(c).account
	if kept, fresh := n.fresh(account); fresh {
		return kept, nil
	}
	// Its own context: a client that leaves does not fail the others.
	counted, err, _ := n.once.Do(account, func() (any, error) {
		return n.count(context.WithoutCancel(c.Request.Context()), account)
	})
	return counted, err
}

func (n *tally) fresh(account string) (jobCounts, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	kept, known := n.kept[account]
	age := n.jobs.now().Sub(kept.at)
	return kept, known && 0 <= age && age < countsFresh
}

func (n *tally) count(ctx context.Context, account string) (counted jobCounts, err error) {
	counted.Counts, counted.at = map[rowmill.Status]int{}, n.jobs.now()
	for _, status := range rowmill.Statuses() {
		counted.Counts[status] = 0
	}
	_, counted.OfAll, err = n.jobs.look(ctx, account, "", listPage, func(job *rowmill.Job) bool {
		if _, known := counted.Counts[job.Status]; known { // else a newer version's
			counted.Counts[job.Status]++
		}
		counted.Counted++
		return false
	})
	if err != nil {
		return counted, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.kept == nil || len(n.kept) >= maxCounts {
		n.kept = map[string]jobCounts{}
	}
	n.kept[account] = counted
	return counted, nil
}
