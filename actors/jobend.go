package actors

import (
	"context"
	"errors"
	"fmt"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob/layout"
)

func (j *job) onJobBroke(c actor.Context, m jobBroke) {
	var failure *rowmill.Failure
	switch {
	case errors.Is(m.err, rowmill.ErrTerminal): // a client's cancel came first
		j.stopRows(c)
		j.dismissWorkers(c)
		j.cleanUp(c, rowmill.StatusCancelled, false)
	case errors.Is(m.err, rowmill.ErrLeaseLost):
		j.metrics.fenced.Inc()
		j.log.Warn("job has another owner", "err", m.err)
		j.abandon(c)
	case errors.As(m.err, &failure):
		j.fail(c, failure)
	case j.run.ctx.Err() != nil: // stopped on purpose
	default:
		j.log.Error("job broke", "err", m.err)
		j.fail(c, internalFailure(m.err))
	}
}

func (j *job) onTerminated(c actor.Context, m *actor.Terminated) {
	if j.ending {
		return
	}
	j.onJobBroke(c, jobBroke{fmt.Errorf("actor %s stopped unexpectedly", m.GetWho().GetId())})
}

// fail ends the job for good.
func (j *job) fail(c actor.Context, failure *rowmill.Failure) {
	if j.ending {
		return
	}
	j.log.Warn("job fails", "code", failure.Code) // its message may hold what is the client's
	j.stopRows(c)
	j.dismissWorkers(c)
	now := j.cfg.Clock()
	j.work.run(c, func(ctx context.Context) any {
		rec, err := recordFailure(ctx, j.cfg.Store, j.fence, failure, now, j.log)
		if err != nil {
			return cleanedUp{status: rowmill.StatusUnknown} // another owner's, or the node is stopping
		}
		return jobEnded{rec}
	})
}

// stopRows stops everything that works on rows here, but for the workers: they
// go on until the next owner takes over, or are dismissed. Late messages are
// ignored.
func (j *job) stopRows(c actor.Context) {
	j.ending = true
	j.behavior.Become(j.over)
	j.timers.stop()
	j.run.cancel()
	if j.results != nil {
		c.Stop(j.results)
	}
}

// cleanUp removes the objects that a finished job no longer needs: always the
// input, and for a success the parts, which the artifacts replace. The parts
// of other jobs stay until retention, since they answer questions about rows.
func (j *job) cleanUp(c actor.Context, status rowmill.Status, parts bool) {
	id := j.rec.Job.ID
	j.work.run(c, func(ctx context.Context) any {
		j.runs.Wait() // what they still write must not outlive the removal
		j.workers.Wait()
		if err := removeObjects(ctx, j.cfg, id, parts); err != nil {
			j.log.Warn("clean up after job", "err", err)
		}
		return cleanedUp{status: status}
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
	j.work.run(c, func(ctx context.Context) any {
		err := j.retry(ctx, "release job", func() error { return j.cfg.Store.Release(ctx, j.fence) })
		if err != nil {
			j.log.Warn("release job", "err", err)
		}
		return cleanedUp{status: rowmill.StatusUnknown, released: true}
	})
}

// abandon stops without touching the store: the job is another's.
func (j *job) abandon(c actor.Context) {
	j.stopRows(c)
	c.Send(c.Self(), cleanedUp{status: rowmill.StatusUnknown})
}

func (j *job) onStopping() {
	j.stopping = true
	j.timers.stop()
	j.run.cancel()
	j.work.cancel()
	j.all.Add(1)
	go func() {
		defer j.all.Done()
		j.runs.Wait()
		j.workers.Wait()
	}()
}
