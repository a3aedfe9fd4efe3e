package actors

import (
	"time"

	"github.com/rowmill/rowmill/actors/nodes"
	"github.com/rowmill/rowmill/actors/storage"
	"github.com/rowmill/rowmill/cluster"
)

// A reach decides whether a node can use the bucket, and whether other nodes can
// use it instead. It knows no actors.
type reach struct {
	storage *storage.Watch
	others  func() []cluster.Member
	since   time.Time // since when other nodes that own jobs reach the bucket, and this node does not
}

// judge decides whether this node should give its jobs to others, because only this
// node cannot use the bucket.
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

// leaves reports whether other nodes can use the bucket and this node cannot.
func (r *reach) leaves() bool { return !r.since.IsZero() }

// next returns the first of the other nodes for a job; ok is false if there is
// none.
func (r *reach) next(job string) (first cluster.Member, ok bool) {
	others := r.others()
	if r.leaves() {
		others = nodes.Reaching(others)
	}
	return nodes.First(job, others)
}

// objects returns the state of the bucket for the other nodes.
func (r *reach) objects() string {
	if _, away := r.storage.Objects(); away {
		return nodes.Away
	}
	return nodes.Reached
}
