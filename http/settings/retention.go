package settings

import (
	"context"
	"fmt"
	"time"

	"github.com/gin-gonic/gin"
	"golang.org/x/sync/errgroup"

	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/store"
)

const (
	// maxPreviewed limits the jobs that a preview of a new retention reads. A preview reads
	// the jobs that ended first.
	maxPreviewed = 1000
	// previewAtOnce is how many jobs a preview reads in parallel, because the store may be
	// slow.
	previewAtOnce = 8
)

// retainedJob is an ended job that retention has not finished: it may still have results or
// objects to remove.
type retainedJob struct {
	ended   time.Time
	removed bool  // true if a client had the data removed
	bytes   int64 // size of the results
}

// previewRetention answers GET /v1/settings/preview: for each possible retention, how many jobs
// would lose their data now.
func (s *Settings) previewRetention(c *gin.Context) (any, error) {
	account, err := caller.ResolveReadAccount(c)
	if err != nil {
		return nil, err
	}
	ctx := c.Request.Context()
	chosen, _, err := store.LoadSettings(ctx, s.Store, account)
	if err != nil {
		return nil, err
	}
	now, err := s.Store.Time(ctx)
	if err != nil {
		return nil, err
	}
	held, all, err := s.listRetainedJobs(ctx, account, now)
	if err != nil {
		return nil, err
	}
	view := client.RetentionPreview{Account: account, RetentionDays: exchange.ToInt64Ptr(chosen.RetentionDays), LookedAt: int64(len(held)), LookedAtAll: all}
	for _, days := range store.RetentionPresets() {
		view.Presets = append(view.Presets, computeRetentionEffect(days, held, all, now))
	}
	view.Presets = append(view.Presets, client.RetentionEffect{})
	return view, nil
}

// listRetainedJobs returns up to maxPreviewed ended jobs that retention has not finished, in the
// order of their end. all is false if there are more such jobs.
func (s *Settings) listRetainedJobs(ctx context.Context, account string, now time.Time) (jobs []retainedJob, all bool, err error) {
	ids, err := s.Store.RetainedJobs(ctx, account, now, maxPreviewed+1)
	if err != nil {
		return nil, false, err
	}
	all = len(ids) <= maxPreviewed
	ids = ids[:min(len(ids), maxPreviewed)]
	jobs = make([]retainedJob, len(ids))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(previewAtOnce)
	for i, id := range ids {
		g.Go(func() error {
			rec, err := s.Store.Get(ctx, id)
			if err != nil {
				return fmt.Errorf("read job %s: %w", id, err)
			}
			jobs[i] = retainedJob{ended: rec.EndedAt().UTC(), removed: rec.DataRemoved != nil}
			for _, a := range rec.Artifacts {
				jobs[i].bytes += a.Size
			}
			return nil
		})
	}
	return jobs, all, g.Wait()
}

// computeRetentionEffect returns the effect of a retention of days: how many of the jobs
// would lose their data now. jobs must be in the order of the jobs' ends. all is false if
// jobs does not have all ended jobs.
func computeRetentionEffect(days int, jobs []retainedJob, all bool, now time.Time) client.RetentionEffect {
	effect := client.RetentionEffect{RetentionDays: exchange.ToInt64Ptr(&days)}
	before := now.AddDate(0, 0, -days)
	for _, job := range jobs {
		switch {
		case job.removed:
			continue
		case job.ended.After(before):
			next := job.ended.AddDate(0, 0, days)
			effect.NextAt = &next
			return effect
		case effect.OldestEndedAt == nil:
			effect.OldestEndedAt = &job.ended
		}
		effect.Jobs++
		effect.ResultBytes += job.bytes
	}
	effect.AtLeast = !all
	return effect
}
