package actors

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/assign"
	"github.com/rowmill/rowmill/actors/ingest"
	"github.com/rowmill/rowmill/cluster"
	"github.com/rowmill/rowmill/cluster/peer"
	"github.com/rowmill/rowmill/cluster/peer/peerv1"
)

// A jobWorkers is the job owner's view of engines, nodes and workers: which engines serve the
// model, which nodes are invited, which workers the job has, and the next messages to
// the workers. It knows no actors: the job actor sends the messages.
type jobWorkers struct {
	spec       *rowmill.Spec
	log        *slog.Logger
	lost       prometheus.Counter      // rows that were taken from lost workers
	unassigned *prometheus.GaugeVec    // rows that no worker has yet, by model
	shown      int64                   // number of this job's rows that the gauge unassigned includes now
	engines    []engineView            // engines of all nodes
	servers    []string                // descriptions of the servers that workers have used
	refused    map[string]error        // by engine name: why the engine cannot run the job
	owner      *assign.Owner           // assigns rows to workers; nil until rows can run
	links      map[string]*messageLink // connection to each worker, by worker name
	unwanted   map[string]bool         // by name: workers that must drop their rows, and that the log has named once
	invites    invitations
	lastCheck  time.Time                 // when checkWorkers last ran
	outgoing   []outgoingAssignment      // messages to workers that were not sent yet
	queued     map[*assign.Assignee]bool // workers that have a message in outgoing
}

// An outgoingAssignment message is an assignment on its way to a worker.
type outgoingAssignment struct {
	to   *messageLink
	of   *assign.Assignee // the worker whose present assignment becomes body in takeOutgoing; nil if body is set already
	body *assign.Assignment
}

func newJobWorkers(spec rowmill.Spec, log *slog.Logger, m *metrics, engines []engineView) *jobWorkers {
	return &jobWorkers{
		spec: &spec, log: log, lost: m.returned.WithLabelValues("lost"), unassigned: m.unassigned, engines: engines,
		refused: make(map[string]error), links: make(map[string]*messageLink), unwanted: make(map[string]bool), invites: newInvitations(), queued: make(map[*assign.Assignee]bool),
	}
}

// hasEngine reports whether at least one engine can run the job now.
func (w *jobWorkers) hasEngine() bool { return slices.ContainsFunc(w.engines, w.canUse) }

// canStartServer reports whether a node can start a server of the model, when its turn on the
// GPUs comes.
func (w *jobWorkers) canStartServer() bool {
	return slices.ContainsFunc(w.engines, func(e engineView) bool {
		_, has := e.info.FindModel(w.spec.Model)
		return e.startable && has
	})
}

// defaultSlots is how many rows a server is assumed to run at the same time if it does not say
// so: the default of vLLM's max_num_seqs.
const defaultSlots = 256

// countSlots returns how many rows the engines of the job can run at the same time.
func (w *jobWorkers) countSlots() (slots int) {
	for _, e := range w.engines {
		if w.canUse(e) {
			slots += cmp.Or(e.info.Slots, defaultSlots)
		}
	}
	return slots
}

func (w *jobWorkers) canUse(e engineView) bool {
	_, serves := e.servedModel(w.spec)
	return serves && w.refused[e.name] == nil
}

// recallRows stops the assignment of rows, and asks all workers to give back unsent rows.
func (w *jobWorkers) recallRows() {
	if w.owner != nil {
		w.owner.Recalling = true
		w.assignRows()
	}
}

// hasStopped reports whether no row runs: on any node, or if everywhere is false, on this node.
func (w *jobWorkers) hasStopped(everywhere bool) bool {
	if everywhere {
		return !w.owner.HasAssignedRows()
	}
	return w.owner.WorkerAt("") == nil
}

// updateWaitingRows updates the metric rowmill_rows_waiting, which counts rows without a worker.
// If open is false, the job is ending, and the metric counts none of its rows.
func (w *jobWorkers) updateWaitingRows(open bool) {
	free := int64(0)
	if w.owner != nil && open {
		free = w.owner.CountFreeRows()
	}
	if free != w.shown {
		w.unassigned.WithLabelValues(w.spec.Model.ID).Add(float64(free - w.shown))
		w.shown = free
	}
}

