package actors

import (
	"sync/atomic"
	"time"

	"github.com/rowmill/rowmill/actors/nodes"
	"github.com/rowmill/rowmill/actors/retention"
)

// published is how a node was when it last said so. The node writes it, and any
// goroutine may read it.
type published struct {
	engines atomic.Pointer[[]EngineStatus]
	state   atomic.Pointer[nodes.State] // what the other nodes are told
	storage atomic.Pointer[StorageStatus]
	crowd   atomic.Pointer[crowd]
}

func newPublished() *published {
	p := &published{}
	p.engines.Store(&[]EngineStatus{})
	p.state.Store(&nodes.State{})
	p.storage.Store(&StorageStatus{})
	return p
}

// StorageStatus is what a node last saw of where records and objects are kept.
type StorageStatus struct {
	// Held is why the node removes no data: *deployment.DifferError,
	// *deployment.FormatError or *retention.SkewError; nil where it may.
	Held error
	// Unknown are the jobs in the bucket that no record knows, on the node
	// that removes data.
	Unknown retention.Unknown
	// Skew is how far this node's clock is ahead of the store's.
	Skew time.Duration
}
