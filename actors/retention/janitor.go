// Package retention removes what need not be kept: the data of jobs that ended
// longer ago than their account keeps them, and objects that crashes have left
// and no record names. It owns no schedule and does not know which node it is
// on: whoever has it work, no two of them together harm anything.
package retention

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/store"
)

// Store is what a Janitor needs of the records: which jobs there are and have
// data, which objects they name, and what accounts have set.
type Store interface {
	store.Retention
	store.Jobs
	store.Parts
	store.Values
}

// Config is what a Janitor needs. Nothing has a default.
type Config struct {
	Store     Store
	Bucket    blob.Bucket
	Log       *slog.Logger
	Clock     func() time.Time
	Batch     int           // jobs that one round looks at
	OrphanAge time.Duration // how old objects must be that no record names
}

// A Janitor does the work, a round at a time. It is for one goroutine.
type Janitor struct {
	Config

	swept     string    // the last folder of jobs that was looked at
	sweepNext time.Time // when to begin with the first again
}

// Round does a bounded piece of work. more says that retention has more to do.
func (j *Janitor) Round(ctx context.Context) (more bool, err error) {
	accounts, err := j.Store.Holders(ctx)
	if err != nil {
		return false, err
	}
	room := j.Batch
	var errs []error
	for _, account := range accounts {
		done, err := j.expire(ctx, account, room)
		if err != nil {
			errs = append(errs, fmt.Errorf("account %s: %w", account, err))
		}
		if room -= done; room < 1 {
			return true, errors.Join(errs...)
		}
	}
	return false, errors.Join(append(errs, j.sweep(ctx))...)
}

// expire removes the data of up to limit jobs of an account that ended longer
// ago than the account keeps them.
func (j *Janitor) expire(ctx context.Context, account string, limit int) (done int, err error) {
	settings, _, err := store.LoadSettings(ctx, j.Store, account)
	if err != nil || settings.RetentionDays == nil {
		return 0, err
	}
	// No preset is shorter than a day, so nobody writes for such a job any more.
	ended := j.Clock().AddDate(0, 0, -max(1, *settings.RetentionDays))
	jobs, err := j.Store.Held(ctx, account, ended, limit)
	if err != nil {
		return 0, err
	}
	var errs []error
	for _, id := range jobs {
		if err := j.remove(ctx, id); err != nil {
			errs = append(errs, err)
		}
	}
	return len(jobs), errors.Join(errs...)
}

// remove removes a job's data. Readers are told first: from then on they get
// an answer that says so, and those that have begun read on or break off.
func (j *Janitor) remove(ctx context.Context, id string) error {
	if _, err := j.Store.RemoveData(ctx, id, j.Clock()); err != nil {
		return err
	}
	if err := errors.Join(j.Bucket.DeletePrefix(ctx, layout.Job(id)), j.Store.DropParts(ctx, id)); err != nil {
		return err
	}
	if err := j.Store.DataGone(ctx, id); err != nil {
		return err
	}
	j.Log.Info("data removed", "job", id)
	return nil
}

// sweep looks at some folders of jobs for what crashes have left there. It
// goes through all of them once per OrphanAge.
func (j *Janitor) sweep(ctx context.Context) error {
	now := j.Clock()
	if now.Before(j.sweepNext) {
		return nil
	}
	ids, err := j.Bucket.Folders(ctx, layout.Jobs, j.swept, j.Batch)
	if err != nil {
		return err
	}
	var errs []error
	for _, id := range ids {
		if err := j.sweepJob(ctx, id, now.Add(-j.OrphanAge)); err != nil {
			errs = append(errs, fmt.Errorf("job %s: %w", id, err))
		}
		j.swept = id
	}
	if len(ids) < j.Batch {
		j.swept, j.sweepNext = "", now.Add(j.OrphanAge)
	}
	return errors.Join(errs...)
}

// sweepJob removes what no record names of a job's objects, unless it is
// younger than before.
func (j *Janitor) sweepJob(ctx context.Context, id string, before time.Time) error {
	rec, err := j.Store.Get(ctx, id)
	known := !errors.Is(err, rowmill.ErrNotFound)
	switch {
	case known && err != nil:
		return err
	case known && (!rec.Job.Status.Terminal() || rec.EndedAt().After(before)):
		return nil
	}
	objects, err := j.Bucket.List(ctx, layout.Job(id))
	if err != nil {
		return err
	}
	var leftovers []string
	keep := false
	named := map[string]bool{}
	if known && rec.DataRemoved == nil {
		if named, err = j.named(ctx, rec); err != nil {
			return err
		}
	}
	for _, o := range objects {
		switch {
		case named[o.Key], o.Modified.After(before):
			keep = true
		default:
			leftovers = append(leftovers, o.Key)
		}
	}
	if len(leftovers) == 0 {
		return nil
	}
	j.Log.Warn("a crash has left objects, which go now", "job", id, "objects", len(leftovers))
	if !keep {
		return j.Bucket.DeletePrefix(ctx, layout.Job(id))
	}
	var errs []error
	for _, key := range leftovers {
		errs = append(errs, j.Bucket.Delete(ctx, key))
	}
	return errors.Join(errs...)
}

// named are the objects that a job which is over still needs: its artifacts,
// and the parts of one that has not succeeded.
func (j *Janitor) named(ctx context.Context, rec store.Record) (map[string]bool, error) {
	keys := map[string]bool{}
	for _, a := range rec.Artifacts {
		keys[a.Key] = true
	}
	parts, err := j.Store.ListParts(ctx, rec.Job.ID)
	for _, p := range parts {
		keys[p.Key] = true
	}
	return keys, err
}
