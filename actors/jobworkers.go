package actors

import (
	"context"
	"errors"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/assign"
	"github.com/rowmill/rowmill/cluster/peer"
	"github.com/rowmill/rowmill/internal/retry"
	"github.com/rowmill/rowmill/store"
)

const (
	// gatherTimeout is how long a new owner waits to hear from the workers of
	// earlier ones before it assigns what they may have: longer than a message
	// takes, and than a worker waits with its next heartbeat.
	gatherTimeout = 3 * time.Second
	// recordInterval is the time between looks at the record of a job that
	// another node may cancel, or claim where the store forgets.
	recordInterval = 5 * time.Second
)

// gather begins the work: every node that may have rows of the job is asked,
// and those that have are heard before the first row is assigned.
func (j *job) gather(c actor.Context) {
	if firstClaim(j.claimed) {
		j.startAssigning(c)
	} else {
		j.timers.after(c, gatherTimeout, "gather", j.startAssigning)
	}
	j.lookAtWorkers(c)
	j.assignIfGathered(c)
}

func (j *job) startAssigning(c actor.Context) {
	if j.owner.Assigning {
		return
	}
	j.owner.Assigning = true
	j.serve(c)
	j.drainResults(c)
}

// inviteNew asks the nodes that could work for the job and do not. Before the
// first batch those are all: one that cannot work now may have rows from before.
func (j *job) inviteNew(c actor.Context) {
	nodes := j.nodes()
	j.owner.Nodes = len(nodes)
	for address := range inOrder(nodes) {
		if j.owner.At(address) == nil && !(j.draining && address == "") && j.invites.due(address, time.Now()) {
			j.invite(c, address)
		}
	}
}

// nodes are the addresses of the nodes to be invited, "" for this one.
func (j *job) nodes() map[string]bool {
	out := make(map[string]bool)
	for _, e := range j.engines {
		if _, ok := e.serves(&j.rec.Spec); ok && j.refused[e.name] == nil {
			out[e.address] = true
		}
	}
	if !j.owner.Assigning {
		out[""] = true
		if j.transport.peers != nil {
			for _, m := range j.transport.peers.Members() {
				if m.Engines && !m.Self && m.Protocol == Protocol {
					out[m.Peer] = true
				}
			}
		}
	}
	return out
}

func (j *job) invite(c actor.Context, address string) {
	m := &invite{
		Job: j.rec.Job.ID, Epoch: j.fence.Epoch, Session: j.fence.Session, Address: j.address,
		Context: j.job.context, MaxTokens: j.job.maxTokens, Account: j.job.spec.Account, Priority: j.job.spec.Priority,
	}
	if !j.whole {
		m.Input = &j.job.manifest
	}
	if j.job.spec.Estimate {
		m.Sample = j.job.manifest.Rows
	}
	if address == "" {
		m.owner = c.Self()
		c.Request(j.node, nodeRequest{body: m})
		return
	}
	j.tasks.run(c, "invite a node", func(ctx context.Context) step {
		ctx, cancel := context.WithTimeout(ctx, tellTimeout)
		defer cancel()
		answer, err := j.transport.invite(ctx, address, m)
		return func(c actor.Context) { j.onInvited(c, address, answer, err) }
	})
}

func (j *job) onInvited(c actor.Context, address string, answer *invited, err error) {
	if err != nil {
		j.transport.unanswered(j.log, address, err)
	}
	j.invites.answered(address, err == nil && answer.Working && j.owner.At(address) == nil, code(err))
	j.assignIfGathered(c)
}

func (j *job) assignIfGathered(c actor.Context) {
	if j.invites.gathered() {
		j.startAssigning(c)
	}
}

