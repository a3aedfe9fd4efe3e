package actors

import (
	"time"

	"github.com/rowmill/rowmill/actors/nodes"
	"github.com/rowmill/rowmill/actors/storage"
	"github.com/rowmill/rowmill/cluster"
)

// A bucketReach knows whether this node can use the bucket, and whether other nodes can. It
// decides whether this node gives its jobs to other nodes. It knows no actors.
type bucketReach struct {
	storage *storage.Monitor
	others  func() []cluster.Member
	since   time.Time // start of the time in which other nodes can use the bucket and this node cannot; zero at other times
}

// updateHandover decides whether this node should give its jobs to other nodes: if for at least
// patience other nodes could use the bucket and this node could not.
func (r *bucketReach) updateHandover(patience time.Duration) {
	_, away := r.storage.ObjectsOutage()
	switch {
	case !away || len(nodes.ReachingBucket(r.others())) == 0:
		r.since = time.Time{}
	case r.since.IsZero():
		r.since = time.Now()
	}
	r.storage.SetUsableElsewhere(r.isCutOff() && time.Since(r.since) >= patience)
}

// isCutOff reports whether other nodes can use the bucket and this node cannot.
func (r *bucketReach) isCutOff() bool { return !r.since.IsZero() }

// nextClaimer returns the other node that should claim a job first; ok is false if there is
// none.
func (r *bucketReach) nextClaimer(job string) (first cluster.Member, ok bool) {
	others := r.others()
	if r.isCutOff() {
		others = nodes.ReachingBucket(others)
	}
	return nodes.FirstRanked(job, others)
}

// bucketState returns the value of nodes.State.Objects: whether this node reaches the
// bucket.
func (r *bucketReach) bucketState() string {
	if _, away := r.storage.ObjectsOutage(); away {
		return nodes.Away
	}
	return nodes.Reached
}
