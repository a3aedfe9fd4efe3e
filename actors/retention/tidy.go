package retention

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/store"
)

// tidy cleans up after jobs if their owners did not, and removes inputs that need not be
// kept any longer. A job whose cleanup fails delays no other job. more says that other
// jobs wait.
func (j *Janitor) tidy(ctx context.Context, today time.Time) (more bool, err error) {
	jobs, err := j.Store.DueJobs(ctx, today.Add(-j.TidyAfter), j.Batch+len(j.stuck))
	if err != nil {
		return false, err
	}
	var errs []error
	tried := 0
	for _, id := range jobs {
		if j.stuck[id] {
			continue
		}
		tried++
		if err := j.Tidy(ctx, id); err != nil {
			errs = append(errs, fmt.Errorf("clean up after job %s: %w", id, err))
			if j.stuck == nil {
				j.stuck = make(map[string]bool)
			}
			j.stuck[id] = true
		}
	}
	if tried == 0 {
		j.stuck = nil
	}
	return tried >= j.Batch, errors.Join(errs...)
}

// kept reports whether an object is part of an input that is kept for a continuation.
func kept(rec store.Record, key string) bool {
	return rec.InputUntil != nil && rec.InputRemoved == nil && strings.HasPrefix(key, layout.Input(rec.Job.ID))
}
