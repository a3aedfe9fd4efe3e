package actors

import (
	"time"

	"github.com/rowmill/rowmill/actors/nodes"
	"github.com/rowmill/rowmill/actors/storage"
	"github.com/rowmill/rowmill/cluster"
)

// A reach knows whether this node can use the bucket, and whether other nodes can. It
// decides whether this node gives its jobs to them. It knows no actors.
type reach struct {
	storage *storage.Watch
	others  func() []cluster.Member
	since   time.Time // since when other nodes that own jobs can use the bucket and this node cannot; zero if that is not so now
}

// judge decides whether this node should give its jobs to other nodes: other nodes could
// use the bucket for at least patience, and this node could not.
func (r *reach) judge(patience time.Duration) {
	_, away := r.storage.Objects()
	switch {
	case !away || len(nodes.Reaching(r.others())) == 0:
		r.since = time.Time{}
	case r.since.IsZero():
		r.since = time.Now()
	}
	r.storage.Leave(r.cutOff() && time.Since(r.since) >= patience)
}

// cutOff reports whether other nodes can use the bucket and this node cannot.
func (r *reach) cutOff() bool { return !r.since.IsZero() }

// next returns the first of the other nodes in the job's order of nodes; ok is false if
// there is none.
func (r *reach) next(job string) (first cluster.Member, ok bool) {
	others := r.others()
	if r.cutOff() {
		others = nodes.Reaching(others)
	}
	return nodes.First(job, others)
}

// objects returns whether this node reaches the bucket, as a value of nodes.State.
func (r *reach) objects() string {
	if _, away := r.storage.Objects(); away {
		return nodes.Away
	}
	return nodes.Reached
}
