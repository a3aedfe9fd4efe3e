// Package placement decides which inference servers of a cluster run on which GPUs. It is
// pure: no goroutines, no clock, no I/O. It does not know how a server starts or stops.
package placement

import "time"

// A Phase is the state of a server's process.
type Phase string

// Phases of a server.
const (
	Stopped  Phase = "stopped"
	Loading  Phase = "loading"  // it starts or wakes, and does not answer yet
	Running  Phase = "running"  // it answers
	Sleeping Phase = "sleeping" // its process lives without GPU memory
	Stopping Phase = "stopping" // it drains or ends; its GPUs are not free yet
)

// A Mode says who decides about a server.
type Mode string

// Modes of a server.
const (
	Auto Mode = "auto" // the queue of rows decides
	On   Mode = "on"   // an operator wants the server to run
	Off  Mode = "off"  // an operator forbids the server
)

// A Server is an inference server of a node, with its present state.
type Server struct {
	Name      string        // unique on its node
	Models    []string      // models that the server runs, as in Demand.Model; they share its rate equally
	GPUs      int           // number of GPUs that only this server uses while it is loading, running or stopping; may be 0
	Phase     Phase         // state of the process
	Since     time.Time     // begin of the phase
	On        []int         // GPUs of the process in every phase but Stopped. A sleeping server wakes only on these GPUs; other servers may use them while it sleeps
	Load      time.Duration // time from the start until the server answers, measured or expected
	Wake      time.Duration // time from asleep until the server answers; 0 if the server cannot sleep
	Rate      float64       // tokens per second while the server runs, measured or expected, > 0
	Mode      Mode          // empty is Auto
	Idle      time.Duration // an idle server stops or sleeps after this time; 0: never
	IdleSince time.Time     // since when the server has had no rows; zero if it has rows
	RetryAt   time.Time     // the server does not start before, because its last start failed
}

// A Node is a machine with GPUs and servers. A server runs on the GPUs of its node only.
type Node struct {
	ID      string
	GPUs    []int
	Servers []Server
}

// A Demand is the work that waits or runs for a model in the whole cluster.
type Demand struct {
	Model  string
	Urgent bool      // rows of priority 0 wait or run
	Tokens float64   // tokens of all rows of the model that are not done, input and output
	Since  time.Time // since when rows of the model have waited without a server of it; zero if a server of the model runs
}

// Rules are the operator's limits.
type Rules struct {
	Hold    time.Duration // a server with rows runs at least this long before it makes room, except for urgent rows and modes
	MaxWait time.Duration // a model with rows waits at most about this long before a server with rows of other models makes room for it
}

// A Kind is the kind of an Action.
type Kind string

// Kinds of actions.
const (
	Start Kind = "start" // from Stopped to Loading
	Wake  Kind = "wake"  // from Sleeping to Loading
	Sleep Kind = "sleep" // from Running to Stopping, then Sleeping
	Stop  Kind = "stop"  // from Loading, Running or Sleeping to Stopping, then Stopped
)

// An Action changes the phase of one server.
type Action struct {
	Node, Server string
	Do           Kind
	GPUs         []int // GPUs of Start, in ascending order; nil for other kinds
}
