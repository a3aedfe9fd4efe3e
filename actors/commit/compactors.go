package commit

import (
	"maps"
	"slices"
)

// compactionsPerNode is the maximum number of compactions of a job that a node has at a
// time: one that runs, and one that waits.
const compactionsPerNode = 2

// CompactionNodes chooses nodes for the compactions of a job. A node takes part if it has
// written a part of the job, so the compactions are spread over the nodes like the
// rows. While no node has written a part, the owner's node runs the compactions. Nodes
// are named by address; the address of the owner's own node is "". The zero value is
// ready to use.
type CompactionNodes struct {
	busy  map[string]int // by address of a node that takes part: number of its compactions
	alone bool           // the owner's node takes part only because no other node does
}

// AddNode records that the node at address has written a part, so that it takes part in
// compactions.
func (h *CompactionNodes) AddNode(address string) {
	if h.busy == nil {
		h.busy = make(map[string]int)
	}
	if _, helps := h.busy[address]; !helps {
		h.busy[address] = 0
	}
	if h.alone && len(h.busy) > 1 {
		delete(h.busy, "")
	}
	h.alone = false
}

// HasOtherNodes reports whether a node other than the owner's node takes part.
func (h *CompactionNodes) HasOtherNodes() bool {
	for address := range h.busy {
		if address != "" {
			return true
		}
	}
	return false
}

// AcquireNode returns the node that should run the next compaction: the node with the fewest
// compactions. ok is false if each node has compactionsPerNode compactions.
func (h *CompactionNodes) AcquireNode() (address string, ok bool) {
	if len(h.busy) == 0 {
		h.AddNode("")
		h.alone = true
	}
	nodes := slices.Sorted(maps.Keys(h.busy))
	address = slices.MinFunc(nodes, func(a, b string) int { return h.busy[a] - h.busy[b] })
	if h.busy[address] >= compactionsPerNode {
		return "", false
	}
	h.busy[address]++
	return address, true
}

// ReleaseNode records that a compaction on the node at address has ended.
func (h *CompactionNodes) ReleaseNode(address string) {
	if h.busy[address] > 0 {
		h.busy[address]--
	}
}

// RemoveNode removes a node until it writes another part.
func (h *CompactionNodes) RemoveNode(address string) { delete(h.busy, address) }
