package actors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"syscall"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/retry"
	"github.com/rowmill/rowmill/store"
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

// internalFailure says what a client can know of a fault of the service.
func internalFailure(err error) *rowmill.Failure {
	f := &rowmill.Failure{Code: rowmill.CodeInternalError, AdditionalContext: err.Error()}
	f.Message = "The service could not go on with the job. Its log says why; after the cause is mended, submit the job again."
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		f.Message = "The disk of the service is full. Once its operator has made room, submit the job again."
	}
	return f
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
		rec, err := endJob(ctx, j.cfg.Store, j.fence, failure, now, j.log)
		if err != nil {
			return cleanedUp{status: rowmill.StatusUnknown} // another owner's, or the node is stopping
		}
		return jobEnded{rec}
	})
}

// endJob records a failure, as often as it takes while the fence holds: a disk
// that was full has room again some time.
func endJob(ctx context.Context, s store.Jobs, f store.Fence, failure *rowmill.Failure, now time.Time, log *slog.Logger) (rec store.Record, err error) {
	err = retry.Endings.Do(ctx, func() (err error) {
		rec, err = s.Finish(ctx, f, func(r *store.Record) error {
			advance(&r.Job, []rowmill.Status{rowmill.StatusFailed}, now)
			r.Job.FailureReason = failure
			r.Job.Message = failure.Message
			r.Job.JobCost = r.Spec.Model.Cost(&r.Job)
			return nil
		})
		return err
	}, mayGoOn, func(err error) { log.Warn("recording a job's failure failed, will be tried again", "err", err) })
	return rec, err
}

// estimated ends an estimate job.
func estimated(ctx context.Context, s store.Jobs, f store.Fence, rows int64, usd float64, e rowmill.Estimate, now time.Time) (store.Record, error) {
	return s.Finish(ctx, f, func(r *store.Record) error {
		advance(&r.Job, []rowmill.Status{rowmill.StatusStarting, rowmill.StatusRunning, rowmill.StatusSucceeded}, now)
		if r.Job.NumRows == nil {
			r.Job.NumRows = &rows
		}
		r.Job.CostEstimate, r.Job.Estimate = &usd, &e
		r.Job.JobCost = r.Spec.Model.Cost(&r.Job)
		r.Job.Message = "The cost was estimated."
		return nil
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
		err := j.patiently(ctx, "release job", func() error { return j.cfg.Store.Release(ctx, j.fence) })
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
