package actors

import (
	"context"
	"errors"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/store"
)

// errForgotten says that the store has other parts than we thought.
var errForgotten = errors.New("the store has lost parts that it had acknowledged")

// broke ends the job here, or for good, as the error says.
func (j *job) broke(c actor.Context, err error) {
	var failure *rowmill.Failure
	switch {
	case errors.Is(err, rowmill.ErrTerminal): // a client's cancel came first
		j.onCancelled(c)
	case errors.Is(err, rowmill.ErrLeaseLost):
		j.metrics.fenced.Inc()
		j.log.Warn("job has another owner", "err", err)
		j.stopRows(c)
		j.leave(c, rowmill.StatusUnknown, false) // without touching the store
	case errors.Is(err, errForgotten):
		j.log.Warn("beginning again from the parts that the store has", "err", err)
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
	j.ending.run(c, func(ctx context.Context) step {
		rec, err := recordFailure(ctx, j.cfg.Store, j.fence, failure, now, j.log)
		return func(c actor.Context) {
			if err != nil {
				j.leave(c, rowmill.StatusUnknown, false) // another owner's, or the node is stopping
				return
			}
			j.rec = rec
			j.cleanUp(c, rec.Job.Status, false)
		}
	})
}

func (j *job) onJobSucceeded(c actor.Context, rec store.Record) {
	j.rec = rec
	j.stopRows(c)
	j.dismissWorkers(c)
	j.cleanUp(c, rowmill.StatusSucceeded, true)
}

func (j *job) onCancelled(c actor.Context) {
	j.stopRows(c)
	j.dismissWorkers(c)
	j.cleanUp(c, rowmill.StatusCancelled, false)
}

// stopRows stops everything that works on rows here, but for the workers: they
// go on until the next owner takes over, or are dismissed.
func (j *job) stopRows(c actor.Context) {
	j.phase = jobEnds
	j.timers.stop()
	j.tasks.cancel()
	if j.results != nil {
		c.Stop(j.results)
	}
}

// cleanUp removes the objects that a finished job no longer needs: always the
// input, and for a success the parts, which the artifacts replace. The parts
// of other jobs stay until retention, since they answer questions about rows.
func (j *job) cleanUp(c actor.Context, status rowmill.Status, parts bool) {
	id := j.rec.Job.ID
	j.ending.run(c, func(ctx context.Context) step {
		j.writes.Wait() // what they still write must not outlive the removal
		j.dismissed.Wait()
		if err := removeObjects(ctx, j.cfg, id, parts); err != nil {
			j.log.Warn("cleaning up after the job failed", "err", err)
		}
		return func(c actor.Context) { j.leave(c, status, false) }
	})
}

func removeObjects(ctx context.Context, cfg Config, id string, parts bool) error {
	err := cfg.Blob.DeletePrefix(ctx, layout.Input(id))
	if parts {
		err = errors.Join(err, cfg.Store.DropParts(ctx, id), cfg.Blob.DeletePrefix(ctx, layout.Parts(id)))
	}
	return err
}

// release gives the job back to whoever claims it next.
func (j *job) release(c actor.Context) {
	j.stopRows(c)
	j.ending.run(c, func(ctx context.Context) step {
		err := j.retry(ctx, "release job", func() error { return j.cfg.Store.Release(ctx, j.fence) })
		if err != nil {
			j.log.Warn("giving the job back failed", "err", err)
		}
		return func(c actor.Context) { j.leave(c, rowmill.StatusUnknown, true) }
	})
}

// leave has the node stop this actor: that it stopped by itself would overtake
// the message.
func (j *job) leave(c actor.Context, status rowmill.Status, released bool) {
	c.Send(j.node, jobOver{id: j.rec.Job.ID, status: status, released: released})
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
