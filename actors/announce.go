package actors

import (
	"context"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill/internal/contain"
	"github.com/rowmill/rowmill/store"
)

// announce has Config.Ended told of a job that is over. It stands before all that is
// cleaned up, so that a job is due until somebody was told; one that is cleaned up
// after once more, for what was stored late, was told of.
func (p *process) announce(ctx context.Context, rec *store.Record) error {
	if p.cfg.Ended == nil || rec.Tidied() {
		return nil
	}
	return p.cfg.Ended(ctx, rec)
}

// announceJob is announce by a job's id.
func (p *process) announceJob(ctx context.Context, job string) error {
	if p.cfg.Ended == nil {
		return nil
	}
	rec, err := p.cfg.Store.Get(ctx, job)
	if err != nil || !rec.Job.Status.Terminal() {
		return err
	}
	return p.announce(ctx, &rec)
}

// announceNow does so where the clean-up has to wait until the store can not forget
// the end any more. Should this fail, or the store forget it, the clean-up does it
// again.
func (n *node) announceNow(c actor.Context, job string) {
	n.tasks.run(c, "announce a job's end", func(ctx context.Context) step {
		if err := contain.Run(func() error { return n.announceJob(ctx, job) }); err != nil {
			n.log.Warn("announcing the job's end failed, will be tried again", "job", job, "err", err)
		}
		return nil
	})
}
