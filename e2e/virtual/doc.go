// Package virtual runs whole nodes of a cluster in one process and in virtual
// time: service, actors, janitor and engines of up to five nodes, or of a thousand
// that lose little (TestManyNodes), over one store, one bucket and one network, all
// of which break by a seed. Waiting takes no time inside the bubble of
// testing/synctest, so that a job with its faults takes some hundredths of a second.
//
//	seed ──► Schedule: nodes, jobs, faults          (generate.go; JSON, can be kept)
//	             │
//	             ▼
//	          world ── proc (a node from start to end) ── records, bucket, peers, engine
//	             │                                              │ each call is an
//	             │                                              ▼ effect (effect.go)
//	             │                      latency, faults, crash before or after, a line of the trace
//	             ▼
//	          judge ──► what was broken ──► shrink: the least schedule that still fails
//
// synctest does not order goroutines. What makes a seed repeat is that every
// effect takes a latency of its own, which follows from the seed and from what
// the effect is, so that no two happen at one moment; and that a
// process has one processor and one bubble at a time (see workers.go).
package virtual
