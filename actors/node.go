package actors

import (
	"context"
	"log/slog"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill/actors/assign"
	"github.com/rowmill/rowmill/actors/nodes"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/cluster/peer"
	"github.com/rowmill/rowmill/cluster/peer/peerv1"
)

// Messages that the node actor receives, in addition to steps, nodeRequest and the
// messages of its parts and children.
type (
	membersChanged struct { // from the System: nodes joined, left or sent a new state
		looked chan<- int // gets the number of members, after the node has read them
	}
	downloadEnded struct { // from the System: the download of an input has ended
		job  string
		lost bool // the job was lost before the download ended
		err  error
	}
)

// A node is the root actor of this process. It claims jobs without an owner, and
// runs an actor for each job, each inference server and each worker. Its parts
// jobs, work and cleaner do most of the work. After each message the node checks
// whether it has drained.
type node struct {
	nodePart
	host    nodeHost
	near    *clusterView
	reach   *bucketReach
	engines *engines
	cleaner *cleaner
	jobs    *nodeJobs
	work    *nodeWorkers

	phase         nodePhase
	since         time.Time    // when this node started
	lastSentState *nodes.State // the last state sent to the other nodes

	looking   bool // a check of storage is running
	lookAgain bool // storage has changed during the check, so another check must follow
}

// A nodeHost does work for the node actor outside of the node's mailbox. The System
// implements it.
type nodeHost interface {
	reopenSession() // opens a new session after the last one was lost
	requestDrain()  // tells the program that another node has asked this node to drain
	markDrained()   // tells the System that a draining node has finished its work
}

// newNode returns the node actor, with its first lease.
func newNode(p *deps, h nodeHost, l *lease, tasks taskGroup, log *slog.Logger) *node {
	part := nodePart{deps: p, tasks: tasks, log: log}
	places, id := p.cfg.slotConfig(), p.cfg.Node+"-"+layout.Nonce()
	work := newWorkerTable(places, id)
	if p.cfg.Ownership.OwnsNone {
		places.Places, places.Kept = 0, 0
	}
	near := newClusterView(p.cfg.Peers, p.cfg.Node, id)
	reach := &bucketReach{storage: p.storage, others: p.transport.otherMembers}
	engines := newEngines()
	cleaner := &cleaner{nodePart: part, janitor: newJanitor(p.cfg, p.tidyJob, p.notifyIfEnded, log)}
	jobs := &nodeJobs{nodePart: part, reopen: h.reopenSession, near: near, reach: reach, cleaner: cleaner, engines: &engines, claims: newClaims(places), lease: l}
	cleaner.mayClean = func() (now, first bool) {
		return !jobs.draining && jobs.lease != nil, !p.cfg.Ownership.OwnsNone && near.rank(janitorName) == 0
	}
	return &node{
		nodePart: part, host: h, near: near, reach: reach, engines: &engines, cleaner: cleaner, jobs: jobs, since: p.cfg.Clock().UTC(),
		work: &nodeWorkers{nodePart: part, reach: reach, cleaner: cleaner, engines: &engines, workers: work},
	}
}

// A nodePhase is a phase in the life of the node actor.
type nodePhase int

const (
	serving nodePhase = iota
	draining
	stopping // the node's children are stopping, so it must start no new ones
)

