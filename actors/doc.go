// Package actors is the running pipeline of a node: it claims jobs that nobody
// owns, cuts their input into shards, deals rows to whoever has room, commits
// finished parts and makes the results. It knows no HTTP; clients' writes
// reach it through the store, with a hint by System.Submitted and
// System.Cancelled. Other nodes reach it by System.Answer.
//
// # Supervision
//
//	node ─┬─ engine-<name>          one per inference server: server
//	      ├─ worker-<job>-<epoch>   one per job that rows run of here
//	      └─ job-<id>-<epoch>       one per owned job
//	           └─ results           commits parts, merges, makes artifacts
//
// A child that panics is stopped, never restarted: what it knew is gone. The
// job then fails with internal_error, its committed parts stay.
//
// # Messages
//
// Facts are past tense, commands imperative, an actor's own ticks end in Due.
// What is to follow slow work that an actor has given away, or a time that has
// come, may also come back to it as a step, a function that it calls. Those
// marked * also travel between nodes, as JSON; the node actor is their
// only way in and answers each with a code.
//
//	message         from → to        meaning                              loss allowed?
//	nodeRequest     System, job,     what is asked of a node, by its own  as what it carries: hint, invite,
//	                peer → node      process or another                   dismiss, report, orders or drain
//	jobOver         job → node       nothing is left to do                no
//	workerEnded      worker → node    the same of a worker                 no
//	leaseChanged    System → node    a session was opened, or has ended   no
//	attachEngine,   System → node    an engine came, goes                 no
//	detachEngine
//	leaveNode       node → server    give back what waits                 answered by engineLeft
//	engineChanged   server → node    up, down or other models             no, repeated when it changes again
//	breakerOpened,  dispatcher →     failures in a row; the window is     no; yes, the next reading or
//	windowFilled,   server           full and could grow; a connection    probe comes
//	probeDue                         broke
//	enginesChanged  node → job,      the engines there are now; a job     as above
//	                shard            sees those of all nodes
//	membersChanged  System → node    nodes came, went or spoke            no
//	openQueue       shard → server   I have rows of this job for you      answered by queueOpened, queueRefused
//	rowsFinished    outbox → shard   tasks wait in the outbox             no
//	invite *        job → node       work for this job                    yes, repeated; answered by invited
//	adopt           node → shard     the job has this owner now           no
//	report *        shard → job      what I have, want and have written   yes, the next one says it again
//	orders *        job → shard      rows for you, what became of parts   yes, the next ones say it again
//	dismiss *       job → node       the job is over                      yes, the worker looks at the record
//	hint *          System, node     a job has no owner, was cancelled    yes, scan and record tell
//	                → node
//	drain *         System, node     leave the cluster                    answered
//	                → node
//	partWritten     job → results    a part object is durable             its rows run again
//	partSettled     results → job    it is committed, or not needed       no
//	jobBroke, jobSucceeded
//	                results → job                                         no
//	drain, drainJob, drainWorker, drainResults, resultsDrained
//	                down and up the tree: finish, commit, give back
//
// # Owners and workers
//
// The owner of a job deals its rows to workers, one on each node that serves
// the model, its own included. Both sides keep books: crew at the owner, duty
// at the worker. Reports and orders state where things stand, so that they may
// be lost, repeated and overtaken; what is dealt is known by numbers until both
// have it. A worker outlives its owner: the next one, under a higher epoch,
// hears from all of them before it deals a row. A worker that is silent for
// Config.LeaseTTL, or on whose node nobody listens, is lost: its rows are dealt
// again, and should it come back it has to let go of them. A worker whose
// finished rows nobody commits, for whatever reason, begins no further ones
// before long, so that the loss of it stays bounded.
//
// # Where decisions live
//
// Actors move messages; what to do is decided by plain structs that know no
// actors: plan (which rows go to which worker), crew and duty (who has which),
// budget (what fits into memory), engine.Window (how much a server takes), the
// package dispatch (which row goes to a server when, and what becomes of it),
// the package commit (when parts are recorded, merged and made a result); of a
// node claims (which jobs it owns or should
// claim), workers (who gets one, and who has it), engines (which there are, here
// and elsewhere) and the package nodes (what nodes tell each other of
// themselves).
//
// Rows travel between goroutines as *dispatch.Task; a dispatcher's goroutines
// take them straight from its queues and put them, with what becomes of them,
// into the worker's outbox, which announces any number of them with one
// message.
package actors
