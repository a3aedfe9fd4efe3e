package nodes

import (
	"hash/fnv"

	"github.com/rowmill/rowmill/cluster"
)

// Rank returns how many members come before the member self for a job, among the
// members that own jobs. The order of the members for each job comes from rendezvous
// hashing (Thaler and Ravishankar, "Using Name-Based Mappings to Increase Hit Rates",
// 1998).
func Rank(job, self string, members []cluster.Member) (before int) {
	mine := rendezvous(job, self)
	for _, m := range members {
		if m.Owns && m.ID != self && rendezvous(job, m.ID) > mine {
			before++
		}
	}
	return before
}

// FirstRanked returns the member that comes first for a job, among the members that own jobs.
// ok is false if no member owns jobs.
func FirstRanked(job string, members []cluster.Member) (first cluster.Member, ok bool) {
	for _, m := range members {
		if m.Owns && (!ok || rendezvous(job, m.ID) > rendezvous(job, first.ID)) {
			first, ok = m, true
		}
	}
	return first, ok
}

// rendezvous returns a pseudorandom number for a job and a member. The member with the
// largest number comes first for the job.
func rendezvous(job, member string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(member + "\x00" + job)) // never fails
	x := h.Sum64()
	x ^= x >> 32 // with short keys FNV leaves the high bits almost equal
	x *= 0xd6e8feb86659fd93
	return x ^ x>>32
}
