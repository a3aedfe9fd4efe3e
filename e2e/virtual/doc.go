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
package virtual
