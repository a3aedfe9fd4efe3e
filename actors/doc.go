// Package actors is the running pipeline of a node: it claims jobs that nobody
// owns, cuts their input into shards, assigns rows to whoever has room, records
// finished parts and makes the results. It knows no HTTP; clients' writes
// reach it through the store, with a hint by System.Submitted and
// System.Cancelled. Other nodes reach it by System.Service.
//
// # Supervision
//
//	node ─┬─ engine-<name>          one per inference server: server
//	      ├─ worker-<job>-<epoch>   one per job that rows run of here
//	      └─ job-<id>-<epoch>       one per owned job
//	           └─ results           committer: records parts, merges, makes the result
//
// A child that panics is stopped, never restarted: its state is lost. The job then
// fails with internal_error, its committed parts stay. Only a server begins again by
// itself, after a pause: it learns its state anew from its engine. The back-off of the
// library would not do: its pause is random and has no upper bound, and keeps the mailbox
// closed, while jobs have to hear at once that the server is down.
//
// # Messages
//
// Facts are past tense, commands imperative. A message between a parent and its child
// stands in the file of the child, in both directions: a child does not know its parent.
//
// An actor also sends messages to itself: the result of slow work (taskGroup.tell), and
// the name of a timer (timers.send). They do not arrive after the task group or the timer
// was stopped. All messages that a job sends to itself have names: begun, inputRead,
// recordChanged, outlivedRecorded, inviteAnswered, jobEnded, jobOver and the timers in
// job.go. A job has the most phases of all actors, and a reader must see which
// message it takes in which phase.
//
// A step is a function that comes as a message: the actor calls it when slow work is done
// (taskGroup.run) or a time has come (timers.after). The node, workers, servers and
// committers use steps, because a step of theirs does the same in each phase, and the
// function stands where the work begins. Links use steps for the same reason, and so do
// the hooks of dispatchers, outboxes and the memory.
//
// Those marked * also travel between nodes, as messages of their contract
// (contract.go, service.go); System.Service is their only way in.
//
//	message         from → to        meaning                              loss allowed?
//	nodeRequest     System, job,     what is asked of a node, by its own  as what it carries: hint, drain,
//	                peer → node      process or another                   invite, dismiss, Heartbeat, Assignment
//	hint *                           a job has no owner, was cancelled    yes, scan and record tell
//	drain *                          leave the cluster                    answered
//	invite *        job → node       work for this job                    yes, repeated; answered by invited
//	dismiss *       job → node       the job is over                      yes, the worker looks at the record
//	Heartbeat *     worker → job     what I have, want and have written   yes, the next one says it again
//	Assignment *    job → worker     rows for you, what became of parts   yes, the next ones say it again
//	mergeParts *    committer →      how far is this errand? it begins    yes, repeated; answered past the node
//	                System           where it is not known                actor
//	whereIs         System → job     where is this row?                   answered
//	whereRows *     System → job     which node has how many rows?        answered
//	facts *         System → System  what is to be known of you?          answered past the node actor, which may stand still
//	figures *       System → System  what do you do, and on what?         the same
//	actors *        System → System  how are your actors?                 the same
//	jobOver         job → node       nothing is left to do                no
//	jobHarmless     job → node       something of it is done, or it waits no, the end of the job says it as well
//	workerEnded     worker → node    the same of a worker                 no
//	leaseChanged    System → node    a session was opened, or has ended   no
//	membersChanged  System → node    nodes came, went or spoke            no
//	attachEngine,   System → node    an engine came, goes                 no
//	detachEngine
//	leaveNode       node → server    give back what waits                 answered by engineLeft
//	engineChanged   server → node    up, down, other models, one rests    no, repeated when it changes again
//	enginesChanged  node → job,      the engines there are now; a job     as above
//	                worker           sees those of all nodes
//	openQueue       worker → server  I have rows of this job for you      answered by queueOpened, queueRefused
//	adopt           node → worker    the job has this owner now           no
//	partWritten     job → committer  a part object is durable             its rows run again
//	partsCommitted  committer → job  they are recorded                    no
//	jobBroke, jobSucceeded
//	                committer → job                                       no
//	cancelJob       node → job       the record says cancelled            yes, the next write is refused
//	drainJob, drainWorker, drainResults, resultsDrained
//	                down and up the tree: finish, commit, give back       no
//
// # Owners and workers
//
// The owner of a job assigns its rows to workers, one on each node that serves
// the model, its own included. Both sides keep a book, package assign has them.
// Heartbeats and assignments state where things stand, so that they may be
// lost, repeated and overtaken; batches of rows are known by numbers until both
// have them. A worker outlives its owner: the next one, under a higher epoch,
// hears from all of them before it assigns a row. A worker that is silent for
// Config.Ownership.LeaseTTL, or on whose node nobody listens, is lost: its rows are
// assigned again, and should it come back it has to let go of them. A worker
// whose finished rows nobody records, for whatever reason, begins no further
// ones before long, so that the loss of it stays bounded.
//
// # Where decisions live
//
// Actors move messages; what to do is decided by plain structs and packages
// that know no actors.
//
//	job     ownership (its record), intake (its input), crew (who works, and what each is
//	        told), invitations, closing (its end); ingest, assign, commit
//	worker  report (what the owner hears), work (what is loaded, sent and flushed within
//	        the memory there is), order (which row goes next)
//	server  dispatch (which row goes to it when, what becomes of it, whether it is in use)
//	        and engine.Window (how much it takes)
//	node    claims (which jobs it owns or should claim), workers (who gets one, and who has
//	        it), engines (which there are, here and elsewhere), neighbours (who stands first,
//	        whose process has ended), reach (whether it can use the bucket), nodes (what
//	        nodes tell each other of themselves), retention (what need not be kept)
//
// The node actor has three parts that run in its mailbox: nodeJobs, nodeWorkers and
// cleaner. Each has one duty, its state and its timers.
//
// The crew of a job collects letters to workers, and the job sends them after each
// message. An assignment states the whole situation, so a worker gets one letter at most.
//
// Rows travel between goroutines as *dispatch.Task; a dispatcher's goroutines
// take them straight from its queues and put them, with what becomes of them,
// into the worker's outbox, which announces any number of them with one
// message.
package actors
