package actors

import (
	"slices"
	"time"

	"github.com/rowmill/rowmill/actors/nodes"
	"github.com/rowmill/rowmill/actors/poison"
	"github.com/rowmill/rowmill/cluster"
	"github.com/rowmill/rowmill/store"
)

// clusterView tracks the other nodes of the cluster, as this node sees them. It decides
// when this node may claim a job, and whether the process of an earlier owner has
// ended. It knows no actors.
type clusterView struct {
	peers   Peers           // nil on a single node
	node    string          // name of this node
	id      string          // ID of this process; no other process has it
	began   time.Time       // start of this process
	members map[string]bool // IDs of the other nodes that are members now
	heard   map[string]bool // IDs of all other nodes that this process has ever seen
}

func newClusterView(peers Peers, node, id string) *clusterView {
	if peers != nil {
		id = peers.Self().ID
	}
	return &clusterView{peers: peers, node: node, id: id, began: time.Now(), heard: make(map[string]bool)}
}

// update sets the present members, and reports whether a node has left.
func (n *clusterView) update(all []cluster.Member) (gone bool) {
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

// rank returns how many members come before this node in the order in which nodes claim
// a job.
func (n *clusterView) rank(job string) int {
	if n.peers == nil {
		return 0
	}
	return nodes.Rank(job, n.peers.Self().ID, n.peers.Members())
}

// claimStagger is how long a node waits before it claims an orphan, for each node
// that comes earlier in the job's order of nodes.
const claimStagger = 300 * time.Millisecond

// claimDelay returns how long this node waits before it claims a job without an owner, so
// that other nodes can claim the job first. If a process has ended while it ran only
// this job, the node waits longer in two cases. First, if this process is young: only a
// process that has run for some time shows whether the job or the machine was at fault.
// Second, if the ended process ran on this node, and another node can claim the job.
func (n *clusterView) claimDelay(o store.OrphanJob, now time.Time) time.Duration {
	delay := time.Duration(n.rank(o.JobID)) * claimStagger
	alone := func(a store.Claim) bool { return a.Alone && a.Process != n.id }
	here := func(a store.Claim) bool { return alone(a) && a.Node == n.node }
	young := now.Sub(n.began) < poison.ControlWait
	if young && slices.ContainsFunc(o.Claims, alone) || slices.ContainsFunc(o.Claims, here) && n.anotherOwns() {
		delay += poison.ControlWait
	}
	return delay
}

// anotherOwns reports whether another node can own jobs.
func (n *clusterView) anotherOwns() bool {
	return n.peers != nil && slices.ContainsFunc(n.peers.Members(), func(m cluster.Member) bool { return m.Owns && !m.Self })
}

// In a cluster with more than scanners nodes, each node searches less often for jobs
// without an owner. All nodes together then send the store as many requests as that
// number of nodes would. The interval grows at most scanStretch times, because a
// waiting account must ask again before its wait expires (Config.slotConfig).
const (
	scanners    = 250
	scanStretch = 4
)

// scanInterval returns the time between two searches of this node for jobs without an
// owner; interval is Config.Ownership.ScanInterval.
func (n *clusterView) scanInterval(interval time.Duration) time.Duration {
	return scanIntervalOf(interval, 1+len(n.members))
}

func scanIntervalOf(interval time.Duration, members int) time.Duration {
	return interval * time.Duration(min(max(members, scanners), scanStretch*scanners)) / scanners
}

// ownClaim returns the entry for this node in the record of a job that the node claims.
// alone means that the node runs no other job that has made no progress yet.
func (n *clusterView) ownClaim(alone bool) store.Claim {
	return store.Claim{Node: n.node, Process: n.id, Alone: alone}
}

// isOwnerMissing reports whether the process of an owner is neither this process nor a member
// of the cluster. The process may have ended.
func (n *clusterView) isOwnerMissing(a store.Claim) bool {
	return a.Process != n.id && (n.peers == nil ||
		!slices.ContainsFunc(n.peers.Members(), func(m cluster.Member) bool { return m.ID == a.Process }))
}

// hasOwnerEnded reports whether the process of an owner has ended, as far as this node can
// know: its node runs another process, or this node has seen the process before and now
// sees other members but not that process. A node that has just started has seen no
// process end, and a node that sees no other member may be cut off from the network.
func (n *clusterView) hasOwnerEnded(a store.Claim) bool {
	if !n.isOwnerMissing(a) || n.peers == nil {
		return n.isOwnerMissing(a)
	}
	another := slices.ContainsFunc(n.peers.Members(), func(m cluster.Member) bool { return m.Node == a.Node })
	return another || n.heard[a.Process] && len(n.members) > 0
}
