package actors

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/assign"
	"github.com/rowmill/rowmill/actors/commit"
	"github.com/rowmill/rowmill/actors/registry"
	"github.com/rowmill/rowmill/store"
)

// This file has the methods of a job that run its rows, from the wait for an engine to
// the last part.

// waitForEngine begins the wait for an engine that serves the model. If an engine already
// serves it, the job continues at once.
func (j *job) waitForEngine(c actor.Context) {
	j.phase = jobWaits
	j.waiting = j.tasks.entry.Begin("wait for an engine")
	j.awaits = j.trace.Begin("wait for an engine")
	patience := j.cfg.Servers.Wait
	if j.own.rec.Spec.Estimate {
		patience = min(patience, j.cfg.Estimates.Wait)
	}
	j.timers.sendAfter(c, patience, waitTimer)
	j.tryToStart(c)
}

// startRows starts the work on the rows. It invites every node that may have rows of
// the job. Before it assigns the first row, it waits for a heartbeat of each worker of
// an earlier owner.
func (j *job) startRows(c actor.Context) {
	j.timers.cancel(waitTimer)
	warning, failure := j.job.pinContextLength(j.crew.engines)
	if failure != nil {
		j.failJob(c, failure)
		return
	}
	j.phase = jobRuns
	j.waiting.End()
	j.awaits.End(nil)
	if !j.job.matchesSampling(j.own.rec.Job.Sampling) || warning != "" {
		j.updateRecord(c, func(r *store.Record) {
			r.Job.Sampling = j.job.sampling()
			if warning != "" {
				r.Job.Warnings = appendMissing(r.Job.Warnings, []string{warning})
			}
		})
	}
	j.tryStartCommitter(c)
	switch {
	case j.crew.owner.Exhausted():
		j.crew.owner.Assigning = true
		return
	case j.own.isFirstOwner():
		j.startAssigning(c)
	default:
		j.timers.sendAfter(c, gatherTimeout, gatherTimer)
	}
	j.checkAndInvite(c)
	if j.crew.invites.allReported() {
		j.startAssigning(c)
	}
}

func (j *job) startAssigning(c actor.Context) {
	if j.crew.owner.Assigning {
		return
	}
	j.crew.owner.Assigning = true
	j.crew.assignRows()
	j.drainResults(c)
}

// startResults spawns the committer, and sends it the parts that arrived earlier.
func (j *job) startResults(c actor.Context) {
	rec := &j.own.rec
	j.results = c.SpawnPrefix(j.metrics.props(registry.ActorIdentity{Kind: "results", Job: rec.Job.ID}, func(entry *registry.ActorEntry) actor.Actor {
		files := &commit.CompactionPlanner{
			Bucket: j.cfg.Blob, Schema: j.job.schema, Epoch: j.own.fence.Epoch, Shards: j.job.manifest.Shards,
		}
		return &committer{
			deps: j.deps, job: j.job, owner: c.Self(), mergeWaits: &j.merging,
			sizes:    j.cfg.joinSizes(),
			progress: commit.NewPartProgress(j.ledger, j.cfg.allowedFailures(&rec.Spec, j.ledger.Rows), j.cfg.joinSizes()),
			files:    files, copies: j.in.newCopyWriter(files, j.job.spec),
			tasks: newTaskGroup(j.tasks.ctx, j.closing.writes, entry), log: entry.Log(j.log),
		}
	}), "results")
	c.Watch(j.results)
	for _, p := range j.early {
		c.Send(j.results, p)
	}
	j.early = nil
	j.copyRows(c)
	j.drainResults(c)
}

// checkAndInvite checks for silent workers and invites new nodes, now and every
// heartbeatInterval.
func (j *job) checkAndInvite(c actor.Context) {
	j.timers.sendAfter(c, heartbeatInterval, workersTimer)
	j.crew.checkWorkers(j.cfg.Ownership.LeaseTTL, j.cfg.StoragePatience, time.Now())
	j.updateMessage(c)
	j.inviteNew(c)
	j.drainResults(c) // the last worker with rows may be lost
}

// inviteNew invites the nodes that could work for the job and have no worker.
func (j *job) inviteNew(c actor.Context) {
	if j.yields {
		return
	}
	for _, address := range j.crew.nodesToInvite(j.transport.otherMembers(), j.draining, time.Now()) {
		m := j.job.invitation(j.address, j.in.whole)
		if address == "" {
			m.owner = c.Self()
			c.Request(j.node, nodeRequest{body: m})
			continue
		}
		j.tasks.runAndSend(c, "invite a node", func(ctx context.Context) any {
			ctx, cancel := context.WithTimeout(ctx, tellTimeout)
			defer cancel()
			answer, err := j.transport.invite(ctx, address, m)
			return inviteAnswered{address, answer, err}
		})
	}
}