// nodesToInvite returns the addresses of the nodes to invite now, "" for this node, and
// counts them as invited. Before the first rows are assigned it returns this node and
// all nodes that have engines: a node that cannot work now may have rows from an
// earlier owner. If draining is true, this node starts no worker.
func (w *jobWorkers) nodesToInvite(others []cluster.Member, draining bool, now time.Time) (addresses []string) {
	could := make(map[string]bool)
	for _, e := range w.engines {
		if w.canUse(e) {
			could[e.address] = true
		}
	}
	if !w.owner.Assigning {
		could[""] = true
		for _, m := range others {
			if m.Engines {
				could[m.Peer] = true
			}
		}
	}
	w.owner.Nodes = len(could)
	for _, address := range slices.Sorted(maps.Keys(could)) {
		if w.owner.WorkerAt(address) == nil && !(draining && address == "") && w.invites.markInvitedIfDue(address, now) {
			addresses = append(addresses, address)
		}
	}
	return addresses
}

// recordInviteAnswer notes the answer to an invite. It returns true if rows can be assigned
// now, because all invites are answered and all workers of earlier owners have
// reported.
func (w *jobWorkers) recordInviteAnswer(address string, answer *invited, err error) (allReported bool) {
	w.invites.recordAnswer(address, err == nil && answer.Working && w.owner.WorkerAt(address) == nil, refusalCode(err))
	return w.invites.allReported()
}

// setGroupsAndCopies sets the groups of rows with the same prefix, which should run on the same
// worker. It also sets the rows that are copies of other rows.
func (w *jobWorkers) setGroupsAndCopies(groups []byte, copies *ingest.Copies) {
	w.owner.SetRowGroups(groups)
	if copies != nil {
		w.owner.SetCopies(copies.RowCopies)
	}
}

// onHeartbeat processes a heartbeat. It returns the worker and the worker's new parts;
// nil if the worker must drop its rows. The crew uses the link reply if it does not
// know the worker yet.
func (w *jobWorkers) onHeartbeat(h *assign.Heartbeat, reply *messageLink, now time.Time) (*assign.Assignee, []assign.PartProposal) {
	m, parts := w.owner.HandleHeartbeat(h, now)
	if known := w.links[h.Worker]; known != nil {
		reply = known
	}
	if m == nil {
		if !w.unwanted[h.Worker] { // log it once: the worker repeats its heartbeat until it gets the answer
			w.unwanted[h.Worker] = true
			w.log.Warn("the job does not accept a worker; the rows of the worker run elsewhere", "worker", h.Worker, "node", h.Address)
		}
		w.outgoing = append(w.outgoing, outgoingAssignment{to: reply, body: &assign.Assignment{Worker: h.Worker, Stop: true}})
		return nil, nil
	}
	w.links[h.Worker] = reply
	w.invites.recordHeartbeat(h.Address)
	w.servers = appendMissing(w.servers, h.Servers)
	return m, parts
}

// warningsOf returns the warnings of a heartbeat, and a warning if the servers of the job differ.
func (w *jobWorkers) warningsOf(h *assign.Heartbeat) []string {
	if len(w.servers) < 2 {
		return h.Warnings
	}
	return append(slices.Clone(h.Warnings), "The servers of this job differ: "+strings.Join(w.servers, "; ")+". They may answer the same row differently.")
}

// recordRefusals notes which engines cannot run the job, as a heartbeat reports. If no
// engine can run the job any more, it returns the reason of the last refusal; otherwise
// it returns an empty text.
func (w *jobWorkers) recordRefusals(h *assign.Heartbeat) string {
	for engine, why := range h.Refused {
		for _, e := range w.engines {
			if e.address != h.Address || e.localName != engine || w.refused[e.name] != nil {
				continue
			}
			w.refused[e.name] = errors.New(why)
			if !w.hasEngine() {
				return why
			}
		}
	}
	return ""
}

// checkWorkers removes workers that were silent for a lease, and bans nodes whose
// workers could not use the bucket for patience. To workers with a late heartbeat it
// sends a message.
func (w *jobWorkers) checkWorkers(lease, patience time.Duration, now time.Time) {
	if !w.lastCheck.IsZero() && now.Sub(w.lastCheck) > 2*heartbeatInterval { // this process was suspended, so the workers were not silent
		w.owner.MarkAllHeard(now.Add(-heartbeatInterval))
	}
	w.lastCheck = now
	for _, m := range w.owner.SilentWorkers(now.Add(-lease)) {
		w.loseWorker(m)
	}
	for _, m := range w.owner.StrandedWorkers(patience, now) {
		w.banNode(m, now)
	}
	for _, m := range w.owner.SilentWorkers(now.Add(-2 * heartbeatInterval)) {
		w.queueAssignment(m) // if the worker has stopped, the message fails, and onUndelivered removes the worker
	}
}

// banNode gives the rows of a worker to other workers and does not invite its node for
// a while.
func (w *jobWorkers) banNode(m *assign.Assignee, now time.Time) {
	w.invites.ban(m.Address, now)
	w.loseWorker(m)
}

