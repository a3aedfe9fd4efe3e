package actors

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/cluster/peer/peerv1"
	"github.com/rowmill/rowmill/internal/retry"
	"github.com/rowmill/rowmill/results/archive"
	"github.com/rowmill/rowmill/store"
)

// A jobEnder ends a job after this node has stopped all work on the job's rows. Its
// methods with a context run outside of the job actor and return the message for the
// job actor.
type jobEnder struct {
	*deps
	fence     store.Fence
	node      *actor.PID
	log       *slog.Logger
	writes    *sync.WaitGroup // tasks that may write objects of the job
	dismissed sync.WaitGroup  // running requests to other nodes to stop their workers
}

// Messages about the end of a job.
type (
	// jobEnded tells the job actor that its job has ended; rec is the final record.
	jobEnded struct{ rec store.Record }
	// jobOver tells the job, and then the node, that this node has nothing left to
	// do for the job.
	jobOver struct {
		id       string
		status   rowmill.Status
		released bool // the job waits for another owner
		unsure   bool // the store may still name this node as the owner; then no other node claims the job
	}
)

// recordJobFailure records that the job has failed.
func (e *jobEnder) recordJobFailure(ctx context.Context, failure *rowmill.Failure, now time.Time) any {
	rec, err := recordFailure(ctx, e.cfg.Store, e.fence, failure, now, e.log)
	switch {
	case errors.Is(err, rowmill.ErrTerminal):
		return e.readFinalRecord(ctx)
	case err != nil:
		return jobOver{id: e.fence.JobID} // another node owns the job, or this node stops
	}
	return jobEnded{rec}
}

// readFinalRecord reads from the store how the job has ended: a client cancelled it before
// this node could end it, or this node ended it and the store's answer was lost.
func (e *jobEnder) readFinalRecord(ctx context.Context) any {
	rec, err := e.readRecord(ctx, e.fence.JobID)
	if err != nil || !rec.Job.Status.IsTerminal() {
		e.log.Warn("the store refused a write because the job has ended, but the job's record shows no end; this node gives the job back", "status", rec.Job.Status, "err", err)
		return jobOver{id: e.fence.JobID, released: true, unsure: true}
	}
	return jobEnded{rec}
}

// recordLostParts marks parts as lost and gives the job back, so that its next owner runs their
// rows. alreadyLost is the number of rows that were lost earlier, and that the metric has
// counted already.
func (e *jobEnder) recordLostParts(ctx context.Context, parts *archive.LostPartsError, alreadyLost int64) any {
	e.writes.Wait() // a commit in progress may still add rows to the totals
	lost, err := runWithResult(e.localStorageRetrier(ctx), func() (store.RowTotals, error) {
		return e.cfg.Store.MarkPartsLost(ctx, e.fence, parts.Keys, func(r *store.Record) {
			r.Job.Warnings = appendMissing(r.Job.Warnings, []string{lostWarning})
		})
	})
	if err != nil {
		e.log.Warn("recording the loss of parts failed", "err", err)
	}
	e.metrics.lost.Add(float64(max(lost.Rows-alreadyLost, 0)))
	return e.release(ctx)
}

// lostWarning is the warning of a job whose rows ran again because parts were lost.
const lostWarning = "Object storage lost rows after they were done, so these rows ran again; both runs count in tokens and cost."

// release gives the job back, so that another node can claim it. It first waits for the requests
// to stop workers: otherwise the next owner would adopt these workers.
func (e *jobEnder) release(ctx context.Context) any {
	e.dismissed.Wait()
	err := e.storage.Retry(ctx, func() error { return e.cfg.Store.Release(ctx, e.fence) })
	if err != nil {
		e.log.Warn("giving the job back failed; a node will claim it again", "err", err)
	}
	return jobOver{id: e.fence.JobID, released: true, unsure: err != nil}
}

// parkForInput parks a job that reads the input or the answers of another job, because the other job
// has not read its input yet, or has not ended. A parked job takes no place on a node.
func (e *jobEnder) parkForInput(ctx context.Context, spec rowmill.Spec, pause time.Duration) any {
	message := "Waiting for the input of " + spec.FromJob + ": this job starts when that job has read its input."
	if spec.FromAnswers {
		message = "Waiting for the answers of " + spec.FromJob + ": this job starts when that job has succeeded."
	}
	err := e.storage.Retry(ctx, func() error { return e.cfg.Store.Park(ctx, e.fence, pause, message) })
	if err != nil {
		e.log.Warn("parking the job failed; a node will claim it again", "err", err)
	}
	return jobOver{id: e.fence.JobID, unsure: err != nil}
}

// inputPause returns how long a job that waits for the input of another job stays parked. The pause
// grows with the age of the job: a job that waits long then causes few writes, and it starts late by
// at most a quarter of its wait.
func inputPause(age time.Duration) time.Duration {
	return min(max(age/4, time.Second), time.Minute)
}

// waitForWrites returns when all writes of the job's objects, and all requests to stop workers,
// have ended.
func (e *jobEnder) waitForWrites() {
	e.writes.Wait()
	e.dismissed.Wait()
}

// dismissTimeout is how long a node may take to stop a worker. After this time
// the owner removes the job's objects in any case.
const dismissTimeout = 5 * time.Second

// dismissWorkers stops the workers of the job on the nodes at these addresses; "" is this
// node.
func (e *jobEnder) dismissWorkers(root *actor.RootContext, addresses []string) {
	m := &peerv1.DismissRequest{Job: e.fence.JobID, Epoch: e.fence.Epoch}
	for _, address := range addresses {
		e.dismissed.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), dismissTimeout)
			defer cancel()
			_ = retry.StopWorker.Do(ctx, func() error {
				if address == "" {
					return errorFromAnswer(root.RequestFuture(e.node, nodeRequest{body: m}, dismissTimeout).Result())
				}
				_, err := askPeer(ctx, e.transport, address, peerNode.Dismiss, m)
				return err
			}, func(err error) bool { return refusalCode(err) == codeBusy }, nil)
		})
	}
}
