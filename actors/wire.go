package actors

import (
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/commit"
	"github.com/rowmill/rowmill/internal/shard"
)

// Messages between nodes about jobs, in addition to the heartbeats and assignments of
// package assign. contract.go turns them into messages of the contract, and back.
// Messages that this package only passes on have the type of the contract.
type (
	// An invite asks a node to start a worker for a job, or to give its worker a new
	// owner.
	invite struct {
		Job       string
		Epoch     int64
		Address   string     // address of the owner's node
		Session   string     // session of the owner
		owner     *actor.PID // the job actor, if the owner is on this node
		Context   int        // context length in tokens; 0 if unknown
		MaxTokens int        // longest answer in tokens; 0 if unknown

		// Input describes an input that is still being read; nil if the input has a
		// stored manifest.
		Input *shard.Manifest

		Account  string           // account of the job
		Priority rowmill.Priority // priority of the job
	}

	// invited is the answer of a node that accepts an invite.
	invited struct {
		Working bool // the node has a worker for the job already, which will send a heartbeat
	}

	// getRow asks the job actor on this node where a row is.
	getRow struct {
		job string
		row int64
	}

	drain    struct{} // let rows in flight finish, and give all jobs back
	accepted struct{} // the answer to requests that need no other answer
)

// jobQuestion is a question about a job. The node actor passes it on to an actor of the
// job, which answers the sender.
type jobQuestion struct {
	job  string
	to   func(n *node, job string) *actor.PID // returns the actor; nil if this node has none
	body any
}

// nodeRequest is a request to the node actor. If the message has a sender, the node
// answers it.
type nodeRequest struct {
	body   any  // *invite, *assign.Heartbeat, *assign.Assignment, drain, or a dismissal or hint of the contract
	remote bool // the request comes from another node; otherwise from the System or a job of this node
}

// heartbeatInterval is the time between heartbeats when nothing else causes one. A
// worker that is silent for longer may have crashed.
const heartbeatInterval = time.Second

// RowDistribution counts the rows of a job on each node, as the job's owner knows them.
type RowDistribution struct {
	Shards   int
	Complete int        // number of shards with all rows committed
	Nodes    []NodeRows // nodes that work for the job, by name
}

// NodeRows counts the rows of a job on one node.
type NodeRows struct {
	Node     string   // name of the node, or its address if the node has left
	Assigned int64    // rows that the node has now and that are not committed
	Done     int64    // rows committed since the owner took the job
	Rate     *float64 // rows committed per second over the last minute; nil until known
}

// compactionRequest asks a node for the state of a compaction; if the node does not know the
// compaction, it starts it. The answer is a commit.CompactionState. After the first
// answer, requests have only the key of the compaction.
type compactionRequest struct {
	Job        string
	Account    string
	Priority   rowmill.Priority // priority of the job
	Compaction *commit.Compaction
}
