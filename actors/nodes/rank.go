package nodes

import (
	"hash/fnv"

	"github.com/rowmill/rowmill/cluster"
)

// Rank is how many of the members that own jobs stand before self for a job, by
// rendezvous hashing (Thaler and Ravishankar, "Using Name-Based Mappings to
// Increase Hit Rates", 1998).
func Rank(job, self string, members []cluster.Member) (before int) {
	mine := rendezvous(job, self)
	for _, m := range members {
		if m.Owns && m.ID != self && rendezvous(job, m.ID) > mine {
			before++
		}
	}
	return before
}

// First is the member that owns jobs and stands before all others for one; ok
// is false where none owns any.
func First(job string, members []cluster.Member) (first cluster.Member, ok bool) {
	for _, m := range members {
		if m.Owns && (!ok || rendezvous(job, m.ID) > rendezvous(job, first.ID)) {
			first, ok = m, true
		}
	}
	return first, ok
}

func rendezvous(job, member string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(member + "\x00" + job)) // never fails
	x := h.Sum64()
	x ^= x >> 32 // FNV leaves the high bits of short keys alike
	x *= 0xd6e8feb86659fd93
	return x ^ x>>32
}
