// Package cluster breaks a running cluster and judges what comes out. It starts
// real processes: nodes, simulated inference servers, a redis-server and an S3
// server, each on a host of its own where network namespaces can be made
// (internal/faultnet), else all on loopback. It runs jobs, strikes them with
// faults at random moments (Fault), and settles the account (Judge) from what
// the simulators wrote down, the records as they were seen meanwhile, the
// results, and the ledger.
//
//	client ──► node1   node2   node3        any of them may die
//	             │ gossip, peer │
//	   simulator1  simulator2  simulator3   never die: they are the witnesses
//	             │              │
//	          redis-server   S3 server      may die, and come back with their disk
//
// A simulator stands on its node's host but outlives the node. It writes down
// every row it was asked for, so the test knows what was run twice, which no
// node can know of itself.
//
// `go test ./e2e/cluster` runs a selection in a few minutes. With ROWMILL_SOAK
// set to a duration, TestSoak strikes at random for so long and ends with a
// table. Both print their seed; ROWMILL_SEED repeats one. Runs that fail
// keep their logs and say where.
package cluster