func (n *node) Receive(c actor.Context) {
	if n.phase == stopping {
		return
	}
	switch m := c.Message().(type) {
	case *actor.Started:
		n.onStarted(c)
	case mailboxStep:
		m(c)
	case nodeRequest:
		n.onRequest(c, m)
	case jobQuestion:
		n.onQuestion(c, m)
	case jobOver:
		n.jobs.onJobOver(c, m)
	case jobHarmless:
		n.jobs.onJobHarmless(c, m)
	case jobDemand:
		n.jobs.claims.setDemand(m)
		n.publishState()
	case leaseChanged:
		n.jobs.onLeaseChanged(c, m)
	case workerEnded:
		n.work.onEnded(c, m)
	case attachEngine, detachEngine, engineChanged, engineLeft, stoppedServers:
		n.onEngine(c, m)
	case membersChanged:
		n.onMembersChanged(c)
		m.looked <- 1 + len(n.near.members)
	case storageChanged:
		n.onStorageChanged(c)
	case downloadEnded:
		n.onDownloadEnded(c, m)
	case *actor.Terminated:
		if !n.work.onTerminated(c, m.GetWho()) {
			n.jobs.onTerminated(c, m.GetWho())
		}
	case *actor.Stopping:
		n.onStopping()
		return
	default:
		logUnhandled(c, n.log)
	}
	if n.phase == draining && n.jobs.isIdle() && n.work.workers.isIdle() && n.cleaner.isIdle() && n.downloads.IsIdle() {
		n.host.markDrained()
	}
}

func (n *node) onStarted(c actor.Context) {
	for _, server := range n.cfg.Engines {
		n.attach(c, server)
	}
	n.publish()
	n.onStateDue(c)
	n.checkStorage(c)
	n.jobs.scanOrphans(c)
	n.cleaner.timers.runAfter(c, n.cfg.Janitor.Interval, "janitor", n.cleaner.runJanitor)
}

func (n *node) onStopping() {
	n.phase = stopping
	for _, t := range []*timers{&n.timers, &n.jobs.timers, &n.work.timers, &n.cleaner.timers} {
		t.stop()
	}
	n.tasks.cancel()
}

// onRequest handles requests from other nodes, from the System and from jobs of this
// node. If the node refuses, the code of the refusal tells the sender how to continue.
func (n *node) onRequest(c actor.Context, m nodeRequest) {
	switch body := m.body.(type) {
	case *invite:
		n.work.onInvite(c, body)
	case *peerv1.DismissRequest:
		n.work.onDismiss(c, body)
	case *assign.Heartbeat:
		n.forward(c, n.ownerOf(body.Job), body.Job, body)
	case *assign.Assignment:
		var worker *actor.PID
		if h := n.work.workers.find(body.Job, body.Worker); h != nil {
			worker = h.pid
		}
		n.forward(c, worker, body.Job, body)
	case *hint:
		respondIfAsked(c, accepted{})
		n.jobs.onHint(c, body, m.remote)
	case drain:
		respondIfAsked(c, accepted{})
		n.onDrain(c)
		if m.remote {
			n.host.requestDrain()
		}
	default:
		respondIfAsked(c, refuse(peer.CodeUnknownKind, "unknown message type %T", body))
	}
}

// onQuestion passes a question on to an actor of the job, which answers the sender.
func (n *node) onQuestion(c actor.Context, m jobQuestion) {
	if to := m.to(n, m.job); to != nil {
		c.RequestWithCustomSender(to, m.body, c.Sender())
		return
	}
	respondIfAsked(c, refuse(codeUnknownJob, "job %s is not known here", m.job))
}

// ownerOf returns the actor of a job that this node owns; nil if this node does not own
// the job.
func (n *node) ownerOf(job string) *actor.PID { return n.jobs.claims.owned[job].pid }

// forward sends a message to the actor to and answers the sender; if to is nil, it refuses
// the message.
func (n *node) forward(c actor.Context, to *actor.PID, job string, body any) {
	if to == nil {
		respondIfAsked(c, refuse(codeUnknownJob, "job %s is not known here", job))
		return
	}
	c.Send(to, body)
	respondIfAsked(c, accepted{})
}

func (n *node) onDrain(c actor.Context) {
	if n.phase == draining {
		return
	}
	n.phase = draining
	n.storage.BeginDrain()
	n.publish()
	n.work.drain(c)
	n.jobs.drain(c)
}

// stateInterval is the time between checks whether the load of this node has changed.
// The API and other nodes only display the load; changes of engines are published at once.
// The interval is not shorter, because each check costs processor time on an idle node.
const stateInterval = 5 * time.Second

func (n *node) onStateDue(c actor.Context) {
	n.timers.runAfter(c, stateInterval, "state", n.onStateDue)
	n.publishState()
}

