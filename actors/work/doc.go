// Package work is what a worker does with the rows it has: it loads them ahead
// of the engines, sends them as the engines have room, and gathers what is
// finished into parts. It decides how much of each; it knows no actors, no
// owners of jobs, and does nothing in the background: whoever calls it runs the
// loads and the writes that it asks for and brings back what came of them.
//
//	spans ─► Loader ─► dispatch.Rows ─► Sender ─► queues of the servers
//	                                                 │
//	parts ◄── WritePart ◄── Flusher ◄── finished rows
//
// All of it stands under one budget of bytes for the whole node.
package work
