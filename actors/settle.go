package actors

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/internal/contain"
	"github.com/rowmill/rowmill/store"
)

// A job that is over settles: what its end makes superfluous stays for a while,
// because a store that forgets its last writes in a crash may take the end
// back, and then the job goes on from there. What a node that dies meanwhile
// leaves, the janitor finds.

// A settling job has ended.
type settling struct {
	job string
	at  time.Time // when it has settled
}

// settle has what a job no longer needs removed once its end is safe.
func (n *node) settle(c actor.Context, job string) {
	if n.cfg.Ended != nil && n.cfg.Ownership.Settle > 0 {
		n.announceNow(c, job)
	}
	n.settling = append(n.settling, settling{job, time.Now().Add(n.cfg.Ownership.Settle)})
	if len(n.settling) == 1 {
		n.timers.after(c, n.cfg.Ownership.Settle, "settle", n.tidy)
	}
}

// lookAfter has a job that is over settle once more, after this node has stored
// what it still wrote for it: whoever cleaned up may have done so before. stopped
// returns when nothing is written here any more; expected says that whoever
// cleans up waits for that, for a while.
func (n *node) lookAfter(c actor.Context, job string, expected bool, stopped func()) {
	n.tasks.run(c, "wait for writes", func(ctx context.Context) step {
		stopped()
		var rec store.Record
		err := n.storage.Wait(ctx, func() (err error) {
			rec, err = n.cfg.Store.Get(ctx, job)
			return err
		})
		if err != nil || !rec.Job.Status.Terminal() || expected && !rec.Tidied() {
			return nil // who ends the job cleans up, or is about to
		}
		return func(c actor.Context) { n.settle(c, job) }
	})
}

// tidy removes what jobs that have settled no longer need.
func (n *node) tidy(c actor.Context) {
	var due []string
	for now := time.Now(); len(n.settling) > 0 && !n.settling[0].at.After(now); n.settling = n.settling[1:] {
		due = append(due, n.settling[0].job)
	}
	if len(n.settling) > 0 {
		n.timers.after(c, time.Until(n.settling[0].at), "settle", n.tidy)
	}
	n.tidying++
	n.tasks.run(c, "clean up after jobs", func(ctx context.Context) step {
		for _, job := range due {
			if err := n.tidyJob(ctx, job); err != nil {
				n.log.Warn("cleaning up after the job failed", "job", job, "err", err)
			}
		}
		return func(actor.Context) {
			n.tidying--
			n.reportDrained()
		}
	})
}

// settled reports whether no clean-up is at work that a node would wait for as
// it drains. It does not wait for ends to become safe.
func (n *node) settled() bool {
	return n.tidying == 0 && (n.cfg.Ownership.Settle > 0 || len(n.settling) == 0)
}

// tidyJob removes what a job that is over no longer needs: the input, unless rows
// of it are left to run, and for a success the parts, which the artifacts
// replace. The parts of other jobs stay until retention, since they answer
// questions about rows, as far as any is recorded.
func (p *process) tidyJob(ctx context.Context, job string) error {
	return contain.Run(func() error { return p.tidied(ctx, job) })
}

func (p *process) tidied(ctx context.Context, job string) error {
	cfg := p.cfg
	var rec store.Record
	err := p.storage.Wait(ctx, func() (err error) {
		rec, err = cfg.Store.Get(ctx, job)
		return err
	})
	status := rec.Job.Status
	switch {
	case err != nil:
		return err
	case !status.Terminal():
		return fmt.Errorf("%w: it is %s again, so all is kept", errForgotten, status)
	}
	if err := p.announce(ctx, &rec); err != nil {
		return err
	}
	if rec.Epoch == 0 { // it was cancelled before anybody owned it
		p.told(&rec)
	}
	switch {
	case status == rowmill.StatusSucceeded:
		err = errors.Join(cfg.Store.DropParts(ctx, job), cfg.Blob.DeletePrefix(ctx, layout.Parts(job)), p.dropOtherResults(ctx, rec))
	case !rec.Counted(): // none of them is recorded: its rows ran while its input was read
		err = cfg.Blob.DeletePrefix(ctx, layout.Parts(job))
	}
	if err != nil {
		return err
	}
	return settleInput(ctx, cfg, &rec) // the last step: after it the job is not due any more
}

// dropOtherResults removes the files that an earlier owner of a success made as
// it was lost at the job's end, or that a store forgot.
func (p *process) dropOtherResults(ctx context.Context, rec store.Record) error {
	var errs []error
	for _, name := range []string{layout.Full, layout.Rows} { // a subset may be made just now
		made, ok := rec.Artifacts[name]
		if !ok {
			continue
		}
		objects, err := p.cfg.Blob.List(ctx, path.Dir(made.Key)+"/")
		errs = append(errs, err)
		for _, o := range objects {
			if strings.HasPrefix(path.Base(o.Key), name+"-") && o.Key != made.Key {
				errs = append(errs, p.cfg.Blob.Delete(ctx, o.Key))
			}
		}
	}
	return errors.Join(errs...)
}
