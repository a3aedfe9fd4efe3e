// Package dispatch brings the rows of jobs to one inference server and its
// answers back. It owns what may be sent when: the turn of a job at a server
// that several share (Dispatcher), which of a worker's rows goes next and which
// must wait (Rows), how long an answer may take, when a model rests on the server
// (the breaker of its route), whether the server is in use (Health), and what
// becomes of a row after an attempt (Classifier). It knows no actors, no owners
// of jobs and no objects: rows come in as tasks and leave as tasks, with their
// outputs.
//
//	worker ─ Rows.Take ─► Queue ┐
//	                            ├─► Dispatcher ─► engine.Call ─► Classifier ┐
//	another job ────────► Queue ┘   window, breaker, latency               │
//	worker ◄──────────── Outbox ◄───────────────────────────────────────────┘
//
// A Dispatcher runs requests on goroutines of its own and puts their tasks into
// the outbox of the worker, which hears of any number of them once.
package dispatch