func (j *job) onInvited(c actor.Context, m inviteAnswered) {
	if m.err != nil {
		j.transport.logUnanswered(j.log, m.address, m.err)
	}
	if j.crew.recordInviteAnswer(m.address, m.answer, m.err) {
		j.startAssigning(c)
	}
}

// onHeartbeat handles the heartbeat of a worker, and answers with an assignment.
func (j *job) onHeartbeat(c actor.Context, h *assign.Heartbeat) {
	if h.Epoch != j.own.fence.Epoch || j.phase != jobRuns && j.phase != jobCloses { // ignore it: the worker's next heartbeat repeats all contents
		return
	}
	local := c.Sender()
	if local != nil {
		h.Address = ""
	}
	m, parts := j.crew.onHeartbeat(h, &messageLink{local: local, transport: j.transport, address: h.Address, failed: j.crew.onUndelivered}, time.Now())
	if m == nil {
		return
	}
	for _, p := range parts {
		j.proposePart(c, partWritten{p, j.crew.owner.CountActiveWorkers(), h.Address, j.crew.servers, j.crew.countSlots()})
	}
	if j.crew.invites.allReported() {
		j.startAssigning(c)
	}
	found := j.crew.warningsOf(h)
	if warnings := appendMissing(slices.Clone(j.own.rec.Job.Warnings), found); len(warnings) > len(j.own.rec.Job.Warnings) && !j.own.updating {
		j.updateRecord(c, func(r *store.Record) { r.Job.Warnings = appendMissing(r.Job.Warnings, found) })
	}
	if h.Fault != nil {
		j.onFault(c, m, h.Fault)
		return
	}
	if why := j.crew.recordRefusals(h); why != "" {
		j.failJob(c, rowmill.Failf(rowmill.CodeEngineError, "No engine can run this job: %s", why))
		return
	}
	if h.Left { // the worker has given back all its rows
		j.crew.removeWorker(m)
		j.drainResults(c)
		return
	}
	j.crew.assignRows()
	j.crew.queueAssignment(m)
	j.drainResults(c)
}

// proposePart sends a part to the committer, or keeps the part until there is a committer.
func (j *job) proposePart(c actor.Context, p partWritten) {
	switch {
	case j.phase != jobRuns: // the part is for the next owner
	case j.results == nil:
		j.early = append(j.early, p)
	default:
		c.Send(j.results, p)
	}
}

// onFault handles a fault that a worker has reported. It ends the job, or if only the
// worker's node cannot continue, it bans that node for a while.
func (j *job) onFault(c actor.Context, m *assign.Assignee, f *assign.Fault) {
	if f.Row >= 0 {
		j.failJob(c, rowFailure(j.own.fence.JobID, f))
		return
	}
	err := f.Err
	if err == nil {
		err = errors.New(f.Message)
	}
	if j.crew.owner.CountActiveWorkers() < 2 || f.Code == rowmill.CodeInternalError {
		j.onError(c, err)
		return
	}
	j.log.Warn("a node cannot continue the job and gets no rows of it for a while", "node", m.Address, "err", err)
	j.crew.banNode(m, time.Now())
}

// drainResults lets the committer record its last parts before the job is given back. The whole
// input must be read, and no row may run: on this node, or on any node if the job yields.
// Parts that other workers report later are for the next owner. A job that yields and has no more
// rows to run is not given back: the committer makes its results.
func (j *job) drainResults(c actor.Context) {
	switch {
	case !j.draining || j.phase != jobRuns || j.results == nil || !j.crew.owner.Assigning || !j.crew.hasStopped(j.yields):
	case j.yields && j.crew.owner.Exhausted():
		j.copyRows(c)
	default:
		j.phase = jobCloses
		c.Send(j.results, drainResults{})
	}
}

func (j *job) onPartsCommitted(c actor.Context, m partsCommitted) {
	j.own.hasRecordedRows = true
	for _, p := range m.parts {
		j.committed = j.committed.Plus(p.Record.Totals)
	}
	j.reportHarmless(c)
	j.crew.recordCommitted(m.parts, time.Now())
	j.copyRows(c)
}

// copyRows lets the committer write the copies of one shard at a time. Copies are rows
// that get the answers of equal rows (originals); they are written after all their
// originals are done.
func (j *job) copyRows(c actor.Context) {
	if j.in.copies == nil || j.results == nil || j.copying || j.draining && !j.yields || j.phase != jobRuns {
		return
	}
	if n, rows, ok := j.crew.owner.NextCopyableShard(); ok {
		j.copying = true
		c.Send(j.results, copyRows{n, rows})
	}
}

// onRowsCopied proposes a part with copies, like a worker's part.
func (j *job) onRowsCopied(c actor.Context, m rowsCopied) {
	j.copying = false
	if j.phase != jobRuns { // the next owner writes the copies
		return
	}
	j.proposePart(c, partWritten{PartProposal: j.crew.owner.ProposeCopies(m.part), workers: j.crew.owner.CountActiveWorkers()})
	j.copyRows(c)
}
