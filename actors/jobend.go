package actors

import (
	"context"
	"errors"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/storage"
	"github.com/rowmill/rowmill/store"
)

// broke ends the job here, or for good, as the error says.
func (j *job) broke(c actor.Context, err error) {
	var failure *rowmill.Failure
	switch {
	case errors.Is(err, rowmill.ErrTerminal):
		j.onOver(c)
	case errors.Is(err, rowmill.ErrLeaseLost):
		j.metrics.fenced.Inc()
		j.log.Warn("job has another owner", "err", err)
		j.stopRows(c)
		j.leave(c, jobOver{}) // without touching the store
	case errors.Is(err, errForgotten):
		j.log.Warn("beginning again from the parts that the store has", "err", err)
		j.release(c)
	case errors.Is(err, storage.ErrElsewhere):
		j.log.Warn("the job is handed to a node that reaches object storage", "err", err)
		j.metrics.handed.Inc()
		j.release(c)
	case errors.As(err, &failure):
		j.fail(c, failure)
	case j.tasks.ctx.Err() != nil: // stopped on purpose
	default:
		j.log.Error("job broke", "err", err)
		j.fail(c, internalFailure(err))
	}
}

// fail ends the job for good.
func (j *job) fail(c actor.Context, failure *rowmill.Failure) {
	j.log.Warn("job fails", "code", failure.Code) // its message may hold what is the client's
	j.stopRows(c)
	j.dismissWorkers(c)
	now := j.cfg.Clock()
	j.ending.run(c, "end the job", func(ctx context.Context) step {
		rec, err := recordFailure(ctx, j.cfg.Store, j.fence, failure, now, j.log)
		return func(c actor.Context) {
			switch {
			case errors.Is(err, rowmill.ErrTerminal):
				j.onOver(c)
			case err != nil:
				j.leave(c, jobOver{}) // another owner's, or the node is stopping
			default:
				j.rec = rec
				j.over(c, rec.Job.Status)
			}
		}
	})
}

func (j *job) onJobSucceeded(c actor.Context, rec store.Record) {
	j.rec = rec
	j.stopRows(c)
	j.dismissWorkers(c)
	j.over(c, rowmill.StatusSucceeded)
}

func (j *job) onCancelled(c actor.Context) {
	j.stopRows(c)
	j.dismissWorkers(c)
	j.over(c, rowmill.StatusCancelled)
}

// stopRows stops everything that works on rows here, but for the workers: they
// go on until the next owner takes over, or are dismissed.
func (j *job) stopRows(c actor.Context) {
	if j.phase == jobWaits {
		j.errand.End()
		j.awaits.End(nil)
	}
	j.phase = jobEnds
	j.timers.stop()
	j.tasks.cancel()
	if j.results != nil {
		c.Stop(j.results)
	}
}

// over leaves a job that has ended, once nothing is written for it any more.
func (j *job) over(c actor.Context, status rowmill.Status) {
	rec := j.rec
	_ = rec.Job.Become(status, j.cfg.Clock()) // where the client has ended it, which our record does not say
	j.told(&rec)
	j.ending.run(c, "wait for writes", func(context.Context) step {
		j.writes.Wait()
		j.dismissed.Wait()
		return func(c actor.Context) { j.leave(c, jobOver{status: status}) }
	})
}

// onOver leaves a job that the store says is over: a client's cancel came
// first, or an end of our own whose answer was lost.
func (j *job) onOver(c actor.Context) {
	j.stopRows(c)
	j.dismissWorkers(c)
	j.ending.run(c, "look up a job", func(ctx context.Context) step {
		var rec store.Record
		err := j.storage.Wait(ctx, func() (err error) {
			rec, err = j.cfg.Store.Get(ctx, j.fence.JobID)
			return err
		})
		return func(c actor.Context) {
			if err != nil || !rec.Job.Status.Terminal() {
				j.log.Warn("a job that was over is not any more", "status", rec.Job.Status, "err", err)
				j.leave(c, jobOver{released: true, unsure: true})
				return
			}
			j.rec = rec
			j.over(c, rec.Job.Status)
		}
	})
}

// release gives the job back to whoever claims it next.
func (j *job) release(c actor.Context) {
	j.stopRows(c)
	j.ending.run(c, "give the job back", func(ctx context.Context) step {
		err := j.storage.Wait(ctx, func() error { return j.cfg.Store.Release(ctx, j.fence) })
		if err != nil {
			j.log.Warn("giving the job back failed", "err", err)
		}
		return func(c actor.Context) { j.leave(c, jobOver{released: true, unsure: err != nil}) }
	})
}

// leave has the node stop this actor: that it stopped by itself would overtake
// the message.
func (j *job) leave(c actor.Context, over jobOver) {
	over.id = j.rec.Job.ID
	c.Send(j.node, over)
}

func (j *job) onStopping() {
	j.phase = jobStopped
	j.timers.stop()
	j.tasks.cancel()
	j.ending.cancel()
	j.all.Add(1)
	go func() {
		defer j.all.Done()
		j.writes.Wait()
		j.dismissed.Wait()
	}()
}
