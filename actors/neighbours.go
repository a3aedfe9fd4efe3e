package actors

import (
	"slices"
	"time"

	"github.com/rowmill/rowmill/actors/nodes"
	"github.com/rowmill/rowmill/cluster"
	"github.com/rowmill/rowmill/store"
)

// neighbours are the other nodes of the cluster, as one of them sees them: who stands
// first for what, and whose process has ended. It knows no actors.
type neighbours struct {
	peers   Peers           // nil on a node that stands alone
	node    string          // name of this node
	id      string          // of this process, which none before or after it has
	members map[string]bool // ids of the other nodes
	heard   map[string]bool // ids of all that ever were
}

func newNeighbours(peers Peers, node, id string) *neighbours {
	if peers != nil {
		id = peers.Self().ID
	}
	return &neighbours{peers: peers, node: node, id: id, heard: make(map[string]bool)}
}

// look takes in who is there, and reports whether somebody has gone.
func (n *neighbours) look(all []cluster.Member) (gone bool) {
	here := make(map[string]bool, len(all))
	for _, m := range all {
		if !m.Self {
			here[m.ID], n.heard[m.ID] = true, true
		}
	}
	for id := range n.members {
		gone = gone || !here[id]
	}
	n.members = here
	return gone
}

// rank is how many members stand before this one for a job.
func (n *neighbours) rank(job string) int {
	if n.peers == nil {
		return 0
	}
	return nodes.Rank(job, n.peers.Self().ID, n.peers.Members())
}

// A node of a large cluster looks less often for jobs that nobody owns, so that
// all of them together ask the store no more than scanners nodes would, up to
// scanStretch times as many nodes: who waits for a place must be heard again
// before it counts as gone (Config.places).
const (
	scanners    = 250
	scanStretch = 4
)

// scanInterval is the time between two searches of this node, if one alone searches
// with that interval.
func (n *neighbours) scanInterval(interval time.Duration) time.Duration {
	return scanIntervalOf(interval, 1+len(n.members))
}

func scanIntervalOf(interval time.Duration, members int) time.Duration {
	return interval * time.Duration(min(max(members, scanners), scanStretch*scanners)) / scanners
}

// adopter is this node in the record of a job that it claims.
func (n *neighbours) adopter(alone bool) store.Adopter {
	return store.Adopter{Node: n.node, Process: n.id, Alone: alone}
}

// missed reports whether the process of an owner is not there: neither this one, nor
// one that others hear of. It may have ended.
func (n *neighbours) missed(a store.Adopter) bool {
	return a.Process != n.id && (n.peers == nil ||
		!slices.ContainsFunc(n.peers.Members(), func(m cluster.Member) bool { return m.ID == a.Process }))
}

// ended reports whether the process of an owner has ended for all that can be known:
// its node runs another, or it was heard here before and is missed while others are
// heard. Who has just begun has heard of nobody's end, and who hears nobody may be cut
// off.
func (n *neighbours) ended(a store.Adopter) bool {
	if !n.missed(a) || n.peers == nil {
		return n.missed(a)
	}
	another := slices.ContainsFunc(n.peers.Members(), func(m cluster.Member) bool { return m.Node == a.Node })
	return another || n.heard[a.Process] && len(n.members) > 0
}
