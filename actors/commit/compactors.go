package commit

import (
	"maps"
	"slices"
)

// compactionsEach is the number of compactions of a job that a node has at a time: one to work
// on, and the next.
const compactionsEach = 2

// Compactors tracks the nodes that run compactions of a job, by address; the owner's own node
// is "". A node helps if it has written a part of the job, so the compactions are spread like
// the rows. While no node has written a part, the owner's node runs the compactions. The zero
// value is ready to use.
type Compactors struct {
	busy  map[string]int // by address: number of compactions
	alone bool           // the owner's node helps only because there is no other
}

// Wrote notes that a node has written a part.
func (h *Compactors) Wrote(address string) {
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

// Others reports whether a node other than the owner's helps.
func (h *Compactors) Others() bool {
	for address := range h.busy {
		if address != "" {
			return true
		}
	}
	return false
}

// Take chooses the node with the fewest compactions for the next compaction. ok is false if all
// nodes have compactionsEach compactions.
func (h *Compactors) Take() (address string, ok bool) {
	if len(h.busy) == 0 {
		h.Wrote("")
		h.alone = true
	}
	nodes := slices.Sorted(maps.Keys(h.busy))
	address = slices.MinFunc(nodes, func(a, b string) int { return h.busy[a] - h.busy[b] })
	if h.busy[address] >= compactionsEach {
		return "", false
	}
	h.busy[address]++
	return address, true
}

// Ended notes that a node no longer has a compaction.
func (h *Compactors) Ended(address string) {
	if h.busy[address] > 0 {
		h.busy[address]--
	}
}

// Lost removes a node until it writes another part.
func (h *Compactors) Lost(address string) { delete(h.busy, address) }
