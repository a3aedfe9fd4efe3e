package assign

import "github.com/rowmill/rowmill/store"

// What the owner of a job and its workers tell each other. Heartbeats and
// assignments say how things stand, not what has changed: any of them may be
// lost, be repeated or be overtaken by a newer one, and no row is the worse for
// it. A heartbeat is answered with an assignment. Between nodes they travel as
// JSON, under names of the first protocol, which nodes of other versions read.
type (
	// A Heartbeat says what a worker has and wants.
	Heartbeat struct {
		Job     string `json:"job"`
		Epoch   int64  `json:"epoch"`  // of the owner it is for
		Worker  string `json:"worker"` // unique for ever
		Number  int64  `json:"number"` // of the worker's heartbeats; one that is overtaken is not heard
		Address string `json:"address,omitempty"`

		// Fresh says that it has no assignment of this epoch yet. Holds are then
		// the rows it has from earlier owners, those in Parts included.
		Fresh bool        `json:"fresh,omitempty"`
		Holds []ShardRows `json:"holds,omitempty"`

		Received int64       `json:"received"`        // number of the last batch of spans it has
		Recalled int64       `json:"recalled"`        // number of the last revocation it has obeyed
		Back     []ShardRows `json:"back,omitempty"`  // rows it gives back
		Batch    int64       `json:"batch,omitempty"` // number of Back
		Parts    []Part      `json:"parts,omitempty"` // written, not known to be acknowledged

		Want   bool `json:"want,omitempty"`   // it has room for more rows
		Hungry bool `json:"hungry,omitempty"` // its engines have room and it has nothing for them
		Ready  int  `json:"ready,omitempty"`  // rows it could give back
		Ports  int  `json:"ports"`            // engines it can use
		Leaves bool `json:"leaves,omitempty"` // it is draining: no more rows
		Left   bool `json:"left,omitempty"`   // it has nothing any more

		// Away is for how long the worker's node has not been able to use the
		// bucket, in milliseconds.
		Away int64 `json:"away_ms,omitempty"`

		// Waits is what other jobs keep the worker waiting for, one of the constants
		// below; empty while its rows run.
		Waits string `json:"waits,omitempty"`

		Warnings []string          `json:"warnings,omitempty"`
		Refused  map[string]string `json:"refused,omitempty"` // by engine: why it cannot run the job
		Fault    *Fault            `json:"fault,omitempty"`   // what ends the job, or at least this worker
	}

	// A Part is a part object that is durable.
	Part struct {
		Key    string       `json:"key"`
		Shard  int          `json:"shard"`
		Rows   RowSet       `json:"rows"`
		Totals store.Totals `json:"totals"`
		Size   int64        `json:"size"` // bytes
	}

	// A Fault is why a worker cannot go on.
	Fault struct {
		Row     int64  `json:"row"`  // -1 where it is no row's
		Code    string `json:"code"` // of a row
		Message string `json:"message"`
		Err     error  `json:"-"` // on the worker's node
	}

	// An Assignment says what a worker shall do and what has become of its rows.
	Assignment struct {
		Job       string     `json:"job"`
		Epoch     int64      `json:"epoch"`
		Worker    string     `json:"worker"`
		Batches   []Batch    `json:"deals,omitempty"`     // those that it has not said it received
		Exhausted bool       `json:"exhausted,omitempty"` // no row is free now
		Acked     []string   `json:"settled,omitempty"`   // of the parts it reported: committed, or not needed
		Taken     int64      `json:"taken,omitempty"`     // number of the last batch of rows taken back
		Revoke    Revocation `json:"recall"`
		Stop      bool       `json:"stop,omitempty"` // let go of everything
	}

	// A Batch is spans for one worker, numbered from 1.
	Batch struct {
		Number int64  `json:"number"`
		Spans  []Span `json:"spans"`
	}

	// A Revocation asks for rows back that were not sent to an engine.
	Revocation struct {
		Number int64 `json:"number"`
		Rows   int   `json:"rows"`
	}
)

// What rows of other jobs keep a worker waiting for.
const (
	WaitsForServer = "server" // for its turn at one: none of its rows is there
	WaitsForMemory = "memory" // its rows go out one at a time
	WaitsForWrite  = "write"  // its finished rows for their turn to be written
)

// WellFormed reports whether all row sets of a heartbeat are there.
func (h *Heartbeat) WellFormed() bool {
	for _, list := range [][]ShardRows{h.Holds, h.Back} {
		for _, s := range list {
			if s.Rows.Bitmap == nil || s.Rows.IsEmpty() {
				return false
			}
		}
	}
	for _, p := range h.Parts {
		if p.Rows.Bitmap == nil || p.Rows.IsEmpty() || p.Key == "" {
			return false
		}
	}
	return true
}
