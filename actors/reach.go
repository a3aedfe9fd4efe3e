package actors

import (
	"time"

	"github.com/rowmill/rowmill/actors/nodes"
	"github.com/rowmill/rowmill/actors/storage"
	"github.com/rowmill/rowmill/cluster"
)

// A reach knows whether this node can use the bucket, and whether other nodes can. It
// decides whether this node gives its jobs to other nodes. It knows no actors.
type reach struct {
	storage *storage.Watch
	others  func() []cluster.Member
	since   time.Time // start of the time in which other nodes can use the bucket and this node cannot; zero at other times
}

// updateLeave decides whether this node should give its jobs to other nodes: if for at least
// patience other nodes could use the bucket and this node could not.
func (r *reach) updateLeave(patience time.Duration) {
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

// next returns the other node that should claim a job first; ok is false if there is
// none.
func (r *reach) next(job string) (first cluster.Member, ok bool) {
	others := r.others()
	if r.cutOff() {
		others = nodes.Reaching(others)
	}
	return nodes.First(job, others)
}

// objects returns the value of nodes.State.Objects: whether this node reaches the
// bucket.
func (r *reach) objects() string {
	if _, away := r.storage.Objects(); away {
		return nodes.Away
	}
	return nodes.Reached
}
