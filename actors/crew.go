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

// A crew holds the engines, nodes and workers of a job, as the owner of the job sees
// them: which engines serve the model, which nodes are invited, which workers there
// are, and the next messages to the workers. It knows no actors: the job actor sends
// the messages.
type crew struct {
	spec       *rowmill.Spec
	log        *slog.Logger
	lost       prometheus.Counter   // counts the rows that lost workers had
	unassigned *prometheus.GaugeVec // rows that no worker has yet, by model
	shown      int64                // the rows of this job in unassigned
	engines    []engineView
	refused    map[string]error // by engine: why it cannot run the job
	owner      *assign.Owner    // nil until rows can run
	links      map[string]*link // by worker
	unwanted   map[string]bool  // workers that must drop their rows; each is logged once
	invites    invitations
	looked     time.Time // when checkWorkers last ran
	outgoing   []outgoing
	queued     map[*assign.Assignee]bool // workers that have a message in outgoing
}

// An outgoing message is an assignment on its way to a worker.
type outgoing struct {
	to   *link
	of   *assign.Assignee // takeOutgoing sets body to the present assignment of this worker; nil if body is set already
	body *assign.Assignment
}

func newCrew(spec rowmill.Spec, log *slog.Logger, m *metrics, engines []engineView) *crew {
	return &crew{
		spec: &spec, log: log, lost: m.returned.WithLabelValues("lost"), unassigned: m.unassigned, engines: engines,
		refused: make(map[string]error), links: make(map[string]*link), unwanted: make(map[string]bool), invites: newInvitations(), queued: make(map[*assign.Assignee]bool),
	}
}

// served reports whether an engine can run the job now.
func (w *crew) served() bool { return slices.ContainsFunc(w.engines, w.usable) }

func (w *crew) usable(e engineView) bool {
	_, serves := e.serves(w.spec)
	return serves && w.refused[e.name] == nil
}

// showFree updates the metric rowmill_rows_waiting, which counts rows without a worker.
// While the job ends, it counts no rows.
func (w *crew) showFree(open bool) {
	free := int64(0)
	if w.owner != nil && open {
		free = w.owner.Free()
	}
	if free != w.shown {
		w.unassigned.WithLabelValues(w.spec.Model.ID).Add(float64(free - w.shown))
		w.shown = free
	}
}

