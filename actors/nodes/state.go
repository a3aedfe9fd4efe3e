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

// A State is what a node tells the others of itself.
type State struct {
	Version  string    `json:"version"`
	Since    time.Time `json:"since"` // when it started
	Draining bool      `json:"draining,omitempty"`
	Jobs     int       `json:"jobs"` // that it owns
	Engines  []Engine  `json:"engines,omitempty"`

	// Objects is Reached or Away; empty of a node that does not say.
	Objects string `json:"objects,omitempty"`
}

// What a node says of the bucket.
const (
	Reached = "reached"
	Away    = "away"
)

// Reaching are those of the members that own jobs and say that they can use the
// bucket.
func Reaching(members []cluster.Member) (reach []cluster.Member) {
	for _, m := range members {
		if s, ok := Read(m); ok && m.Owns && !s.Draining && s.Objects == Reached {
			reach = append(reach, m)
		}
	}
	return reach
}

// An Engine is an inference server of a node that is up.
type Engine struct {
	Name      string               `json:"name"`
	Kind      string               `json:"kind"`
	Simulated bool                 `json:"simulated,omitempty"`
	Window    int                  `json:"window"`
	InFlight  int                  `json:"in_flight"`
	Models    []engine.ServedModel `json:"models,omitempty"`

	// Resting says why ways through it are not in use.
	Resting map[engine.Route]string `json:"resting,omitempty"`
}

// Read reads what a member last said; ok is false before it said anything.
func Read(m cluster.Member) (s State, ok bool) {
	return s, len(m.State) > 0 && json.Unmarshal(m.State, &s) == nil
}

// loadStep is the least change of an engine's load that the others hear of, as
// a part of its window: a job keeps its engines full, and rows that come and go
// would have each node tell all others of it without end.
const loadStep = 0.25

// Near reports whether others who know said need not hear of s: nothing but a
// little load has changed.
func (s State) Near(said State) bool {
	return s.Draining == said.Draining && s.Objects == said.Objects && s.Jobs == said.Jobs && slices.EqualFunc(s.Engines, said.Engines, Engine.near)
}

func (e Engine) near(said Engine) bool {
	step := loadStep * float64(said.Window)
	far := func(now, before int) bool { return math.Abs(float64(now-before)) > step }
	return e.Name == said.Name && e.Kind == said.Kind && e.Simulated == said.Simulated && slices.Equal(e.Models, said.Models) && maps.Equal(e.Resting, said.Resting) &&
		(e.InFlight == 0) == (said.InFlight == 0) && !far(e.InFlight, said.InFlight) && !far(e.Window, said.Window)
}
