package actors

import (
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill/store"
)

// What the owner of a job and its workers tell each other. Reports and orders
// say how things stand, not what has changed: any of them may be lost, be
// repeated or be overtaken by a newer one, and no row is the worse for it. A
// report is answered with orders. Between nodes they travel as JSON.
type (
	// A report says what a worker has and wants.
	report struct {
		Job     string `json:"job"`
		Epoch   int64  `json:"epoch"`  // of the owner it is for
		Worker  string `json:"worker"` // unique for ever
		Number  int64  `json:"number"` // of the worker's reports; one that is overtaken is not heard
		Address string `json:"address,omitempty"`
		pid     *actor.PID

		// Fresh says that it has no orders of this epoch yet. Holds are then
		// the rows it has from earlier owners, those in Parts included.
		Fresh bool        `json:"fresh,omitempty"`
		Holds []shardRows `json:"holds,omitempty"`

		Received int64        `json:"received"`        // number of the last deal it has
		Recalled int64        `json:"recalled"`        // number of the last recall it has obeyed
		Back     []shardRows  `json:"back,omitempty"`  // rows it gives back
		Batch    int64        `json:"batch,omitempty"` // number of Back
		Parts    []partReport `json:"parts,omitempty"` // written, not known to be settled

		Want   bool `json:"want,omitempty"`   // it has room for more rows
		Hungry bool `json:"hungry,omitempty"` // its engines have room and it has nothing for them
		Ready  int  `json:"ready,omitempty"`  // rows it could give back
		Ports  int  `json:"ports"`            // engines it can use
		Leaves bool `json:"leaves,omitempty"` // it is draining: no more rows
		Left   bool `json:"left,omitempty"`   // it has nothing any more

		Warnings []string          `json:"warnings,omitempty"`
		Refused  map[string]string `json:"refused,omitempty"` // by engine: why it cannot run the job
		Fault    *fault            `json:"fault,omitempty"`   // what ends the job, or at least this worker
	}

	// A partReport is a part object that is durable.
	partReport struct {
		Key    string       `json:"key"`
		Shard  int          `json:"shard"`
		Rows   rowSet       `json:"rows"` // relative to the shard
		Totals store.Totals `json:"totals"`
		Size   int64        `json:"size"` // bytes
	}

	// A fault is why a worker cannot go on.
	fault struct {
		Row     int64  `json:"row"`  // -1 where it is no row's
		Code    string `json:"code"` // of a row
		Message string `json:"message"`
		err     error  // on this node
	}

	// orders say what a worker shall do and what has become of its rows.
	orders struct {
		Job       string   `json:"job"`
		Epoch     int64    `json:"epoch"`
		Worker    string   `json:"worker"`
		Deals     []deal   `json:"deals,omitempty"`     // those that it has not said it received
		Exhausted bool     `json:"exhausted,omitempty"` // no rows are left to deal now
		Settled   []string `json:"settled,omitempty"`   // of the parts it reported: committed, or not needed
		Taken     int64    `json:"taken,omitempty"`     // number of the last batch of rows taken back
		Recall    recall   `json:"recall"`
		Stop      bool     `json:"stop,omitempty"` // let go of everything
	}

	// A deal is spans for one worker, numbered from 1.
	deal struct {
		Number int64  `json:"number"`
		Spans  []span `json:"spans"`
	}

	// A recall asks for rows back that were not sent to an engine.
	recall struct {
		Number int64 `json:"number"`
		Rows   int   `json:"rows"`
	}

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
	}

	// invited answers an invite.
	invited struct {
		address string // of the node that answers; empty for this one
		epoch   int64
		err     error
		Working bool `json:"working,omitempty"` // it works for the job already; its report follows
	}

	// dismiss ends a job's work on a node; it is answered when all has stopped.
	dismiss struct {
		Job   string `json:"job"`
		Epoch int64  `json:"epoch"`
	}

	// A hint saves a node from waiting for the next scan.
	hint struct {
		Job       string `json:"job"`
		Cancelled bool   `json:"cancelled,omitempty"` // else: it has no owner
	}
)

// The kinds of envelope between nodes.
const (
	kindInvite  = "invite"
	kindReport  = "report"
	kindOrders  = "orders"
	kindDismiss = "dismiss"
	kindHint    = "hint"
	kindDrain   = "drain"
)

// reportInterval is the time between reports where nothing else gives rise to
// one: a worker that is heard of less often may be dead.
const reportInterval = time.Second
