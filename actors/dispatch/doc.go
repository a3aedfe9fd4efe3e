// Package dispatch sends the rows of jobs to an inference server and returns their
// answers. It decides which job may send next (Dispatcher), which row of a worker is
// sent next and which must wait (PendingRows), how long an answer may take, when the rows
// of a model pause because its requests fail (breaker), whether the server is in use
// (ServerHealth), and whether an attempt is final or is retried (Classifier). It uses no
// actors, no owners of jobs and no objects: rows come in as tasks and leave as tasks with
// outputs.
//
//	worker ─ PendingRows.Take ─► Queue ┐
//	                                   ├─► Dispatcher ─► engine.PreparedCall ─► Classifier ┐
//	another job ───────────────► Queue ┘   window, breaker, latency                       │
//	worker ◄───────────── Completions ◄───────────────────────────────────────────────────┘
//
// A Dispatcher runs requests on its own goroutines and puts the tasks into the worker's
// completions, which notifies the worker once for any number of tasks.
package dispatch
