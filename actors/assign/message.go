package assign

import "github.com/rowmill/rowmill/store"

// Messages between the owner of a job and its workers. Each message contains the full
// state, not a change. So a message may be lost, be repeated, or arrive after a newer
// message, and no row is lost. The owner answers a heartbeat with an assignment.
type (
	// A Heartbeat tells the owner the state of a worker: its rows, its parts, and how many
	// rows it needs.
	Heartbeat struct {
		Job     string
		Epoch   int64  // epoch of the owner that receives the heartbeat
		Worker  string // name of the worker; no other worker ever has this name
		Number  int64  // number of this heartbeat; the owner ignores it after a newer heartbeat
		Address string // address of the worker's node

		// Fresh is true if the worker has no assignment of this epoch yet. Holds then lists
		// the rows that earlier owners assigned to the worker, including the rows in Parts.
		Fresh bool
		Holds []ShardRows

		Received int64        // number of the last batch of spans that the worker received
		Recalled int64        // number of the last Revocation that the worker carried out
		Back     []ShardRows  // rows that the worker gives back to the owner
		Batch    int64        // number of the batch in Back
		Suspects []SuspectRow // rows of Back that may have crashed an inference server
		Parts    []Part       // parts that the worker has written and the owner has not acknowledged

		Want    bool // the worker has room for more rows
		Hungry  bool // the worker's engines have room, and the worker has no rows for them
		Ready   int  // number of rows that the worker could give back
		Engines int  // number of engines that the worker can use
		Leaves  bool // the worker drains: it takes no more rows
		Left    bool // the worker has drained: it has no rows and no parts

		// Away is the time in milliseconds since the worker's node could last use the bucket;
		// 0 if the node can use the bucket.
		Away int64

		// Waits is the reason why this worker waits for other jobs: a constant such as
		// WaitsForServer. It is empty while rows of the worker run.
		Waits string

		Warnings []string          // warnings of the worker's servers about this job
		Servers  []string          // descriptions of the servers that the worker has used, see engine.ServerInfo.Describe
		Refused  map[string]string // by engine name: the reason why the engine cannot run the job
		Fault    *Fault            // the error that stops this worker and perhaps the job; nil for none
	}

	// A Part describes a stored object with finished rows of one shard.
	Part struct {
		Key    string // key of the object in the bucket
		Shard  int
		Rows   RowSet
		Totals store.RowTotals
		Size   int64 // bytes
	}

	// A Fault is the reason why a worker cannot continue.
	Fault struct {
		Row     int64  // number of the row; -1 if the error belongs to no row
		Code    string // error code; empty if the error has none
		Message string
		Err     error // the error itself, only on the worker's own node: it is not sent
	}

	// An Assignment gives a worker new rows, and tells the worker which of its reported
	// rows and parts the owner has processed.
	Assignment struct {
		Job       string
		Epoch     int64
		Worker    string
		Batches   []Batch    // batches of spans that the worker has not confirmed yet
		Exhausted bool       // no row is free now
		Acked     []string   // keys of reported parts that are committed or no longer needed
		Taken     int64      // number of the last batch of rows that the owner took back
		Revoke    Revocation // the last request to give back rows
		Stop      bool       // true if the worker must drop all rows and stop
	}

	// A Batch is a list of spans for one worker, numbered from 1.
	Batch struct {
		Number int64
		Spans  []RowSpan
	}

	// A Revocation asks a worker to give back a number of rows that it has not sent to an
	// engine. Revocations are numbered, so that a worker carries out each of them once.
	Revocation struct {
		Number int64
		Rows   int
	}
)

// Reasons why a worker waits for other jobs.
const (
	WaitsForServer = "server" // the worker waits for its turn at a server: none of its rows runs
	WaitsForMemory = "memory" // the worker waits for memory: it sends one row at a time
	WaitsForWrite  = "write"  // the worker waits for its turn to write finished rows
)

// WellFormed reports whether each list of rows in the heartbeat has at least one row,
// and each part has rows and a key.
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
