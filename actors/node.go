package actors

import (
	"context"
	"log/slog"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill/actors/assign"
	"github.com/rowmill/rowmill/actors/nodes"
	"github.com/rowmill/rowmill/actors/retention"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/cluster/peer"
	"github.com/rowmill/rowmill/store"
)

// Messages a node receives, beside steps and those of nodeengines.go and nodetrials.go.
type (
	leaseChanged struct { // System: there is a new session, or one can no longer be trusted
		lease *lease
		ended bool
	}
	membersChanged struct { // System: nodes came, went or said something new
		looked chan<- int // gets how many there are, once the node has looked
	}
	downloadEnded struct { // System
		job  string
		lost bool // before it ended
		err  error
	}
)

// A node is the root of everything on this process: it claims jobs that nobody
// owns, runs one actor per job, per inference server and per job that rows run
// of here, and tells each about the others.
type node struct {
	*process
	host   host
	since  time.Time // when it started
	id     string    // of this process, which none before or after it has
	tasks  taskGroup
	timers timers
	log    *slog.Logger

	phase    phase
	lease    *lease // nil while there is none
	claims   claims
	workers  workers
	engines  engines
	members  map[string]bool // ids of the other nodes
	heard    map[string]bool // ids of all that ever were
	said     *nodes.State    // the last state that was spread
	scanning bool
	settling []settling // jobs that are over, in the order of their ends
	tidying  int        // clean-ups at work
	reached  time.Time  // since when others that own jobs reach the bucket, and this node does not
	janitor  *retention.Janitor
}

// A host is the System around a node: what it does for the node outside of its
// mailbox.
type host interface {
	reopen()      // opens another session
	askToDrain()  // passes on that the node is told to drain
	nothingLeft() // hears that a node that drains has drained
}

// A phase is how far a node is.
type phase int

const (
	serving phase = iota
	draining
	stopping // its children were told to stop: nothing new may be spawned
)

func (n *node) Receive(c actor.Context) {
	if n.phase == stopping {
		return
	}
	switch m := c.Message().(type) {
	case *actor.Started:
		n.onStarted(c)
	case step:
		m(c)
	case nodeRequest:
		n.onRequest(c, m)
	case jobOver:
		n.onJobOver(c, m)
	case jobHarmless:
		n.onJobHarmless(c, m)
	case workerEnded:
		n.onWorkerOver(c, m)
	case attachEngine, detachEngine, engineChanged, engineLeft:
		n.onEngine(c, m)
	case leaseChanged:
		n.onLeaseChanged(c, m)
	case membersChanged:
		n.onMembersChanged(c)
		m.looked <- 1 + len(n.members)
	case storageChanged:
		n.onStorageChanged(c)
	case downloadEnded:
		n.onDownloadEnded(c, m)
	case *actor.Terminated:
		n.onTerminated(c, m)
	case *actor.Stopping:
		n.onStopping()
	default:
		unhandled(c, n.log)
	}
}

func (n *node) onStarted(c actor.Context) {
	places := n.cfg.places()
	n.id = n.cfg.Node + "-" + layout.Nonce()
	n.workers = newWorkers(places, n.id)
	if n.cfg.Peers != nil {
		n.id = n.cfg.Peers.Self().ID
	}
	if n.cfg.Ownership.OwnsNone {
		places.Places, places.Kept = 0, 0
	}
	n.claims = newClaims(places)
	n.engines = newEngines()
	for _, server := range n.cfg.Engines {
		n.attach(c, server)
	}
	n.publish()
	n.lookAtState(c)
	n.lookAtStorage(c)
	n.scan(c)
	n.janitor = newJanitor(n.cfg, n.tidyJob, n.announceJob, n.log)
	n.timers.after(c, n.cfg.Janitor.Interval, "janitor", n.clean)
}

func (n *node) onStopping() {
	n.phase = stopping
	n.timers.stop()
	n.tasks.cancel()
}

// onRequest is the only way in for what other nodes ask. The codes of refusals
// tell them what to make of it.
func (n *node) onRequest(c actor.Context, m nodeRequest) {
	switch body := m.body.(type) {
	case *invite:
		n.onInvite(c, body)
	case *dismiss:
		n.onDismiss(c, body)
	case *assign.Heartbeat:
		n.pass(c, n.claims.owned[body.Job].pid, body.Job, body)
	case *assign.Assignment:
		var worker *actor.PID
		if h := n.workers.of(body.Job, body.Worker); h != nil {
			worker = h.pid
		}
		n.pass(c, worker, body.Job, body)
	case whereIs:
		n.askJob(c, body.job, body)
	case whereRows:
		n.askJob(c, body.Job, body)
	case isDownloading:
		answer(c, downloading{n.downloads.Running(body.Job)})
	case hint:
		answer(c, accepted{})
		n.onHint(c, body, m.remote)
	case drain:
		answer(c, accepted{})
		n.onDrain(c)
		if m.remote {
			n.host.askToDrain()
		}
	default:
		answer(c, refuse(peer.CodeUnknownKind, "a message of type %T", body))
	}
}

