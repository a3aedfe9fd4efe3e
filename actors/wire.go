package actors

import (
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill/actors/registry"
	"github.com/rowmill/rowmill/shard"
	"github.com/rowmill/rowmill/store"
)

// What nodes tell each other about jobs, beside the heartbeats and assignments
// of package assign. Between nodes all of it travels as JSON.
type (
	// An invite asks a node to work for a job.
	invite struct {
		Job       string `json:"job"`
		Epoch     int64  `json:"epoch"`
		Address   string `json:"address,omitempty"` // of the owner's node
		Session   string `json:"session"`           // of the owner
		owner     *actor.PID
		Context   int   `json:"context"`          // tokens; 0 when nobody says
		MaxTokens int   `json:"max_tokens"`       // of an answer; 0 when nobody says
		Sample    int64 `json:"sample,omitempty"` // only the first rows are run, for an estimate

		// Input is what is known of an input that is still being read; nil where it
		// has a manifest.
		Input *shard.Manifest `json:"input,omitempty"`

		Account string `json:"account,omitempty"` // whose job it is
		Urgent  bool   `json:"urgent,omitempty"`  // it is of priority 0
	}

	// invited answers an invite.
	invited struct {
		Working bool `json:"working,omitempty"` // it works for the job already; its heartbeat follows
	}

	// dismiss ends a job's work on a node; it is answered when all has stopped.
	dismiss struct {
		Job   string `json:"job"`
		Epoch int64  `json:"epoch"`
	}

	// whereIs asks the owner of a job for the place of a row, on its own node.
	whereIs struct {
		job string
		row int64
	}

	// whereRows asks the owner of a job where its rows are; the answer is
	// Whereabouts.
	whereRows struct {
		Job string `json:"job"`
	}

	// isDownloading asks whether a node is still downloading the input of a job
	// that it owned.
	isDownloading struct {
		Job string `json:"job"`
	}

	// downloading is the answer.
	downloading struct {
		Running bool `json:"running,omitempty"`
	}

	// A hint saves a node from waiting for the next scan.
	hint struct {
		Job       string  `json:"job"`
		Cancelled bool    `json:"cancelled,omitempty"` // else: it has no owner
		Account   *string `json:"account,omitempty"`
		Priority  int     `json:"priority,omitempty"`
	}

	// listActors asks for the actors of a node; the answer is a registry.Listing.
	listActors struct{ registry.Filter }
	// askFacts asks a node for what it tells operators of itself.
	askFacts struct{}
	// askFigures asks a node for what it tells the API of others.
	askFigures struct {
		What string `json:"what"`
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

// The kinds of envelope between nodes.
const (
	kindInvite     = "invite"
	kindHeartbeat  = "report"
	kindAssignment = "orders"
	kindDismiss    = "dismiss"
	kindDownload   = "download"
	kindHint       = "hint"
	kindDrain      = "drain"
	kindActors     = "actors"
	kindFacts      = "facts"
	kindFigures    = "figures"
	kindWhere      = "where"
	kindMerge      = "merge"
)

// heartbeatInterval is the time between heartbeats where nothing else gives rise
// to one: a worker that is heard of less often may be dead.
const heartbeatInterval = time.Second
