// Package actors runs the pipeline of a node: it claims jobs without an owner, cuts
// their input into shards, assigns rows to workers with room, records finished parts
// and makes the results. It does not use HTTP. The API writes new jobs and
// cancellations and pauses to the store, and then calls System.NotifySubmitted, NotifyCancelled or
// NotifyRescheduled as a
// hint. Requests of other nodes go to System.Service.
//
// # Supervision
//
//	node ─┬─ engine-<name>          one for each inference server: engineActor
//	      ├─ worker-<job>-<epoch>   one for each job with rows on this node
//	      └─ job-<id>-<epoch>       one for each owned job
//	           └─ results           committer: records parts, merges, makes the result
//
// A child that panics is stopped and not restarted, because its state is lost. The
// job then fails with internal_error; its committed parts stay. Only a server actor
// restarts by itself, after a pause: it asks the inference server for the state that
// the panic lost. The restart with back-off of the actor library is not used: its pause
// is random, has no upper bound and keeps the mailbox closed, but jobs must learn at
// once that the server is down.
//
// # Messages
//
// Messages that state a fact have names in the past tense; commands have names in the
// imperative. The type of a message between a parent and its child is in the file of
// the child, in both directions, because a child does not know its parent.
//
// An actor also sends messages to itself: the result of slow work (taskGroup.runAndSend), and
// the name of a timer (timers.sendAfter). Such a message does not arrive if the task group
// or the timer was stopped before. All messages that a job sends to itself have names:
// shardsArrived, inputRead, recordChanged, outlivedRecorded, inviteAnswered, jobEnded, jobOver
// and the timers in job.go. A job has the most phases of all actors, and the code must show
// which message it takes in which phase.
//
// A step is a function that is sent as a message: the actor calls the function when
// slow work is done (taskGroup.run) or a timer fires (timers.runAfter). The node, workers,
// servers and committers use steps, because their steps do the same in each phase, and
// because a step is written next to the code that begins the work. Links, dispatchers,
// queues of finished tasks and the memory use steps for the same reasons.
//
// Messages with * also travel between nodes, as messages of the contract between nodes
// (contract.go, service.go). Another node receives them only through System.Service. A
// compaction in this table is the work to make one object for a committer
// (compactions.go).
//
//	message         from → to        meaning                              loss allowed?
//	nodeRequest     System, job,     a request to a node, from this       as the request inside: hint, drain,
//	                peer → node      process or another node              invite, dismiss, Heartbeat, Assignment
//	hint *          → node           a job has no owner, was cancelled    yes, scans and records show it too
//	drain *         → node           leave the cluster                    answered
//	invite *        job → node       work for this job                    yes, repeated; answered by invited
//	dismiss *       job → node       the job has ended                    yes, the worker reads the record
//	Heartbeat *     worker → job     my rows, my room, my written parts   yes, the next one repeats it
//	Assignment *    job → worker     your rows, your committed parts      yes, the next one repeats it
//	compactionRequest *
//	                committer →      state of this compaction? It starts  yes, repeated; answered without
//	                System           if it is unknown                     the node actor
//	jobQuestion     System, peer →   a question for an actor of a job,    answered
//	                node             such as getRow or LocateRows
//	getRow          System → job     where is this row?                   answered
//	LocateRows *    System → job     which node has how many rows?        answered
//	facts *         System → System  send the facts about your node       answered without the node actor, which may be blocked
//	figures *       System → System  send your load and your work         the same
//	listActors *    System → System  list your actors                     the same
//	jobOver         job → node       nothing is left to do                no
//	jobHarmless     job → node       the job has not crashed the node     no, the end of the job has the same effect
//	workerEnded     worker → node    the worker has ended                 no
//	leaseChanged    System → node    a session was opened, or has ended   no
//	membersChanged  System → node    nodes joined, left or changed        no
//	attachEngine,   System → node    add an engine, remove an engine      no
//	detachEngine
//	leaveNode       node → server    give back the waiting rows           answered by engineLeft
//	engineChanged   server → node    up, down, other or paused models     no, repeated at the next change
//	enginesChanged  node → job,      the present engines; a job gets      as above
//	                worker           the engines of all nodes
//	openQueue       worker → server  I have rows of this job for you      answered by queueOpened, queueRefused
//	adopt           node → worker    the job has this owner now           no
//	partWritten     job → committer  a part object is durable             its rows run again
//	partsCommitted  committer → job  the store has recorded these parts   no
//	jobError, jobSucceeded
//	                committer → job  an error, or the recorded success    no
//	recordTimer     node → job       a client has cancelled the job       yes, the job reads its record
//	drainJob, drainWorker, drainResults, resultsDrained
//	                down and up the tree: finish, commit, give back       no
//
// # Owners and workers
//
// The owner of a job assigns its rows to workers. Each node that serves the model has a
// worker, also the owner's node. The owner and each worker keep track of the worker's
// rows (package assign). Heartbeats and assignments state the complete situation, not
// changes, so they may be lost, repeated or reordered. Each batch of rows has a number,
// and is repeated until the other side has confirmed it. A worker continues after its
// owner has ended. The next owner, with a higher epoch, waits for a heartbeat of each
// worker before it assigns a row.
//
// A worker is lost when it is silent for Config.Ownership.LeaseTTL, or when its node
// refuses connections. Its rows are assigned again. If the worker comes back, it must
// drop these rows. If a worker's finished rows are not committed in time, the worker
// starts no more rows, so that a crash loses few rows.
//
// # Where decisions live
//
// Actors move messages. Plain structs and packages without actors make the
// decisions.
//
//	job     jobOwnership (its record), inputReader (its input), jobWorkers (its workers, and
//	        the messages to them), invitations, jobEnder (its end); ingest, assign, commit
//	worker  report (heartbeats to the owner), work (which rows are loaded, sent and flushed
//	        within the memory), order (which row is next)
//	server  dispatch (which row goes to the server when, its outcome, whether the server is
//	        in use) and engine.Window (how many rows at a time)
//	node    claims (which jobs it owns or should claim), workerTable (its workers and its
//	        places for workers), engines (the engines here and on other nodes), clusterView
//	        (the order of nodes, lost processes), bucketReach (whether it can use the
//	        bucket), nodes (the states that nodes send each other), retention (expired data)
//
// The node actor has three parts that run in its mailbox: nodeJobs, nodeWorkers and
// cleaner. Each has its own task, state and timers.
//
// The jobWorkers of a job collects messages to workers, and the job sends them after each
// message. An assignment states the complete situation, so a worker gets at most one
// message.
//
// Rows travel between goroutines as *dispatch.RowTask. A dispatcher's goroutines take
// tasks from its queues and put them, with their outcome, into the worker's
// dispatch.Completions. Completions announces any number of tasks with one message.
package actors
