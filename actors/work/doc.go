// Package work handles the rows that are assigned to a worker: it loads rows before the
// engines need them, sends rows when an engine has room, and gathers finished rows into
// parts. It decides how many rows to load, send and write. It uses no actors and no owners
// of jobs, and runs nothing in the background: the caller runs the loads and writes, and
// passes their results back.
//
//	spans ─► Loader ─► dispatch.PendingRows ─► Sender ─► queues of the servers
//	                                                 │
//	parts ◄── WritePart ◄── Flusher ◄── finished rows
//
// One budget of bytes covers all rows and answers on the node.
package work
