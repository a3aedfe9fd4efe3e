// Package virtual runs whole nodes of a cluster in one process and in virtual time:
// service, actors, janitor and engines of up to five nodes, or of a thousand nodes with
// few faults (TestManyNodes). They share one store, one bucket and one network. A seed
// decides the faults of all nodes. Waiting takes no time inside the bubble of
// testing/synctest, so a job with its faults takes some hundredths of a second.
//
//	seed ──► Schedule: nodes, jobs, faults          (generate.go; JSON, can be kept)
//	             │
//	             ▼
//	          world ── proc (a node from start to end) ── records, bucket, peers, engine
//	             │                                              │ each call is an
//	             │                                              ▼ effect (effect.go)
//	             │                      latency, faults, crash before or after, a line of the trace
//	             ▼
//	          judge ──► broken promises ──► shrink: the smallest schedule that still fails
//
// synctest does not order goroutines. A seed repeats nevertheless, because every effect
// has its own latency, which depends on the seed and the effect, so no two effects happen
// at the same time; and because a process has one processor and one bubble at a time (see
// workers.go).
//
// To add a fault, add a line to kinds (generate.go). A lasting fault is a condition in
// world.go (of the network in links.go, of servers in engine.go and servers.go). A fault of
// one effect, such as a write, is a case in effect.go. A process acts on the outside only
// through effects; each store operation needs a method in records.go, else the operation
// panics. Rules are in account.go (after each write), judge.go (at the end) and bounds.go
// (mayRerun: rows; isWriteRequest: owners). Put a shrunk schedule that found a fault into
// testdata/schedules, and a change of the code that causes such a fault into
// testdata/planted.
package virtual
