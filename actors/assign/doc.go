// Package assign decides which worker gets which rows of a job, and tracks the state of
// each row. It uses neither actors nor engines. Messages may be lost, repeated or
// overtaken. Still no row is lost, and only rows of workers that the owner declared lost
// run twice.
//
//	plan    which free rows go to which worker
//	rowStates  the state of each row: free, copy, assigned, finished, written, committed
//	Owner   the owner's side: the states of all rows, the workers and their parts
//	Worker  the worker's side: the states of its own rows
//	Ledger  the recorded parts
//
// A worker sends a Heartbeat with its rows, its needs and its written parts. The owner
// answers with an Assignment. Both messages state the whole situation; everything that
// must happen only once has a number. Rows go to a worker in batches of spans, and the
// next heartbeat confirms them. Rows come back in numbered batches, or as parts, which
// stay in the heartbeats until an assignment acknowledges them. The next owner has a
// later epoch, and it learns from all workers which rows they hold before it assigns a
// row.
package assign
