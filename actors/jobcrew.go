package actors

import (
	"context"
	"errors"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/cluster/peer"
	"github.com/rowmill/rowmill/retry"
	"github.com/rowmill/rowmill/store"
)

// This half of the job speaks with its workers: it invites nodes, takes their
// reports in and tells them what to do.

const (
	// gatherTimeout is how long a new owner waits to hear from the workers of
	// earlier ones before it deals what they may have: longer than a message
	// takes, and than a worker waits with its next report.
	gatherTimeout = 3 * time.Second
	// askAgain is the time between invites to a node that has no worker.
	askAgain = 2 * time.Second
	// banTime is how long a node is left out whose worker could not go on.
	banTime = time.Minute
	// recordInterval is the time between looks at the record of a job that is
	// another node's to cancel.
	recordInterval = 5 * time.Second
)

// gather begins the work: every node that may have rows of the job is asked,
// and those that have are heard before the first row is dealt.
func (j *job) gather(c actor.Context) {
	if j.fence.Epoch == 1 {
		j.startDealing(c)
	} else {
		j.timers.after(c, gatherTimeout, gatherDue{})
	}
	if j.post.peers != nil {
		j.timers.after(c, recordInterval, recordDue{})
	}
	j.inviteNew(c)
	j.onCrewDue(c)
	if j.asking == 0 {
		j.startDealing(c)
	}
}

func (j *job) startDealing(c actor.Context) {
	if j.crew.dealing {
		return
	}
	j.crew.dealing = true
	j.serve(c)
	j.drainResults(c)
}

// inviteNew asks the nodes that could work for the job and do not. Before the
// first deal those are all: one that cannot work now may have rows from before.
func (j *job) inviteNew(c actor.Context) {
	if j.crew == nil {
		return
	}
	nodes := j.nodes()
	j.crew.nodes = len(nodes)
	for address := range nodes {
		now := time.Now()
		if j.crew.at(address) != nil || now.Sub(j.asked[address]) < askAgain || now.Before(j.banned[address]) {
			continue
		}
		if j.draining && address == "" {
			continue
		}
		j.asked[address] = now
		j.invite(c, address)
	}
}

