package commit

import (
	"maps"
	"slices"
)

// errandsEach is the number of errands of a job that a node has at a time: one to work
// on, and the next.
const errandsEach = 2

// Helpers tracks the nodes that run errands of a job, by address; the owner's own node
// is "". A node helps if it has written a part of the job, so the errands are spread like
// the rows. While no node has written a part, the owner's node runs the errands. The zero
// value is ready to use.
type Helpers struct {
	busy  map[string]int // by address: number of errands
	alone bool           // the owner's node helps only because there is no other
}

// Wrote notes that a node has written a part.
func (h *Helpers) Wrote(address string) {
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
func (h *Helpers) Others() bool {
	for address := range h.busy {
		if address != "" {
			return true
		}
	}
	return false
}

// Take chooses the node with the fewest errands for the next errand. ok is false if all
// nodes have errandsEach errands.
func (h *Helpers) Take() (address string, ok bool) {
	if len(h.busy) == 0 {
		h.Wrote("")
		h.alone = true
	}
	nodes := slices.Sorted(maps.Keys(h.busy))
	address = slices.MinFunc(nodes, func(a, b string) int { return h.busy[a] - h.busy[b] })
	if h.busy[address] >= errandsEach {
		return "", false
	}
	h.busy[address]++
	return address, true
}

// Ended notes that a node no longer has an errand.
func (h *Helpers) Ended(address string) {
	if h.busy[address] > 0 {
		h.busy[address]--
	}
}

// Lost removes a node until it writes another part.
func (h *Helpers) Lost(address string) { delete(h.busy, address) }
