package actors

import (
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/shard"
	"github.com/rowmill/rowmill/store"
)

// What nodes tell each other about jobs, beside the heartbeats and assignments
// of package assign. contract.go turns all of it into messages of the contract, and
// back.
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

	// dismiss ends a job's work on a node; it is answered when all has stopped.
	dismiss struct {
		Job   string
		Epoch int64
	}

	// whereIs asks the owner of a job for the place of a row, on its own node.
	whereIs struct {
		job string
		row int64
	}

	// whereRows asks the owner of a job where its rows are; the answer is
	// Whereabouts.
	whereRows struct {
		Job string
	}

	// isDownloading asks whether a node is still downloading the input of a job
	// that it owned.
	isDownloading struct {
		Job string
	}

	// downloading is the answer.
	downloading struct {
		Running bool
	}

	// A hint saves a node from waiting for the next scan.
	hint struct {
		Job       string
		Cancelled bool // else: it has no owner
		Account   *string
		Priority  rowmill.Priority
	}

	drain    struct{} // give all jobs back
	accepted struct{} // the answer to most requests
)

// hintOf says that a job has no owner.
func hintOf(o store.Orphan) hint {
	return hint{Job: o.JobID, Account: &o.Account, Priority: o.Priority}
}

// orphan is the job that has no owner.
func (h hint) orphan() store.Orphan {
	o := store.Orphan{JobID: h.Job, Priority: h.Priority}
	if h.Account != nil {
		o.Account = *h.Account
	}
	return o
}

// heartbeatInterval is the time between heartbeats where nothing else gives rise
// to one: a worker that is heard of less often may be dead.
const heartbeatInterval = time.Second