// nodes are the addresses of the nodes to be invited, "" for this one.
func (j *job) nodes() map[string]bool {
	out := make(map[string]bool)
	for _, e := range j.engines {
		if _, ok := e.serves(j.rec.Spec.Model); ok && j.refused[e.name] == nil {
			out[e.address] = true
		}
	}
	if !j.crew.dealing {
		out[""] = true
		if j.post.peers != nil {
			for _, m := range j.post.peers.Members() {
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
		Context: j.job.context, MaxTokens: j.job.maxTokens,
	}
	if j.job.spec.Estimate {
		m.Sample = j.job.manifest.Rows
	}
	if !j.crew.dealing {
		j.asking++
	}
	if address == "" {
		m.owner = c.Self()
		c.Request(j.node, m)
		return
	}
	j.run.run(c, func(ctx context.Context) any {
		ctx, cancel := context.WithTimeout(ctx, carryTimeout)
		defer cancel()
		answer := &invited{}
		answer.err = j.post.ask(ctx, address, kindInvite, m.Job, m.Epoch, m, answer)
		answer.address = address
		return answer
	})
}

func (j *job) onInvited(c actor.Context, m *invited) {
	if m.err != nil {
		logUnanswered(j.log, m.address, m.err)
		if code(m.err) == codeBusy {
			delete(j.asked, m.address) // at the next look
		}
	}
	if j.crew.dealing {
		return
	}
	j.asking--
	if m.err == nil && m.Working {
		j.awaited[m.address] = true
	}
	j.dealIfGathered(c)
}

func (j *job) dealIfGathered(c actor.Context) {
	if j.asking <= 0 && len(j.awaited) == 0 {
		j.startDealing(c)
	}
}

// onReport takes in what a worker says and answers it.
func (j *job) onReport(c actor.Context, r *report) {
	if r.Epoch != j.fence.Epoch {
		return
	}
	if r.pid != nil {
		r.Address = ""
	}
	m, parts := j.crew.hear(r, time.Now())
	if m == nil {
		j.log.Warn("worker has to let go of its rows", "worker", r.Worker, "node", r.Address)
		(&courier{local: r.pid, post: j.post, address: r.Address, kind: kindOrders}).send(c, j.run, j.signed(&orders{Worker: r.Worker, Stop: true}))
		return
	}
	if m.link == nil {
		m.link = &courier{local: r.pid, post: j.post, address: r.Address, kind: kindOrders}
	}
	for _, p := range parts {
		if !j.closing {
			c.Send(j.results, partWritten{m.worker, p})
		}
	}
	delete(j.awaited, r.Address)
	if !j.crew.dealing {
		j.dealIfGathered(c)
	}
	j.warn(c, r.Warnings)
	if r.Fault != nil {
		j.onFault(c, m, r.Fault)
		return
	}
	j.noteRefusals(c, r)
	if j.ending {
		return
	}
	if r.Left {
		j.part(c, m)
		return
	}
	j.serve(c)
	j.tell(c, m)
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
func (j *job) noteRefusals(c actor.Context, r *report) {
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
func (j *job) onFault(c actor.Context, m *member, f *fault) {
	if f.Row >= 0 {
		j.onRowBroke(c, f)
		return
	}
	err := f.err
	if err == nil {
		err = errors.New(f.Message)
	}
	if j.crew.working() < 2 || f.Code == rowmill.CodeInternalError {
		j.onJobBroke(c, jobBroke{err})
		return
	}
	j.log.Warn("a node cannot go on with the job and is left out for a while", "node", m.address, "err", err)
	j.banned[m.address] = time.Now().Add(banTime)
	j.lose(c, m)
}

// lose gives the rows of a worker to others.
func (j *job) lose(c actor.Context, m *member) {
	again := j.crew.remove(m)
	j.metrics.returned.WithLabelValues("lost").Add(float64(again))
	j.log.Warn("worker lost", "worker", m.worker, "node", m.address, "rows", again)
	j.send(c, m, &orders{Worker: m.worker, Stop: true})
	j.serve(c)
}

// part lets a worker go that has given back all it had.
func (j *job) part(c actor.Context, m *member) {
	j.crew.remove(m)
	j.send(c, m, &orders{Worker: m.worker, Stop: true})
	j.drainResults(c)
	j.serve(c)
}

// drainResults ends this node's part in the job once its own worker has left.
// Parts that others report from then on are for the next owner.
func (j *job) drainResults(c actor.Context) {
	if j.draining && !j.closing && j.crew.dealing && j.crew.at("") == nil {
		j.closing = true
		c.Send(j.results, drainResults{})
	}
}

func (j *job) onPartSettled(c actor.Context, m partSettled) {
	w := j.crew.settle(m.worker, m.part, m.open)
	j.serve(c)
	if w != nil {
		j.tell(c, w)
	}
}

// serve tells those whose orders have changed.
func (j *job) serve(c actor.Context) {
	for _, m := range j.crew.serve() {
		j.tell(c, m)
	}
}

func (j *job) tell(c actor.Context, m *member) { j.send(c, m, j.crew.orders(m)) }

func (j *job) send(c actor.Context, m *member, o *orders) { m.link.send(c, j.run, j.signed(o)) }

// signed says on orders which job they are of, and whose.
func (j *job) signed(o *orders) *orders {
	o.Job, o.Epoch = j.rec.Job.ID, j.fence.Epoch
	return o
}

// onDelivered learns from a message that did not arrive: where nobody listens
// any more, the process is gone with all that it had.
func (j *job) onDelivered(c actor.Context, m delivered) {
	m.by.back(c, j.run)
	if m.err == nil {
		return
	}
	logUnanswered(j.log, m.by.address, m.err)
	for _, w := range j.crew.sorted() {
		if w.link == m.by && (errors.Is(m.err, peer.ErrRefused) || code(m.err) == codeUnknownJob) {
			j.lose(c, w)
		}
	}
}

// onCrewDue looks who is silent and who is new.
func (j *job) onCrewDue(c actor.Context) {
	j.timers.after(c, reportInterval, crewDue{})
	now := time.Now()
	if !j.looked.IsZero() && now.Sub(j.looked) > 2*reportInterval { // it was us who stood still
		j.crew.excuse(now.Add(-reportInterval))
	}
	j.looked = now
	for _, m := range j.crew.silent(now.Add(-j.cfg.LeaseTTL)) {
		j.lose(c, m)
	}
	for _, m := range j.crew.silent(now.Add(-2 * reportInterval)) {
		j.tell(c, m) // whether anybody listens
	}
	j.inviteNew(c)
}

// onRecordDue looks whether the job was cancelled at another node.
func (j *job) onRecordDue(c actor.Context) {
	j.timers.after(c, recordInterval, recordDue{})
	j.run.run(c, func(ctx context.Context) any {
		rec, err := j.cfg.Store.Get(ctx, j.fence.JobID)
		switch {
		case err == nil && rec.Job.Status == rowmill.StatusCancelled: // any other end is our own
			return jobBroke{rowmill.ErrTerminal}
		case err == nil && rec.Epoch != j.fence.Epoch:
			return jobBroke{rowmill.ErrLeaseLost}
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
	for address := range j.asked {
		j.workers.Add(1)
		go func() {
			defer j.workers.Done()
			ctx, cancel := context.WithTimeout(context.Background(), dismissTimeout)
			defer cancel()
			_ = retry.Dismissals.Do(ctx, func() error {
				if address == "" {
					return asError(root.RequestFuture(j.node, m, dismissTimeout).Result())
				}
				return j.post.ask(ctx, address, kindDismiss, m.Job, m.Epoch, m, nil)
			}, func(err error) bool { return code(err) == codeBusy }, nil)
		}()
	}
}

func asError(answer any, err error) error {
	if refused, ok := answer.(*peer.Refusal); ok {
		return refused
	}
	return err
}

// code is that of a refusal; empty for any other error.
func code(err error) string {
	var refused *peer.Refusal
	if errors.As(err, &refused) {
		return refused.Code
	}
	return ""
}