// askJob passes a question on to the owner of a job, which answers it.
func (n *node) askJob(c actor.Context, job string, question any) {
	if owned := n.claims.owned[job].pid; owned != nil {
		c.RequestWithCustomSender(owned, question, c.Sender())
		return
	}
	answer(c, refuse(codeUnknownJob, "job %s is not owned here", job))
}

// pass hands a message of another node to who it is for.
func (n *node) pass(c actor.Context, to *actor.PID, job string, body any) {
	if to == nil {
		answer(c, refuse(codeUnknownJob, "job %s is not known here", job))
		return
	}
	c.Send(to, body)
	answer(c, accepted{})
}

func (n *node) onHint(c actor.Context, h hint, remote bool) {
	switch {
	case h.Cancelled:
		n.onCancelled(c, h, remote)
	case !remote && (n.phase == draining || n.cfg.Ownership.OwnsNone):
		n.tellNext(c, h.orphan())
	case h.Account == nil: // of a version that does not say
		n.scan(c)
	default:
		n.claim(c, h.orphan())
	}
}

// onTerminated hears of an actor that has panicked.
func (n *node) onTerminated(c actor.Context, m *actor.Terminated) {
	for job, h := range n.workers.running {
		if h.pid.Equal(m.GetWho()) {
			n.onWorkerPanicked(c, job, h)
			return
		}
	}
	for id, o := range n.claims.owned {
		if o.pid.Equal(m.GetWho()) {
			n.onJobPanicked(c, id, o)
			return
		}
	}
}

func (n *node) onDrain(c actor.Context) {
	if n.phase == draining {
		return
	}
	n.phase = draining
	n.publish()
	for _, h := range inOrder(n.workers.running) {
		c.Send(h.pid, drainWorker{})
	}
	for _, o := range inOrder(n.claims.owned) {
		c.Send(o.pid, drainJob{})
	}
	n.reportDrained()
}

func (n *node) reportDrained() {
	if n.phase == draining && n.claims.idle() && n.workers.idle() && n.settled() && n.downloads.None() {
		n.host.nothingLeft()
	}
}

// stateInterval is the time between looks at whether the others should hear
// of a changed load, which they only show; engines that come and go are told at
// once. Each look wakes a process that may have nothing else to do.
const stateInterval = 5 * time.Second

func (n *node) lookAtState(c actor.Context) {
	if n.cfg.Peers != nil {
		n.timers.after(c, stateInterval, "state", n.lookAtState)
		n.publishState()
	}
}

// publish lets the world outside see the engines.
func (n *node) publish() {
	status := n.engines.status()
	n.published.engines.Store(&status)
	n.publishState()
}

// publishState says how this node is, where that has changed by enough.
func (n *node) publishState() {
	s := nodes.State{
		Version: n.cfg.Version, Since: n.since, Draining: n.phase == draining,
		Jobs: len(n.claims.owned), Engines: n.engines.states(), Objects: n.objects(),
	}
	n.published.state.Store(&s)
	if n.cfg.Peers == nil || n.said != nil && s.Near(*n.said) {
		return
	}
	n.said = &s
	if err := n.transport.spread(s); err != nil {
		n.log.Error("telling the other nodes about this one failed", "err", err)
	}
}

// onMembersChanged looks at the other nodes anew. When one has gone, its jobs
// may be orphans.
func (n *node) onMembersChanged(c actor.Context) {
	all := n.cfg.Peers.Members()
	here := make(map[string]bool, len(all))
	for _, m := range all {
		if !m.Self {
			here[m.ID], n.heard[m.ID] = true, true
		}
	}
	gone := false
	for id := range n.members {
		gone = gone || !here[id]
	}
	n.members = here
	if n.engines.hear(speaking(all)) {
		n.tellJobs(c)
	}
	n.judgeStorage(c)
	if gone {
		n.scan(c)
	}
}

// rank is how many members stand before this one for a job.
func (n *node) rank(job string) int {
	if n.cfg.Peers == nil {
		return 0
	}
	return nodes.Rank(job, n.cfg.Peers.Self().ID, n.cfg.Peers.Members())
}

// tellNext hints the node that stands first for a job that nobody owns it.
func (n *node) tellNext(c actor.Context, o store.Orphan) {
	others := n.transport.others()
	if n.leaves() {
		others = nodes.Reaching(others)
	}
	if first, ok := nodes.First(o.JobID, others); ok {
		n.tell(c, first.Peer, hintOf(o))
	}
}

// tell sends another node something that may be lost.
func (n *node) tell(c actor.Context, address string, m any) {
	n.tasks.run(c, "tell a node", func(ctx context.Context) step {
		if err := n.transport.tell(ctx, address, m); err != nil {
			n.transport.unanswered(n.log, address, err)
		}
		return nil
	})
}