// onHeartbeat takes in what a worker says and answers it.
func (j *job) onHeartbeat(c actor.Context, r *assign.Heartbeat) {
	if r.Epoch != j.fence.Epoch || j.phase != jobRuns && j.phase != jobCloses { // it says it again
		return
	}
	local := c.Sender()
	if local != nil {
		r.Address = ""
	}
	m, parts := j.owner.Hear(r, time.Now())
	to := j.links[r.Worker]
	if to == nil {
		to = &link{local: local, transport: j.transport, address: r.Address, failed: j.onUndelivered}
	}
	if m == nil {
		if !j.unwanted[r.Worker] { // it reports until it has heard
			j.unwanted[r.Worker] = true
			j.log.Warn("worker has to let go of its rows", "worker", r.Worker, "node", r.Address)
		}
		to.send(c, j.tasks, j.signed(&assign.Assignment{Worker: r.Worker, Stop: true}))
		return
	}
	j.links[r.Worker] = to
	for _, p := range parts {
		switch {
		case j.phase != jobRuns: // it is for the next owner
		case j.results == nil:
			j.early = append(j.early, partWritten{p, j.owner.Working(), r.Address})
		default:
			c.Send(j.results, partWritten{p, j.owner.Working(), r.Address})
		}
	}
	j.invites.heard(r.Address)
	j.assignIfGathered(c)
	j.warn(c, r.Warnings)
	if r.Fault != nil {
		j.onFault(c, m, r.Fault)
		return
	}
	j.noteRefusals(c, r)
	if j.phase == jobEnds {
		return
	}
	if r.Left {
		j.part(c, m)
		return
	}
	j.serve(c, m)
}

// warn adds warnings to the record that are not in it.
func (j *job) warn(c actor.Context, warnings []string) {
	if len(union(j.rec.Job.Warnings[:len(j.rec.Job.Warnings):len(j.rec.Job.Warnings)], warnings)) == len(j.rec.Job.Warnings) || j.updating {
		return
	}
	j.update(c, func(r *store.Record) { r.Job.Warnings = union(r.Job.Warnings, warnings) })
}

// noteRefusals keeps which engines cannot run the job, and fails it when none
// is left.
func (j *job) noteRefusals(c actor.Context, r *assign.Heartbeat) {
	for engine, why := range r.Refused {
		for _, e := range j.engines {
			if e.address == r.Address && e.local == engine && j.refused[e.name] == nil {
				j.refused[e.name] = errors.New(why)
				if !j.served() {
					j.fail(c, rowmill.Failf(rowmill.CodeEngineError, "No engine can run this job: %s", why))
					return
				}
			}
		}
	}
}

// onFault ends the job, or leaves out the one node that cannot go on.
func (j *job) onFault(c actor.Context, m *assign.Assignee, f *assign.Fault) {
	if f.Row >= 0 {
		j.onRowBroke(c, f)
		return
	}
	err := f.Err
	if err == nil {
		err = errors.New(f.Message)
	}
	if j.owner.Working() < 2 || f.Code == rowmill.CodeInternalError {
		j.broke(c, err)
		return
	}
	j.log.Warn("a node cannot go on with the job and is left out for a while", "node", m.Address, "err", err)
	j.invites.ban(m.Address, time.Now())
	j.lose(c, m)
}

// lose gives the rows of a worker to others.
func (j *job) lose(c actor.Context, m *assign.Assignee) {
	again := j.owner.Remove(m)
	j.metrics.returned.WithLabelValues("lost").Add(float64(again))
	j.log.Warn("worker lost", "worker", m.Worker, "node", m.Address, "rows", again)
	j.send(c, m, &assign.Assignment{Worker: m.Worker, Stop: true})
	j.serve(c)
}

// part lets a worker go that has given back all it had.
func (j *job) part(c actor.Context, m *assign.Assignee) {
	j.owner.Remove(m)
	j.send(c, m, &assign.Assignment{Worker: m.Worker, Stop: true})
	j.drainResults(c)
	j.serve(c)
}

// drainResults ends this node's part in the job once its own worker has left. Input
// is read to its end.
// Parts that others report from then on are for the next owner.
func (j *job) drainResults(c actor.Context) {
	if j.draining && j.phase == jobRuns && j.results != nil && j.owner.Assigning && j.owner.At("") == nil {
		j.phase = jobCloses
		c.Send(j.results, drainResults{})
	}
}

func (j *job) onPartsCommitted(c actor.Context, m partsCommitted) {
	j.advanced = true
	j.doesNoHarm(c)
	var workers []*assign.Assignee
	now, told := time.Now(), make(map[*assign.Assignee]bool)
	for _, p := range m.parts {
		if w := j.owner.Committed(p.Worker, p.Part, now); w != nil && !told[w] {
			told[w] = true
			workers = append(workers, w)
		}
	}
	j.copyRows(c)
	j.serve(c, workers...)
}

