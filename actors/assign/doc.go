// Package assign decides which worker gets which rows of a job, and tracks the state of
// each row. It uses no actors and no engines. Messages may be lost, repeated, or arrive
// in another order. Still no row is lost, and a row runs twice only if the owner has
// declared its worker lost.
//
//	plan       which free rows go to which worker
//	rowStates  the state of each row: free, copy, assigned, finished, written, committed
//	Owner      the state on the owner's node: all rows, the workers and their parts
//	Worker     the state on a worker's node: the rows of this worker
//	PartLedger the parts that the store has recorded
//
// A worker sends a Heartbeat with its rows, its needs and its written parts. The owner
// answers with an Assignment. Both messages contain the full state; each order that must
// be carried out only once has a number. Rows go to a worker in batches of spans, and the
// next heartbeat confirms the batches. Rows come back in numbered batches, or in parts,
// which stay in the heartbeats until an assignment acknowledges them. The next owner has
// a later epoch. It learns from all workers which rows they have before it assigns a
// row.
package assign
