package commit

import (
	"maps"
	"slices"
)

// errandsEach is how many errands of a job a node has at a time: one that it works
// on, and the next.
const errandsEach = 2

// Helpers are the nodes that run errands of a job, by address, "" for the owner's own:
// those that have written parts of it, so that the work is spread as the rows are.
// The zero value has none, which leaves the owner.
type Helpers struct {
	busy  map[string]int // errands of those that help
	alone bool           // the owner's node helps only because nobody else does
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

// Others reports whether any node beside the owner's helps.
func (h *Helpers) Others() bool {
	for address := range h.busy {
		if address != "" {
			return true
		}
	}
	return false
}

// Take chooses the node for the next errand: the one that has the fewest. ok is false
// where all have as many as they may.
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

// Ended notes that an errand is no longer with a node.
func (h *Helpers) Ended(address string) {
	if h.busy[address] > 0 {
		h.busy[address]--
	}
}

// Lost leaves a node out until it writes another part.
func (h *Helpers) Lost(address string) { delete(h.busy, address) }
