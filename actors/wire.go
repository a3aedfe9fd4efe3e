package actors

import (
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/commit"
	"github.com/rowmill/rowmill/internal/shard"
)

// What nodes tell each other about jobs, beside the heartbeats and assignments
// of package assign. contract.go turns all of it into messages of the contract, and
// back. What has no life inside is used as the contract has it.
type (
	// An invite asks a node to work for a job.
	invite struct {
		Job       string
		Epoch     int64
		Address   string // of the owner's node
		Session   string // of the owner
		owner     *actor.PID
		Context   int   // tokens; 0 when nobody says
		MaxTokens int   // of an answer; 0 when nobody says
		Sample    int64 // only the first rows are run, for an estimate

		// Input is what is known of an input that is still being read; nil where it
		// has a manifest.
		Input *shard.Manifest

		Account  string           // whose job it is
		Priority rowmill.Priority // of the job
	}

	// invited answers an invite.
	invited struct {
		Working bool // it works for the job already; its heartbeat follows
	}

	// whereIs asks the owner of a job for the place of a row, on its own node.
	whereIs struct {
		job string
		row int64
	}

	drain    struct{} // give all jobs back
	accepted struct{} // the answer to most requests
)

// nodeRequest asks the node for something; a sender gets an answer.
type nodeRequest struct {
	body   any  // *invite, *assign.Heartbeat, *assign.Assignment, whereIs, drain, or a dismissal, a hint or a question for rows, as in the contract
	remote bool // another node asks, not the System or a job of this one
}

// heartbeatInterval is the time between heartbeats where nothing else gives rise
// to one: a worker that is heard of less often may be dead.
const heartbeatInterval = time.Second

// Whereabouts is where the rows of a job are, as its owner knows.
type Whereabouts struct {
	Shards   int
	Complete int        // shards of which all rows are committed
	Nodes    []NodeRows // that work for the job, by name
}

// NodeRows are the rows of a job on one node.
type NodeRows struct {
	Node     string   // its name; the address where it has left
	Assigned int64    // and not committed
	Done     int64    // committed since the owner took the job
	Rate     *float64 // committed a second over the last minute; nil before that is known
}

// mergeParts asks a node how far an errand is, which it begins where it does not know
// of it; the answer is a commit.ErrandState. Once it has been answered the errand is
// only its key.
type mergeParts struct {
	Job      string
	Account  string
	Priority rowmill.Priority // of the job
	Errand   *commit.Errand
}
