// Package actors is the running pipeline of a node: it claims jobs that nobody
// owns, cuts their input into shards, deals rows to whoever has room, commits
// finished parts and makes the results. It knows no HTTP; clients' writes
// reach it through the store, with a hint by System.Submitted and
// System.Cancelled.
//
// # Supervision
//
//	node ─┬─ engine-<name>          one per inference server
//	      └─ job-<id>-<epoch>       one per owned job
//	           ├─ results           commits parts, merges, makes artifacts
//	           └─ shard-<node>-…    runs the job's rows on this node
//
// A child that panics is stopped, never restarted: what it knew is gone. The
// job then fails with internal_error, its committed parts stay.
//
// # Messages
//
// Facts are past tense, commands imperative, an actor's own ticks end in Due.
// All are local to the process.
//
//	message         from → to        meaning                              loss allowed?
//	jobSubmitted    System → node    a job waits                          yes, the scan finds it
//	jobCancelled    System → node    its record says cancelled            yes, the next write finds out
//	jobClaimed      errand → node    a job is ours                        yes, the session still owns it: its end frees it
//	jobOver         job → node       nothing is left to do                no
//	attachEngine,   System → node    an engine came, goes                 no
//	detachEngine
//	leaveNode       node → engine    give back what waits                 answered by engineLeft
//	engineChanged   engine → node    up, down or other models             no, repeated when it changes again
//	breakerOpened,  dispatcher →     failures in a row; the window is     no; yes, the next reading comes
//	windowFilled    engine           full and could grow
//	enginesChanged  node → job,      the engines there are now            as above
//	                job → shard
//	openLane        shard → engine   I have rows of this job for you      answered by laneOpened, laneRefused
//	wantSpans       shard → job      room for more rows                   answered by spansDealt
//	rowsFinished    outbox → shard   tasks wait in the outbox             no
//	partWritten     shard → results  a part object is durable             its rows run again
//	jobWarned, engineRefused, rowBroke, jobBroke, jobTaken, tooManyFailed,
//	jobSucceeded    shard, results → job                                  no
//	drainNode, drainJob, drainShard, drainResults and their shardDrained,
//	resultsDrained  down and up the tree: finish, commit, give back
//
// # Where decisions live
//
// Actors move messages; what to do is decided by plain structs that know no
// actors: plan (which rows go to which worker), ledger (which rows are done),
// judge (whether an answer stands), queue (what may be sent now, and by
// order.Pool which of it first), dispatcher (whose turn an engine is), breaker
// (whether it is worth trying), pace (how long it may take), budget (what fits
// into memory), engine.Window (how much a server takes).
//
// Rows travel between goroutines as *task; a dispatcher's goroutines take them
// straight from its lanes and put them, judged, into the shard actor's outbox,
// which announces any number of them with one message.
package actors
