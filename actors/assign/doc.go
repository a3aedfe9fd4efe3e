// Package assign decides who has which rows of a job, and knows how far each
// is. It knows no actors and no engines: whoever carries its messages, and
// whatever is lost on the way, no row is lost and none runs twice but those of
// workers that were given up.
//
//	plan    which free rows go to which worker
//	book    the state of each row: free, assigned, finished, written, committed
//	Owner   the owner's side: the book of all rows, its workers, their parts
//	Worker  a worker's side: the book of the rows it has
//	Ledger  the parts that are recorded
//
// A worker sends a Heartbeat, with what it has, wants and has written, and is
// answered with an Assignment. Each says how things stand; what must not happen
// twice is numbered. Rows go to a worker in batches of spans, which it confirms
// with the next heartbeat; they come back in numbered batches too, or as parts,
// which stay in its heartbeats until an assignment acknowledges them. The next
// owner, under a later epoch, hears from all workers what they hold before it
// assigns a row.
package assign
