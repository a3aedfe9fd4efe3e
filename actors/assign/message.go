package assign

import "github.com/rowmill/rowmill/store"

// Messages between the owner of a job and its workers. Heartbeats and assignments state
// the whole situation, not a change, so each may be lost, repeated or overtaken by a
// newer one without harm to any row. The owner answers a heartbeat with an assignment.
type (
	// A Heartbeat states a worker's rows and needs.
	Heartbeat struct {
		Job     string
		Epoch   int64  // of the owner that gets the heartbeat
		Worker  string // a name that no other worker ever has
		Number  int64  // counts the worker's heartbeats; the owner ignores an older one after a newer one
		Address string

		// Fresh: the worker has no assignment of this epoch yet. Holds then lists its
		// rows from earlier owners, including the rows in Parts.
		Fresh bool
		Holds []ShardRows

		Received int64       // number of the last batch of spans that arrived
		Recalled int64       // number of the last revocation that the worker carried out
		Back     []ShardRows // rows that the worker gives back
		Batch    int64       // number of the batch of rows in Back
		Suspects []Suspect   // rows of Back that may have crashed a server
		Parts    []Part      // parts that are written, and not yet acknowledged

		Want   bool // the worker has room for more rows
		Hungry bool // its engines have room, and it has no rows for them
		Ready  int  // number of rows that it could give back
		Ports  int  // number of engines that it can use
		Leaves bool // the worker drains: it takes no more rows
		Left   bool // the worker has drained: it has no rows and no parts

		// Away is the time since the worker's node could last use the bucket, in
		// milliseconds; 0 while it can.
		Away int64

		// Waits says why this worker waits for other jobs: a constant such as
		// WaitsForServer. It is empty while the worker's rows run.
		Waits string

		Warnings []string
		Refused  map[string]string // by engine: the reason why it cannot run the job
		Fault    *Fault            // an error that stops this worker, and perhaps the job
	}

	// A Part describes a durable part object.
	Part struct {
		Key    string
		Shard  int
		Rows   RowSet
		Totals store.Totals
		Size   int64 // bytes
	}

	// A Fault is the reason why a worker cannot continue.
	Fault struct {
		Row     int64  // number of the row; -1 if the error belongs to no row
		Code    string // error code; empty if there is none
		Message string
		Err     error // on the worker's own node only: it is not sent
	}

	// An Assignment gives a worker new rows, and says what happened to its reported rows
	// and parts.
	Assignment struct {
		Job       string
		Epoch     int64
		Worker    string
		Batches   []Batch  // batches that the worker has not confirmed
		Exhausted bool     // no row is free now
		Acked     []string // keys of reported parts that are committed or not needed
		Taken     int64    // number of the last batch of rows that the owner took back
		Revoke    Revocation
		Stop      bool // drop all rows and stop
	}

	// A Batch is a list of spans for one worker, numbered from 1.
	Batch struct {
		Number int64
		Spans  []Span
	}

	// A Revocation asks a worker to give back rows that it has not sent to an engine.
	Revocation struct {
		Number int64
		Rows   int
	}
)

// Reasons why a worker waits for other jobs.
const (
	WaitsForServer = "server" // for its turn at a server: none of its rows runs
	WaitsForMemory = "memory" // for memory: it sends one row at a time
	WaitsForWrite  = "write"  // for its turn to write finished rows
)

// WellFormed reports whether each list of rows is present and not empty, and each part
// has a key.
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
