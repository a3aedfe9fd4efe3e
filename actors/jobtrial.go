package actors

import (
	"context"
	"slices"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill/store"
)

// doesNoHarm tells the node that it may take up others beside this job: something
// of it was done, or it waits, and the process lives.
func (j *job) doesNoHarm(c actor.Context) {
	if j.harmless {
		return
	}
	j.harmless = true
	j.timers.cancel("harmless")
	c.Send(j.node, jobHarmless{j.rec.Job.ID})
}

// mark says in the record whether the job may be what ends this process. While it
// waits for something else it is not.
func (j *job) mark(waits bool) func(*store.Record) {
	by, advanced := j.adopter, j.advanced
	by.Alone = by.Alone && !j.harmless
	return func(r *store.Record) {
		switch {
		case waits:
			r.Adopters = nil
		case len(r.Adopters) == 0 && by.Epoch > 0 && !advanced: // it has waited
			r.Adopters = []store.Adopter{by}
		}
	}
}

// outlived is when nothing of the job is done for long, and the process lives. Its
// end would say less from now on, since others are taken up.
func (j *job) outlived(c actor.Context) {
	if !j.adopter.Alone {
		j.doesNoHarm(c)
		return
	}
	j.adopter.Alone = false
	j.tasks.run(c, "change the record", func(ctx context.Context) step {
		err := j.storage.WaitHere(ctx, func() error {
			_, err := j.cfg.Store.Update(ctx, j.fence, func(r *store.Record) error {
				if n := len(r.Adopters); n > 0 {
					r.Adopters = slices.Clone(r.Adopters)
					r.Adopters[n-1].Alone = false
				}
				return nil
			})
			return err
		})
		return func(c actor.Context) {
			if err != nil {
				j.broke(c, err)
				return
			}
			j.doesNoHarm(c)
		}
	})
}
