package nodes

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/rowmill/rowmill/cluster"
	"github.com/rowmill/rowmill/engine"
)

// A State is the information about a node that the node sends to all other nodes.
type State struct {
	Version  string    `json:"version"`
	Since    time.Time `json:"since"` // start time of the node
	Draining bool      `json:"draining,omitempty"`
	Jobs     int       `json:"jobs"` // number of jobs that the node owns
	Engines  []Engine  `json:"engines,omitempty"`
	Demand   []Demand  `json:"demand,omitempty"` // unfinished rows of the jobs that the node owns, by model

	// Objects says whether the node can use the bucket: Reached or Away; empty if unknown.
	Objects string `json:"objects,omitempty"`
}

// Values of State.Objects: the node can use the bucket (Reached) or cannot (Away).
const (
	Reached = "reached"
	Away    = "away"
)

// ReachingBucket returns the members that own jobs, do not drain, and report that they can
// use the bucket.
func ReachingBucket(members []cluster.Member) (reach []cluster.Member) {
	for _, m := range members {
		if s, ok := DecodeState(m); ok && m.Owns && !s.Draining && s.Objects == Reached {
			reach = append(reach, m)
		}
	}
	return reach
}

// An Engine is an inference server in use on a node.
type Engine struct {
	Name      string               `json:"name"`
	Kind      string               `json:"kind"`
	Simulated bool                 `json:"simulated,omitempty"`
	Window    int                  `json:"window"`    // number of rows that may be in flight at the server
	InFlight  int                  `json:"in_flight"` // number of rows in flight at the server
	Models    []engine.ServedModel `json:"models,omitempty"`

	// Resting has the routes that are not in use, and the reason for each.
	Resting map[engine.Route]string `json:"resting,omitempty"`

	// Stopped means that the server does not run, and that its node can start it.
	Stopped bool `json:"stopped,omitempty"`
	// Failure is why the last run of a stopped server ended; empty after an answer.
	Failure string `json:"failure,omitempty"`
}

// DecodeState decodes the last state that a member has sent; ok is false if there is none.
func DecodeState(m cluster.Member) (s State, ok bool) {
	return s, len(m.State) > 0 && json.Unmarshal(m.State, &s) == nil
}

// loadStep is the smallest change of an engine's load that a node sends to other nodes,
// as a fraction of the engine's window. A job changes the load of its engines all the
// time, so without this limit each node would send its state all the time.
const loadStep = 0.25

// IsCloseTo reports whether a node need not send its state s to nodes that have its earlier
// state sent. This is true if only the load has changed, and only a little.
func (s State) IsCloseTo(sent State) bool {
	return s.Draining == sent.Draining && s.Objects == sent.Objects && s.Jobs == sent.Jobs && slices.EqualFunc(s.Engines, sent.Engines, Engine.isCloseTo) &&
		slices.EqualFunc(s.Demand, sent.Demand, Demand.IsCloseTo)
}

// isCloseTo reports whether an engine differs from its earlier state sent only by a small
// change of its load.
func (e Engine) isCloseTo(sent Engine) bool {
	step := loadStep * float64(sent.Window)
	far := func(now, before int) bool { return math.Abs(float64(now-before)) > step }
	return e.Name == sent.Name && e.Stopped == sent.Stopped && e.Failure == sent.Failure && e.Kind == sent.Kind && e.Simulated == sent.Simulated && slices.Equal(e.Models, sent.Models) && maps.Equal(e.Resting, sent.Resting) &&
		(e.InFlight == 0) == (sent.InFlight == 0) && !far(e.InFlight, sent.InFlight) && !far(e.Window, sent.Window)
}
