package actors

import (
	"context"
	"errors"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/ingest"
	"github.com/rowmill/rowmill/actors/storage"
	"github.com/rowmill/rowmill/results/archive"
	"github.com/rowmill/rowmill/store"
)

// This file ends the work of the job actor: after an error, at the end of the job, and when the
// node gives the job back.

// onError handles an error. Depending on the error, it fails the job, gives the job back
// so that it starts again, or leaves the job to another owner.
func (j *job) onError(c actor.Context, err error) {
	var failure *rowmill.Failure
	var lost *archive.LostPartsError
	switch {
	case errors.Is(err, rowmill.ErrTerminal):
		j.stopForGood(c)
		j.ending.runAndSend(c, "look up a job", j.closing.readFinalRecord)
	case errors.Is(err, rowmill.ErrLeaseLost):
		j.metrics.fenced.Inc()
		j.log.Warn("the job has another owner, so this node stops working on it as owner", "err", err)
		j.stopRows(c)
		// Write nothing to the store, because the job has another owner. This node may be the other
		// owner: it gave the job back and claimed it again, and the store has lost both writes.
		c.Send(j.node, jobOver{id: j.own.fence.JobID, unsure: true})
	case errors.Is(err, ingest.ErrDrains):
		j.release(c)
	case errors.Is(err, ingest.ErrInputNotReady):
		spec, pause := j.own.rec.Spec, inputPause(j.cfg.Clock().Sub(j.own.rec.Job.Created))
		j.stopRows(c)
		j.ending.runAndSend(c, "park the job", func(ctx context.Context) any { return j.closing.parkForInput(ctx, spec, pause) })
	case errors.Is(err, errForgotten):
		j.log.Warn("the store lost writes; the job starts again from the recorded parts", "err", err)
		j.release(c)
	case errors.Is(err, storage.ErrElsewhere):
		j.log.Warn("the job is given back, so that another node continues it", "err", err)
		j.metrics.handed.Inc()
		j.release(c)
	case errors.As(err, &lost) && j.own.hasLostAllRows():
		j.failJob(c, rowmill.Failf(rowmill.CodeInternalError,
			"Object storage has lost as many rows as the job has. They are not run again, since each run costs. Check the storage, then resume the job."))
	case errors.As(err, &lost):
		j.log.Warn("parts of the job cannot be read, so their rows run again", "parts", len(lost.Keys), "err", err)
		known := j.own.rec.Lost.Rows
		j.stopRows(c)
		j.ending.runAndSend(c, "lose parts", func(ctx context.Context) any { return j.closing.recordLostParts(ctx, lost, known) })
	case errors.As(err, &failure):
		j.failJob(c, failure)
	case j.tasks.ctx.Err() != nil: // the error comes from work that this actor has stopped
	default:
		j.log.Error("job fails with an internal error", "err", err)
		j.failJob(c, internalFailure(err))
	}
}

// failJob stops all work on the job and records that the job has failed.
func (j *job) failJob(c actor.Context, failure *rowmill.Failure) {
	j.log.Warn("job fails", "code", failure.Code) // do not log the failure's message, which may contain client data
	j.stopForGood(c)
	now := j.cfg.Clock()
	j.ending.runAndSend(c, "end the job", func(ctx context.Context) any { return j.closing.recordJobFailure(ctx, failure, now) })
}

// finishJob stops all work on a job after the committer has recorded the success, or a
// client has cancelled the job.
func (j *job) finishJob(c actor.Context, rec store.Record) {
	j.stopForGood(c)
	j.onEnded(c, rec)
}

// stopRows stops this actor's work on the rows. Workers continue until the next owner
// takes over, or until the owner dismisses them.
func (j *job) stopRows(c actor.Context) {
	if j.phase == jobWaits {
		j.waiting.End()
		j.awaits.End(nil)
	}
	j.phase = jobEnds
	j.timers.stop()
	j.tasks.cancel()
	if j.results != nil {
		c.Stop(j.results)
	}
}

// stopForGood stops all work on the rows, including the workers on all nodes.
func (j *job) stopForGood(c actor.Context) {
	j.stopRows(c)
	j.closing.dismissWorkers(c.ActorSystem().Root, j.crew.invites.invitedNodes())
}

// onEnded waits for the last writes of the job's objects, and then tells the node that
// the job is over.
func (j *job) onEnded(c actor.Context, rec store.Record) {
	j.endTrace(&rec)
	j.ending.runAndSend(c, "wait for writes", func(context.Context) any {
		j.closing.waitForWrites()
		return jobOver{id: rec.Job.ID, status: rec.Job.Status}
	})
}

// release gives the job back, so that another node can claim it. If the job yields, its workers
// stop first.
func (j *job) release(c actor.Context) {
	if j.yields {
		j.stopForGood(c)
	} else {
		j.stopRows(c)
	}
	j.ending.runAndSend(c, "give the job back", j.closing.release)
}

func (j *job) onStopping() {
	j.phase = jobStopped
	j.timers.stop()
	j.tasks.cancel()
	j.ending.cancel()
	j.all.Go(j.closing.waitForWrites)
}
