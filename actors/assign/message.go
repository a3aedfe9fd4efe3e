package assign

import "github.com/rowmill/rowmill/store"

// What the owner of a job and its workers tell each other. Heartbeats and
// assignments say how things stand, not what has changed: any of them may be
// lost, be repeated or be overtaken by a newer one, and no row is the worse for
// it. A heartbeat is answered with an assignment.
type (
	// A Heartbeat says what a worker has and wants.
	Heartbeat struct {
		Job     string
		Epoch   int64  // of the owner it is for
		Worker  string // unique for ever
		Number  int64  // of the worker's heartbeats; one that is overtaken is not heard
		Address string

		// Fresh says that it has no assignment of this epoch yet. Holds are then
		// the rows it has from earlier owners, those in Parts included.
		Fresh bool
		Holds []ShardRows

		Received int64       // number of the last batch of spans it has
		Recalled int64       // number of the last revocation it has obeyed
		Back     []ShardRows // rows it gives back
		Batch    int64       // number of Back
		Suspects []Suspect   // rows of Back that may have crashed a server
		Parts    []Part      // written, not known to be acknowledged

		Want   bool // it has room for more rows
		Hungry bool // its engines have room and it has nothing for them
		Ready  int  // rows it could give back
		Ports  int  // engines it can use
		Leaves bool // it is draining: no more rows
		Left   bool // it has nothing any more

		// Away is for how long the worker's node has not been able to use the
		// bucket, in milliseconds.
		Away int64

		// Waits is what other jobs keep the worker waiting for, one of the constants
		// below; empty while its rows run.
		Waits string

		Warnings []string
		Refused  map[string]string // by engine: why it cannot run the job
		Fault    *Fault            // what ends the job, or at least this worker
	}

	// A Part is a part object that is durable.
	Part struct {
		Key    string
		Shard  int
		Rows   RowSet
		Totals store.Totals
		Size   int64 // bytes
	}

	// A Fault is why a worker cannot go on.
	Fault struct {
		Row     int64  // -1 where it is no row's
		Code    string // of a row
		Message string
		Err     error // on the worker's node
	}

	// An Assignment says what a worker shall do and what has become of its rows.
	Assignment struct {
		Job       string
		Epoch     int64
		Worker    string
		Batches   []Batch  // those that it has not said it received
		Exhausted bool     // no row is free now
		Acked     []string // of the parts it reported: committed, or not needed
		Taken     int64    // number of the last batch of rows taken back
		Revoke    Revocation
		Stop      bool // let go of everything
	}

	// A Batch is spans for one worker, numbered from 1.
	Batch struct {
		Number int64
		Spans  []Span
	}

	// A Revocation asks for rows back that were not sent to an engine.
	Revocation struct {
		Number int64
		Rows   int
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
