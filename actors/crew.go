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

// A crew is who works for a job, as the owner of the job sees it: which engines
// serve the model, which nodes are invited, which workers there are and what each of
// them is to be told. It knows no actors: the job delivers its letters.
type crew struct {
	spec     *rowmill.Spec
	log      *slog.Logger
	lost     prometheus.Counter   // rows that lost workers had
	undealt  *prometheus.GaugeVec // rows that nobody has, by model
	shown    int64                // of the job, by undealt
	engines  []engineView
	refused  map[string]error // by engine: why it cannot run the job
	owner    *assign.Owner    // nil until rows can run
	links    map[string]*link // by worker
	unwanted map[string]bool  // workers that were told to let go
	invites  invitations
	looked   time.Time // when it was last looked who is silent
	letters  []letter
	told     map[*assign.Assignee]bool // by one of the letters
}

// A letter is an assignment on its way to a worker.
type letter struct {
	to   *link
	of   *assign.Assignee // gets its assignment as it is when the letter is taken; nil where body is set
	body *assign.Assignment
}

func newCrew(spec rowmill.Spec, log *slog.Logger, m *metrics, engines []engineView) *crew {
	return &crew{
		spec: &spec, log: log, lost: m.returned.WithLabelValues("lost"), undealt: m.undealt, engines: engines,
		refused: make(map[string]error), links: make(map[string]*link), unwanted: make(map[string]bool), invites: newInvitations(), told: make(map[*assign.Assignee]bool),
	}
}

// served reports whether an engine can run the job now.
func (w *crew) served() bool { return slices.ContainsFunc(w.engines, w.usable) }

func (w *crew) usable(e engineView) bool {
	_, serves := e.serves(w.spec)
	return serves && w.refused[e.name] == nil
}

// showFree has the metrics tell how many rows nobody has; none of a job that ends.
func (w *crew) showFree(open bool) {
	free := int64(0)
	if w.owner != nil && open {
		free = w.owner.Free()
	}
	if free != w.shown {
		w.undealt.WithLabelValues(w.spec.Model.ID).Add(float64(free - w.shown))
		w.shown = free
	}
}

// uninvited are the addresses of the nodes that are to be invited now, "" for this
// one, which then counts as done. Before the first rows are assigned those are all:
// one that cannot work now may have rows from before. leaves says that this node is not to
// begin anything.
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

// answered takes in the answer to an invite. It reports whether rows may be assigned
// as far as invites go.
func (w *crew) answered(address string, answer *invited, err error) (gathered bool) {
	w.invites.answered(address, err == nil && answer.Working && w.owner.At(address) == nil, code(err))
	return w.invites.gathered()
}

// group takes in which rows are dealt by group, and which are copies of others.
func (w *crew) group(groups []byte, copies *ingest.Copies) {
	w.owner.Group(groups)
	if copies != nil {
		w.owner.Copies(copies.Copies)
	}
}

// hear takes in a heartbeat. It returns its worker and the parts in it that are new;
// no worker where that has to let go of its rows. reply is how to reach it.
func (w *crew) hear(h *assign.Heartbeat, reply *link, now time.Time) (*assign.Assignee, []assign.Proposal) {
	m, parts := w.owner.Hear(h, now)
	if known := w.links[h.Worker]; known != nil {
		reply = known
	}
	if m == nil {
		if !w.unwanted[h.Worker] { // it reports until it has heard
			w.unwanted[h.Worker] = true
			w.log.Warn("worker has to let go of its rows", "worker", h.Worker, "node", h.Address)
		}
		w.letters = append(w.letters, letter{to: reply, body: &assign.Assignment{Worker: h.Worker, Stop: true}})
		return nil, nil
	}
	w.links[h.Worker] = reply
	w.invites.heard(h.Address)
	return m, parts
}

// refuses notes which engines cannot run the job, as a heartbeat says. It returns why
// the last one cannot; empty while there are others.
func (w *crew) refuses(h *assign.Heartbeat) string {
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

// look finds out who is silent.
func (w *crew) look(lease, patience time.Duration, now time.Time) {
	if !w.looked.IsZero() && now.Sub(w.looked) > 2*heartbeatInterval { // it was us who stood still
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
		w.tell(m) // whether anybody listens
	}
}

// ban gives the rows of a worker to others and leaves its node out for a while.
func (w *crew) ban(m *assign.Assignee, now time.Time) {
	w.invites.ban(m.Address, now)
	w.lose(m)
}

// lose gives the rows of a worker to others.
func (w *crew) lose(m *assign.Assignee) {
	again := w.part(m)
	w.lost.Add(float64(again))
	w.log.Warn("worker lost", "worker", m.Worker, "node", m.Address, "rows", again)
}

// part lets a worker go, and returns how many rows run again.
func (w *crew) part(m *assign.Assignee) (again int64) {
	again = w.owner.Remove(m)
	w.letters = append(w.letters, letter{to: w.links[m.Worker], body: &assign.Assignment{Worker: m.Worker, Stop: true}})
	w.serve()
	return again
}

// undelivered learns from a letter that did not arrive: where nobody listens any
// more, the process is gone with all that it had.
func (w *crew) undelivered(l *link, err error) {
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

// committed takes in which parts are recorded.
func (w *crew) committed(parts []assign.Proposal, now time.Time) {
	for _, p := range parts {
		if m := w.owner.Committed(p.Worker, p.Part, now); m != nil {
			w.tell(m)
		}
	}
	w.serve()
}

// serve assigns rows, and tells whoever has others now.
func (w *crew) serve() {
	for _, m := range w.owner.Serve() {
		w.tell(m)
	}
}

// tell has a worker told its assignment.
func (w *crew) tell(m *assign.Assignee) {
	if !w.told[m] {
		w.told[m] = true
		w.letters = append(w.letters, letter{to: w.links[m.Worker], of: m})
	}
}

// take returns the letters to be sent now.
func (w *crew) take() []letter {
	out := w.letters
	w.letters = nil
	clear(w.told)
	for i, l := range out {
		if l.of != nil {
			out[i].body = w.owner.Assignment(l.of)
		}
	}
	return out
}

// namedModels is how many models a message has room for.
const namedModels = 5

// trouble says why an engine that has the job's model does not run it, or which models
// the engines have.
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

// where answers where a row is.
func (w *crew) where(m whereIs) any {
	if w.owner == nil {
		return notCounted(m.job)
	}
	return w.owner.Where(m.row)
}

// whereabouts answers from the book where the rows are: it costs the same however many
// there are.
func (w *crew) whereabouts(job string, whole bool, nameOf func(address string) string, now time.Time) any {
	if w.owner == nil || !whole {
		return notCounted(job)
	}
	complete, all := w.owner.Complete()
	a := &peerv1.LocateRowsResponse{Shards: small(all), Complete: small(complete)}
	for _, s := range w.owner.Shares(now) {
		a.Nodes = append(a.Nodes, &peerv1.NodeRows{Node: valid(nameOf(s.Address)), Assigned: s.Assigned, Done: s.Done, Rate: s.Rate})
	}
	slices.SortStableFunc(a.Nodes, func(a, b *peerv1.NodeRows) int { return cmp.Compare(a.GetNode(), b.GetNode()) })
	return a
}

func notCounted(job string) *peer.Refusal {
	return refuse(codeUnknownJob, "the rows of job %s are not counted yet", job)
}