// uninvited returns the addresses of the nodes to invite now, "" for this node, and
// counts them as invited. Before the first rows are assigned it returns this node and
// all nodes that have engines: a node that cannot work now may have rows from an
// earlier owner. If leaves is true, this node starts no worker.
func (w *crew) uninvited(others []cluster.Member, leaves bool, now time.Time) (addresses []string) {
	could := make(map[string]bool)
	for _, e := range w.engines {
		if w.usable(e) {
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
		if w.owner.At(address) == nil && !(leaves && address == "") && w.invites.due(address, now) {
			addresses = append(addresses, address)
		}
	}
	return addresses
}

// noteAnswer notes the answer to an invite. It reports whether rows can be assigned
// now: all invites are answered, and all workers of earlier owners have reported.
func (w *crew) noteAnswer(address string, answer *invited, err error) (allReported bool) {
	w.invites.noteAnswer(address, err == nil && answer.Working && w.owner.At(address) == nil, code(err))
	return w.invites.allReported()
}

// group sets the groups of rows with the same prefix, which should run on the same
// worker, and the rows that are copies of other rows.
func (w *crew) group(groups []byte, copies *ingest.Copies) {
	w.owner.Group(groups)
	if copies != nil {
		w.owner.Copies(copies.Copies)
	}
}

// onHeartbeat processes a heartbeat. It returns the worker and the worker's new parts;
// nil if the worker must drop its rows. reply is the link to a worker that the crew
// does not know yet.
func (w *crew) onHeartbeat(h *assign.Heartbeat, reply *link, now time.Time) (*assign.Assignee, []assign.Proposal) {
	m, parts := w.owner.Hear(h, now)
	if known := w.links[h.Worker]; known != nil {
		reply = known
	}
	if m == nil {
		if !w.unwanted[h.Worker] { // the worker sends heartbeats until it gets the answer
			w.unwanted[h.Worker] = true
			w.log.Warn("the owner does not accept a worker, so the worker must drop its rows", "worker", h.Worker, "node", h.Address)
		}
		w.outgoing = append(w.outgoing, outgoing{to: reply, body: &assign.Assignment{Worker: h.Worker, Stop: true}})
		return nil, nil
	}
	w.links[h.Worker] = reply
	w.invites.heard(h.Address)
	return m, parts
}

// noteRefusals notes the engines that cannot run the job, from a heartbeat. If no
// engine can run the job any more, it returns the reason of the last refusal; otherwise
// it returns an empty text.
func (w *crew) noteRefusals(h *assign.Heartbeat) string {
	for engine, why := range h.Refused {
		for _, e := range w.engines {
			if e.address != h.Address || e.local != engine || w.refused[e.name] != nil {
				continue
			}
			w.refused[e.name] = errors.New(why)
			if !w.served() {
				return why
			}
		}
	}
	return ""
}

// checkWorkers finds silent workers and handles them.
func (w *crew) checkWorkers(lease, patience time.Duration, now time.Time) {
	if !w.looked.IsZero() && now.Sub(w.looked) > 2*heartbeatInterval { // this process was suspended, not the workers
		w.owner.Excuse(now.Add(-heartbeatInterval))
	}
	w.looked = now
	for _, m := range w.owner.Silent(now.Add(-lease)) {
		w.lose(m)
	}
	for _, m := range w.owner.Stranded(patience, now) {
		w.ban(m, now)
	}
	for _, m := range w.owner.Silent(now.Add(-2 * heartbeatInterval)) {
		w.tell(m) // if the worker has ended, the message fails, and then the worker counts as lost
	}
}

// ban gives the rows of a worker to other workers and does not invite its node for
// a while.
func (w *crew) ban(m *assign.Assignee, now time.Time) {
	w.invites.ban(m.Address, now)
	w.lose(m)
}

// lose gives the rows of a lost worker to other workers.
func (w *crew) lose(m *assign.Assignee) {
	again := w.removeWorker(m)
	w.lost.Add(float64(again))
	w.log.Warn("worker lost", "worker", m.Worker, "node", m.Address, "rows", again)
}

// removeWorker removes a worker, and returns how many of its rows run again.
func (w *crew) removeWorker(m *assign.Assignee) (again int64) {
	again = w.owner.Remove(m)
	w.outgoing = append(w.outgoing, outgoing{to: w.links[m.Worker], body: &assign.Assignment{Worker: m.Worker, Stop: true}})
	w.serve()
	return again
}

// onUndelivered handles the error of a message that could not be delivered. If the process
// refuses connections or does not know the job, its workers and their rows are lost.
func (w *crew) onUndelivered(l *link, err error) {
	l.transport.unanswered(w.log, l.address, err)
	if !errors.Is(err, peer.ErrRefused) && code(err) != codeUnknownJob {
		return
	}
	for _, m := range w.owner.Workers() {
		if w.links[m.Worker] == l {
			w.lose(m)
		}
	}
}

// noteCommitted notes parts that the store has recorded, and tells their workers.
func (w *crew) noteCommitted(parts []assign.Proposal, now time.Time) {
	for _, p := range parts {
		if m := w.owner.Committed(p.Worker, p.Part, now); m != nil {
			w.tell(m)
		}
	}
	w.serve()
}

// serve assigns rows to workers with room, and queues a message to each of them.
func (w *crew) serve() {
	for _, m := range w.owner.Serve() {
		w.tell(m)
	}
}

// tell queues a message with the assignment of a worker.
func (w *crew) tell(m *assign.Assignee) {
	if !w.queued[m] {
		w.queued[m] = true
		w.outgoing = append(w.outgoing, outgoing{to: w.links[m.Worker], of: m})
	}
}

// takeOutgoing returns the outgoing messages to send now.
func (w *crew) takeOutgoing() []outgoing {
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

// namedModels is how many models a message names.
const namedModels = 5

// trouble returns the reason why an engine with the job's model does not run it, or
// else the models of the engines.
func (w *crew) trouble() string {
	var served []string
	for _, e := range w.engines {
		if why := e.trouble(w.spec); why != "" {
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
		return fmt.Sprintf(" Served now: %s and %d more.", strings.Join(served[:namedModels], ", "), len(served)-namedModels)
	}
	return fmt.Sprintf(" Served now: %s.", strings.Join(served, ", "))
}

// where answers a question about one row: which worker has the row, or whether it is
// done.
func (w *crew) where(m getRow) any {
	if w.owner == nil {
		return notCounted(m.job)
	}
	return w.owner.Where(m.row)
}

// rowDistribution returns how many rows each node has. The cost does not grow with
// the number of rows. whole means that the whole input was read.
func (w *crew) rowDistribution(job string, whole bool, nameOf func(address string) string, now time.Time) any {
	if w.owner == nil || !whole {
		return notCounted(job)
	}
	complete, all := w.owner.Complete()
	a := &peerv1.LocateRowsResponse{Shards: clampInt32(all), Complete: clampInt32(complete)}
	for _, s := range w.owner.Shares(now) {
		a.Nodes = append(a.Nodes, &peerv1.NodeRows{Node: valid(nameOf(s.Address)), Assigned: s.Assigned, Done: s.Done, Rate: s.Rate})
	}
	slices.SortStableFunc(a.Nodes, func(a, b *peerv1.NodeRows) int { return cmp.Compare(a.GetNode(), b.GetNode()) })
	return a
}

func notCounted(job string) *peer.Refusal {
	return refuse(codeUnknownJob, "the rows of job %s are not counted yet", job)
}
