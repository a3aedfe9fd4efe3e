package actors

import (
	"time"

	"github.com/rowmill/rowmill/actors/nodes"
	"github.com/rowmill/rowmill/actors/storage"
	"github.com/rowmill/rowmill/cluster"
)

// A reach is whether a node can use the bucket, and whether others can instead. It
// knows no actors.
type reach struct {
	storage *storage.Watch
	others  func() []cluster.Member
	since   time.Time // since when others that own jobs reach the bucket, and this node does not
}

// judge decides whether the jobs of this node should be others', because it alone cannot
// use the bucket.
func (r *reach) judge(patience time.Duration) {
	_, away := r.storage.Objects()
	switch {
	case !away || len(nodes.Reaching(r.others())) == 0:
		r.since = time.Time{}
	case r.since.IsZero():
		r.since = time.Now()
	}
	r.storage.Leave(r.leaves() && time.Since(r.since) >= patience)
}

// leaves reports whether others can do what this node cannot.
func (r *reach) leaves() bool { return !r.since.IsZero() }

// next is the other node that stands first for a job; ok is false where there is none.
func (r *reach) next(job string) (first cluster.Member, ok bool) {
	others := r.others()
	if r.leaves() {
		others = nodes.Reaching(others)
	}
	return nodes.First(job, others)
}

// objects is what the other nodes are told of the bucket.
func (r *reach) objects() string {
	if _, away := r.storage.Objects(); away {
		return nodes.Away
	}
	return nodes.Reached
}