// publish publishes the state of this node's engines, for other goroutines of this
// process and for other nodes.
func (n *node) publish() {
	status := n.engines.status()
	n.published.engines.Store(&status)
	n.publishState()
}

// publishState publishes this node's state for the API, and sends it to the other nodes if
// it has changed enough.
func (n *node) publishState() {
	s := nodes.State{
		Version: n.cfg.Version, Since: n.since, Draining: n.phase == draining,
		Jobs: len(n.jobs.claims.owned), Engines: n.engines.states(), Demand: n.jobs.claims.demand(), Objects: n.reach.bucketState(),
	}
	n.published.state.Store(&s)
	if n.cfg.Peers == nil || n.lastSentState != nil && s.IsCloseTo(*n.lastSentState) {
		return
	}
	n.lastSentState = &s
	if err := n.transport.sendState(s); err != nil {
		n.log.Error("sending this node's state to the other nodes failed", "err", err)
	}
}

// onMembersChanged reads the list of members and their states again. If a node has
// left, it starts a scan, because that node's jobs may be orphans.
func (n *node) onMembersChanged(c actor.Context) {
	all := n.cfg.Peers.Members()
	gone := n.near.update(all)
	if n.engines.updateRemote(filterCompatiblePeers(all)) {
		n.jobs.announceEngines(c)
	}
	n.reach.updateHandover(n.cfg.StoragePatience)
	if gone {
		n.jobs.scanOrphans(c)
	}
}

// onDownloadEnded starts a cleanup if a download ended after this node had lost the
// job: the job has another owner or has ended.
func (n *node) onDownloadEnded(c actor.Context, m downloadEnded) {
	if !m.lost {
		return
	}
	how := "whole"
	if m.err != nil {
		how = "failed" // do not log the error, whose text may contain client data
	}
	n.log.Info("a download has ended after this node lost its job", "job", m.job, "input", how)
	n.cleaner.cleanUpAfterWrites(c, m.job, false, func() {})
}

const (
	// lookInterval is the time between checks of the bucket while no other requests use
	// it. Other nodes must know whether this node can reach the bucket.
	lookInterval = 5 * time.Second
	// awayInterval is the time between checks during an outage. It is short, so that
	// the node soon notices the end of the outage.
	awayInterval = 2 * time.Second
	// lookDelay is the time from a change of storage to the next check. In this time the
	// operation that failed registers itself as waiting, and then no check is needed.
	lookDelay = 10 * time.Millisecond
)

// onStorageChanged handles the start or the end of an outage of storage: it informs the
// jobs of this node and the other nodes.
func (n *node) onStorageChanged(c actor.Context) {
	n.jobs.tellAll(c, storageChanged{})
	n.reach.updateHandover(n.cfg.StoragePatience)
	n.publishState()
	if n.lookAgain = n.looking; !n.looking {
		n.timers.runAfter(c, lookDelay, "storage", n.checkStorage)
	}
	n.jobs.scanOrphans(c)
}

// checkStorage checks storage if no call has used it for a while. A single node checks
// only during an outage.
func (n *node) checkStorage(c actor.Context) {
	_, records := n.storage.RecordsOutage()
	_, objects := n.storage.ObjectsOutage()
	interval := lookInterval
	switch {
	case records || objects:
		interval = awayInterval
	case n.cfg.Peers == nil:
		return
	}
	n.timers.runAfter(c, interval, "storage", n.checkStorage)
	n.reach.updateHandover(n.cfg.StoragePatience)
	if n.looking {
		return
	}
	n.looking = true
	n.tasks.run(c, "look at storage", func(ctx context.Context) mailboxStep {
		n.storage.Probe(ctx, lookInterval)
		return n.onLooked
	})
}

// onLooked ends a check of storage. If storage has changed during the check, it starts
// another check.
func (n *node) onLooked(c actor.Context) {
	n.looking = false
	if n.lookAgain {
		n.lookAgain = false
		n.timers.runAfter(c, lookDelay, "storage", n.checkStorage)
	}
}
