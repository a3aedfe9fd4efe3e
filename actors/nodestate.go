package actors

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill/cluster"
)

// This half of the node speaks with the other nodes about themselves.

// stateInterval is the time between looks at whether the others should hear
// of a changed load, which they only show; engines that come and go are told at
// once. Each look wakes a process that may have nothing else to do.
const stateInterval = 5 * time.Second

// loadStep is the least change of an engine's load that the others hear of, as
// a part of its window: a job keeps its engines full, and rows that come and go
// would have each node tell all others of it without end.
const loadStep = 0.25

func (n *node) onStateDue(c actor.Context) {
	if n.cfg.Peers == nil {
		return
	}
	n.timers.after(c, stateInterval, stateDue{})
	n.publishState()
}

// publishState says how this node is, where that has changed by enough.
func (n *node) publishState() {
	s := nodeState{Version: n.cfg.Version, Since: n.system.started, Draining: n.draining, Jobs: len(n.jobs)}
	for _, v := range n.engines {
		if !v.up {
			continue
		}
		limit, inFlight, _ := n.berths[v.name].load()
		s.Engines = append(s.Engines, engineState{
			Name: v.name, Kind: v.info.Kind, Simulated: v.info.Simulated, Window: limit, InFlight: inFlight, Models: v.info.Models,
		})
	}
	n.system.state.Store(&s)
	if n.cfg.Peers == nil {
		return
	}
	var said nodeState
	if json.Unmarshal([]byte(n.said), &said) == nil && s.near(said) { // at first nothing was said
		return
	}
	doc, err := json.Marshal(s)
	if err != nil {
		n.log.Error("encode state", "err", err)
		return
	}
	n.said = string(doc)
	if err := n.cfg.Peers.SetState(doc); err != nil {
		n.log.Error("tell the other nodes about this one", "err", err)
	}
}

// near reports whether others who know said need not hear of s: nothing but a
// little load has changed.
func (s nodeState) near(said nodeState) bool {
	return s.Draining == said.Draining && s.Jobs == said.Jobs && slices.EqualFunc(s.Engines, said.Engines, engineState.near)
}

func (e engineState) near(said engineState) bool {
	step := loadStep * float64(said.Window)
	far := func(now, before int) bool { return math.Abs(float64(now-before)) > step }
	return e.Name == said.Name && e.Kind == said.Kind && e.Simulated == said.Simulated && slices.Equal(e.Models, said.Models) &&
		(e.InFlight == 0) == (said.InFlight == 0) && !far(e.InFlight, said.InFlight) && !far(e.Window, said.Window)
}

// onMembersChanged looks at the other nodes anew. When one has gone, its jobs
// may be orphans.
func (n *node) onMembersChanged(c actor.Context) {
	var remote []engineView
	var here []string
	for _, m := range n.cfg.Peers.Members() {
		if m.Self {
			continue
		}
		here = append(here, m.ID)
		if m.Protocol != Protocol || !m.Engines {
			continue
		}
		if s, ok := readState(m); ok {
			remote = append(remote, s.views(m)...)
		}
	}
	gone := slices.ContainsFunc(n.members, func(id string) bool { return !slices.Contains(here, id) })
	n.members = here
	if !slices.EqualFunc(n.remote, remote, sameView) {
		n.remote = remote
		n.tellJobs(c)
	}
	if gone {
		n.onScanDue(c)
	}
}

func sameView(a, b engineView) bool {
	return a.name == b.name && a.address == b.address && a.up == b.up && sameModels(a.info, b.info)
}

// others are the members but this one that satisfy ok.
func (n *node) others(ok func(cluster.Member) bool) []cluster.Member {
	if n.cfg.Peers == nil {
		return nil
	}
	return slices.DeleteFunc(n.cfg.Peers.Members(), func(m cluster.Member) bool {
		return m.Self || m.Protocol != Protocol || !ok(m)
	})
}

// tellAll sends a hint to every other node.
func (n *node) tellAll(c actor.Context, h hint) {
	for _, m := range n.others(func(cluster.Member) bool { return true }) {
		n.tellOne(c, m, h)
	}
}

// tellNext sends the node that stands first for a job a hint that nobody owns
// it.
func (n *node) tellNext(c actor.Context, job string) {
	owners := n.others(func(m cluster.Member) bool { return m.Owns })
	if len(owners) == 0 {
		return
	}
	first := slices.MaxFunc(owners, func(a, b cluster.Member) int {
		if rendezvous(job, a.ID) < rendezvous(job, b.ID) {
			return -1
		}
		return 1
	})
	n.tellOne(c, first, hint{Job: job})
}

func (n *node) tellOne(c actor.Context, m cluster.Member, h hint) {
	n.work.run(c, func(ctx context.Context) any {
		ctx, cancel := context.WithTimeout(ctx, carryTimeout)
		defer cancel()
		if err := n.system.post.ask(ctx, m.Peer, kindHint, h.Job, 0, h, nil); err != nil {
			logUnanswered(n.log, m.Peer, err)
		}
		return nil
	})
}
