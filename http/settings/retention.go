package settings

import (
	"context"
	"fmt"
	"time"

	"github.com/gin-gonic/gin"
	"golang.org/x/sync/errgroup"

	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/store"
)

const (
	// maxPreviewed is how many jobs one preview of a retention looks at, those that
	// ended first: it reads the record of each.
	maxPreviewed = 1000
	// previewAtOnce is how many of them are read at a time, which hides what a store
	// on another machine takes for each.
	previewAtOnce = 8
)

// retentionPreview is what the presets of retention would remove.
type retentionPreview struct {
	Account       string            `json:"account"`
	RetentionDays *int              `json:"retention_days"` // in force; null for ever
	Looked        int               `json:"looked_at"`      // jobs that are over and not yet cleaned up after
	All           bool              `json:"looked_at_all"`  // no job was left out
	Presets       []retentionEffect `json:"presets"`
}

// retentionEffect is what one choice would remove at once.
type retentionEffect struct {
	RetentionDays *int       `json:"retention_days"`
	Jobs          int        `json:"jobs"`            // whose data would go
	AtLeast       bool       `json:"at_least"`        // more jobs may, which were not looked at
	ResultBytes   int64      `json:"result_bytes"`    // of their finished results
	Oldest        *time.Time `json:"oldest_ended_at"` // when the first of them ended
	Next          *time.Time `json:"next_at"`         // when the data of the first that stays would go
}

// heldJob is what is looked at of a job.
type heldJob struct {
	ended   time.Time
	removed bool  // somebody has removed its data
	bytes   int64 // of its finished results
}

// preview answers GET /v1/settings/preview.
func (s *Settings) preview(c *gin.Context) (any, error) {
	account, err := caller.ReadAccount(c)
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
	held, all, err := s.held(ctx, account, now)
	if err != nil {
		return nil, err
	}
	view := retentionPreview{Account: account, RetentionDays: chosen.RetentionDays, Looked: len(held), All: all}
	for _, days := range store.RetentionPresets() {
		view.Presets = append(view.Presets, effectOf(days, held, all, now))
	}
	view.Presets = append(view.Presets, retentionEffect{})
	return view, nil
}

// held are up to maxPreviewed jobs of an account with which retention is not done,
// those that ended first first; all is false where there are more.
func (s *Settings) held(ctx context.Context, account string, now time.Time) (jobs []heldJob, all bool, err error) {
	ids, err := s.Store.Held(ctx, account, now, maxPreviewed+1)
	if err != nil {
		return nil, false, err
	}
	all = len(ids) <= maxPreviewed
	ids = ids[:min(len(ids), maxPreviewed)]
	jobs = make([]heldJob, len(ids))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(previewAtOnce)
	for i, id := range ids {
		g.Go(func() error {
			rec, err := s.Store.Get(ctx, id)
			if err != nil {
				return fmt.Errorf("read job %s: %w", id, err)
			}
			jobs[i] = heldJob{ended: rec.EndedAt().UTC(), removed: rec.DataRemoved != nil}
			for _, a := range rec.Artifacts {
				jobs[i].bytes += a.Size
			}
			return nil
		})
	}
	return jobs, all, g.Wait()
}

// effectOf is what it would remove of the jobs held to keep them for so many days.
func effectOf(days int, held []heldJob, all bool, now time.Time) retentionEffect {
	effect := retentionEffect{RetentionDays: &days}
	before := now.AddDate(0, 0, -days)
	for _, job := range held {
		switch {
		case job.removed:
			continue
		case job.ended.After(before):
			next := job.ended.AddDate(0, 0, days)
			effect.Next = &next
			return effect
		case effect.Oldest == nil:
			effect.Oldest = &job.ended
		}
		effect.Jobs++
		effect.ResultBytes += job.bytes
	}
	effect.AtLeast = !all
	return effect
}
