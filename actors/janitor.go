package actors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/store"
)

// janitorName is what nodes are ranked for: the first of them cleans. Where two
// believe to be first they repeat each other's work, which harms nothing.
const janitorName = "janitor"

// janitorRest is how much sooner the next round comes while there is more to do.
const janitorRest = 60

// clean has the janitor do a round, if this node is the one that cleans.
func (n *node) clean(c actor.Context) {
	if n.phase == draining || n.lease == nil || n.cfg.OwnsNone || n.rank(janitorName) > 0 {
		n.timers.run(c, n.cfg.JanitorInterval, "janitor", n.clean)
		return
	}
	n.work.run(c, func(ctx context.Context) any {
		more, err := n.janitor.round(ctx)
		return step(func(c actor.Context) {
			pause := n.cfg.JanitorInterval
			if err != nil {
				n.log.Warn("removing data that is not kept any longer failed", "err", err)
			} else if more {
				pause /= janitorRest
			}
			n.timers.run(c, pause, "janitor", n.clean)
		})
	})
}

// A janitor removes the data of jobs whose retention is over, and what crashes
// have left in the bucket. It is used by one errand at a time.
type janitor struct {
	cfg Config
	log *slog.Logger

	swept     string    // the last folder of jobs that was looked at
	sweepNext time.Time // when to begin with the first again
}

// round does a bounded piece of work. more says that retention has more to do.
func (j *janitor) round(ctx context.Context) (more bool, err error) {
	accounts, err := j.cfg.Store.Holders(ctx)
	if err != nil {
		return false, err
	}
	room := j.cfg.JanitorBatch
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
func (j *janitor) expire(ctx context.Context, account string, limit int) (done int, err error) {
	settings, _, err := store.LoadSettings(ctx, j.cfg.Store, account)
	if err != nil || settings.RetentionDays == nil {
		return 0, err
	}
	// No preset is shorter than a day, so nobody writes for such a job any more.
	ended := j.cfg.Clock().AddDate(0, 0, -max(1, *settings.RetentionDays))
	jobs, err := j.cfg.Store.Held(ctx, account, ended, limit)
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
func (j *janitor) remove(ctx context.Context, id string) error {
	if _, err := j.cfg.Store.RemoveData(ctx, id, j.cfg.Clock()); err != nil {
		return err
	}
	if err := errors.Join(j.cfg.Blob.DeletePrefix(ctx, layout.Job(id)), j.cfg.Store.DropParts(ctx, id)); err != nil {
		return err
	}
	if err := j.cfg.Store.DataGone(ctx, id); err != nil {
		return err
	}
	j.log.Info("data removed", "job", id)
	return nil
}

// sweep looks at some folders of jobs for what crashes have left there. It
// goes through all of them once per OrphanAge.
func (j *janitor) sweep(ctx context.Context) error {
	now := j.cfg.Clock()
	if now.Before(j.sweepNext) {
		return nil
	}
	ids, err := j.cfg.Blob.Folders(ctx, layout.Jobs, j.swept, j.cfg.JanitorBatch)
	if err != nil {
		return err
	}
	var errs []error
	for _, id := range ids {
		if err := j.sweepJob(ctx, id, now.Add(-j.cfg.OrphanAge)); err != nil {
			errs = append(errs, fmt.Errorf("job %s: %w", id, err))
		}
		j.swept = id
	}
	if len(ids) < j.cfg.JanitorBatch {
		j.swept, j.sweepNext = "", now.Add(j.cfg.OrphanAge)
	}
	return errors.Join(errs...)
}

// sweepJob removes what no record names of a job's objects, unless it is
// younger than before.
func (j *janitor) sweepJob(ctx context.Context, id string, before time.Time) error {
	rec, err := j.cfg.Store.Get(ctx, id)
	known := !errors.Is(err, rowmill.ErrNotFound)
	switch {
	case known && err != nil:
		return err
	case known && (!rec.Job.Status.Terminal() || rec.EndedAt().After(before)):
		return nil
	}
	objects, err := j.cfg.Blob.List(ctx, layout.Job(id))
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
	j.log.Warn("removing objects left over from a crash", "job", id, "objects", len(leftovers))
	if !keep {
		return j.cfg.Blob.DeletePrefix(ctx, layout.Job(id))
	}
	var errs []error
	for _, key := range leftovers {
		errs = append(errs, j.cfg.Blob.Delete(ctx, key))
	}
	return errors.Join(errs...)
}

// named are the objects that a job which is over still needs: its artifacts,
// and the parts of one that has not succeeded.
func (j *janitor) named(ctx context.Context, rec store.Record) (map[string]bool, error) {
	keys := map[string]bool{}
	for _, a := range rec.Artifacts {
		keys[a.Key] = true
	}
	parts, err := j.cfg.Store.ListParts(ctx, rec.Job.ID)
	for _, p := range parts {
		keys[p.Key] = true
	}
	return keys, err
}