// serve tells those whose assignments have changed, and some others, each once.
func (j *job) serve(c actor.Context, others ...*assign.Assignee) {
	changed := j.owner.Serve()
	told := make(map[*assign.Assignee]bool, len(changed))
	for _, m := range changed {
		if !told[m] {
			told[m] = true
			j.tell(c, m)
		}
	}
	for _, m := range others {
		if !told[m] {
			j.tell(c, m)
		}
	}
}

func (j *job) tell(c actor.Context, m *assign.Assignee) { j.send(c, m, j.owner.Assignment(m)) }

func (j *job) send(c actor.Context, m *assign.Assignee, o *assign.Assignment) {
	j.links[m.Worker].send(c, j.tasks, j.signed(o))
}

// signed says on an assignment which job it is of, and whose.
func (j *job) signed(o *assign.Assignment) *assign.Assignment {
	o.Job, o.Epoch = j.rec.Job.ID, j.fence.Epoch
	return o
}

// onUndelivered learns from a message that did not arrive: where nobody listens
// any more, the process is gone with all that it had.
func (j *job) onUndelivered(c actor.Context, l *link, err error) {
	j.transport.unanswered(j.log, l.address, err)
	for _, w := range j.owner.Workers() {
		if j.links[w.Worker] == l && (errors.Is(err, peer.ErrRefused) || code(err) == codeUnknownJob) {
			j.lose(c, w)
		}
	}
}

// lookAtWorkers looks who is silent and who is new, now and from time to time.
func (j *job) lookAtWorkers(c actor.Context) {
	j.timers.after(c, heartbeatInterval, "workers", j.lookAtWorkers)
	now := time.Now()
	if !j.looked.IsZero() && now.Sub(j.looked) > 2*heartbeatInterval { // it was us who stood still
		j.owner.Excuse(now.Add(-heartbeatInterval))
	}
	j.looked = now
	for _, m := range j.owner.Silent(now.Add(-j.cfg.Ownership.LeaseTTL)) {
		j.lose(c, m)
	}
	for _, m := range j.owner.Stranded(j.cfg.StoragePatience, now) {
		j.invites.ban(m.Address, now)
		j.lose(c, m)
	}
	j.say(c)
	for _, m := range j.owner.Silent(now.Add(-2 * heartbeatInterval)) {
		j.tell(c, m) // whether anybody listens
	}
	j.inviteNew(c)
}

// lookAtRecord looks whether the job was cancelled at another node, or is owned
// there.
func (j *job) lookAtRecord(c actor.Context) {
	j.timers.after(c, recordInterval, "record", j.lookAtRecord)
	j.tasks.run(c, "look up a job", func(ctx context.Context) step {
		rec, err := j.cfg.Store.Get(ctx, j.fence.JobID)
		switch {
		case err == nil && rec.Job.Status == rowmill.StatusCancelled: // any other end is our own
			return j.onCancelled
		case err == nil && rec.Epoch != j.fence.Epoch:
			return func(c actor.Context) { j.broke(c, rowmill.ErrLeaseLost) }
		}
		return nil
	})
}

// dismissTimeout is how long a node may take to stop a worker before the job's
// objects are removed all the same.
const dismissTimeout = 5 * time.Second

// dismissWorkers stops the job's work on all nodes.
func (j *job) dismissWorkers(c actor.Context) {
	root := c.ActorSystem().Root
	m := &dismiss{Job: j.rec.Job.ID, Epoch: j.fence.Epoch}
	for _, address := range j.invites.nodes() {
		j.dismissed.Add(1)
		go func() {
			defer j.dismissed.Done()
			ctx, cancel := context.WithTimeout(context.Background(), dismissTimeout)
			defer cancel()
			_ = retry.StopWorker.Do(ctx, func() error {
				if address == "" {
					return asError(root.RequestFuture(j.node, nodeRequest{body: m}, dismissTimeout).Result())
				}
				return j.transport.dismiss(ctx, address, m)
			}, func(err error) bool { return code(err) == codeBusy }, nil)
		}()
	}
}
