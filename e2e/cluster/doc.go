// Package cluster makes faults in a running cluster and checks the outcome. It starts real
// processes: nodes, simulated inference servers, a redis-server and an S3 server, each on its
// own host if network namespaces are possible (internal/faultnet), otherwise all on loopback.
// It runs jobs, strikes them with faults at random times (Fault), and checks the promises
// (Judge) with the witness logs of the simulators, the records over time, the results and the
// ledger.
//
//	client ──► node1   node2   node3        any node may die
//	             │ gossip, peer │
//	   simulator1  simulator2  simulator3   never die: they are the witnesses
//	             │              │
//	          redis-server   S3 server      may die, and start again with their disk
//
// A simulator is on the host of its node but runs on when the node dies. It logs every
// requested row, so the test knows which rows ran twice. No node can know this.
//
// `go test ./e2e/cluster` runs a selection in a few minutes. With ROWMILL_SOAK set to a
// duration, TestSoak strikes at random for this time. Both print their seed; ROWMILL_SEED
// repeats one. Failed runs keep their logs and print the directory.
//
// To add a fault, add a line to Faults (fault.go): name, duration, requirements (own hosts,
// root), and the function that injects the fault and reports a Strike. The judge allows only
// the effects of strikes. Process faults are in fault.go, network faults in partition.go. If
// the fault may cost more rows, change judge.go, and add an invented run that the judge must
// reject to judge_test.go.
package cluster