// loseWorker gives the rows of a lost worker to other workers.
func (w *jobWorkers) loseWorker(m *assign.Assignee) {
	again := w.removeWorker(m)
	w.lost.Add(float64(again))
	w.log.Warn("worker lost", "worker", m.Worker, "node", m.Address, "rows", again)
}

// removeWorker removes a worker, and returns how many of its rows run again.
func (w *jobWorkers) removeWorker(m *assign.Assignee) (rowsToRerun int64) {
	rowsToRerun = w.owner.Remove(m)
	w.outgoing = append(w.outgoing, outgoingAssignment{to: w.links[m.Worker], body: &assign.Assignment{Worker: m.Worker, Stop: true}})
	w.assignRows()
	return rowsToRerun
}

// onUndelivered handles the error of a message that could not be delivered. If the
// receiving process refuses connections or does not know the job, the workers behind
// this link are lost, and their rows run again.
func (w *jobWorkers) onUndelivered(l *messageLink, err error) {
	l.transport.logUnanswered(w.log, l.address, err)
	if !errors.Is(err, peer.ErrRefused) && refusalCode(err) != codeUnknownJob {
		return
	}
	for _, m := range w.owner.Workers() {
		if w.links[m.Worker] == l {
			w.loseWorker(m)
		}
	}
}

// recordCommitted notes parts that the store has recorded, and queues messages to the
// workers that wrote them.
func (w *jobWorkers) recordCommitted(parts []assign.PartProposal, now time.Time) {
	for _, p := range parts {
		if m := w.owner.MarkCommitted(p.Worker, p.Part, now); m != nil {
			w.queueAssignment(m)
		}
	}
	w.assignRows()
}

// assignRows assigns rows to workers with room, and queues a message to each of them.
func (w *jobWorkers) assignRows() {
	for _, m := range w.owner.AssignRows() {
		w.queueAssignment(m)
	}
}

// queueAssignment queues a message to a worker with the worker's assignment, unless such a message
// is queued already.
func (w *jobWorkers) queueAssignment(m *assign.Assignee) {
	if !w.queued[m] {
		w.queued[m] = true
		w.outgoing = append(w.outgoing, outgoingAssignment{to: w.links[m.Worker], of: m})
	}
}

// takeOutgoing returns the queued messages to workers and empties the queue.
func (w *jobWorkers) takeOutgoing() []outgoingAssignment {
	out := w.outgoing
	w.outgoing = nil
	clear(w.queued)
	for i, l := range out {
		if l.of != nil {
			out[i].body = w.owner.Assignment(l.of)
		}
	}
	return out
}

// namedModels is how many models a message to a client names at most. A server may have many
// names for one model.
const namedModels = 3

// noEngineReason returns a text for the client of a job that no engine runs: why an engine
// with the job's model does not run the job, or else which models the engines serve.
func (w *jobWorkers) noEngineReason() string {
	var served []string
	for _, e := range w.engines {
		if why := e.unusableReason(w.spec); why != "" {
			return " " + why
		}
		if e.up {
			for _, m := range e.info.Models {
				served = append(served, m.Name)
			}
		}
	}
	slices.Sort(served)
	switch served = slices.Compact(served); {
	case len(served) == 0:
		return ""
	case len(served) > namedModels:
		return " The engines serve only other models now."
	}
	return fmt.Sprintf(" Served now: %s.", strings.Join(served, ", "))
}

// locateRow returns which worker has a row or whether the row is done, or a refusal if the
// rows are not counted yet.
func (w *jobWorkers) locateRow(m getRow) any {
	if w.owner == nil {
		return uncountedRefusal(m.job)
	}
	return w.owner.LocateRow(m.row)
}

// rowDistribution returns how many rows each node has. Its cost does not depend on the
// number of rows. whole means that the whole input was read; before that, it returns a
// refusal.
func (w *jobWorkers) rowDistribution(job string, whole bool, nameOf func(address string) string, now time.Time) any {
	if w.owner == nil || !whole {
		return uncountedRefusal(job)
	}
	complete, all := w.owner.CountCompleteShards()
	a := &peerv1.LocateRowsResponse{Shards: clampInt32(all), Complete: clampInt32(complete)}
	for _, s := range w.owner.ProgressByNode(now) {
		a.Nodes = append(a.Nodes, &peerv1.NodeRows{Node: sanitizeUTF8(nameOf(s.Address)), Assigned: s.Assigned, Done: s.Done, Rate: s.Rate})
	}
	slices.SortStableFunc(a.Nodes, func(a, b *peerv1.NodeRows) int { return cmp.Compare(a.GetNode(), b.GetNode()) })
	return a
}

func uncountedRefusal(job string) *peer.Refusal {
	return refuse(codeUnknownJob, "the rows of job %s are not counted yet", job)
}
