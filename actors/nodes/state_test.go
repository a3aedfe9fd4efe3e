package nodes

import (
	"slices"
	"testing"

	"github.com/rowmill/rowmill/cluster"
	"github.com/rowmill/rowmill/engine"
)

// TestStateNear changes a state and checks whether the change needs to be sent.
func TestStateNear(t *testing.T) {
	t.Parallel()
	said := State{Version: "v1", Jobs: 1, Engines: []Engine{
		{Name: "gpu", Kind: "vllm", Window: 100, InFlight: 60, Models: []engine.ServedModel{{Name: "m"}}},
	}}
	for name, test := range map[string]struct {
		change func(*State)
		near   bool
	}{
		"nothing":             {func(*State) {}, true},
		"a little more load":  {func(s *State) { s.Engines[0].InFlight = 85 }, true},
		"much more load":      {func(s *State) { s.Engines[0].InFlight = 86 }, false},
		"much less load":      {func(s *State) { s.Engines[0].InFlight = 34 }, false},
		"no load":             {func(s *State) { s.Engines[0].InFlight = 0 }, false},
		"a wider window":      {func(s *State) { s.Engines[0].Window = 125 }, true},
		"a much wider window": {func(s *State) { s.Engines[0].Window = 126 }, false},
		"another model":       {func(s *State) { s.Engines[0].Models = []engine.ServedModel{{Name: "n"}} }, false},
		"a model rests":       {func(s *State) { s.Engines[0].Resting = map[engine.Route]string{"m": "HTTP 500, http_500"} }, false},
		"another kind":        {func(s *State) { s.Engines[0].Kind = "sglang" }, false},
		"no engine":           {func(s *State) { s.Engines = nil }, false},
		"another engine":      {func(s *State) { s.Engines = append(s.Engines, Engine{Name: "gpu2"}) }, false},
		"a job":               {func(s *State) { s.Jobs = 2 }, false},
		"draining":            {func(s *State) { s.Draining = true }, false},
	} {
		now := said
		now.Engines = slices.Clone(said.Engines)
		test.change(&now)
		if now.IsCloseTo(said) != test.near {
			t.Errorf("%s: near is %v", name, !test.near)
		}
	}
	few := State{Engines: []Engine{{Window: 100, InFlight: 1}}}
	if none := (State{Engines: []Engine{{Window: 100}}}); none.IsCloseTo(few) || few.IsCloseTo(none) {
		t.Error("a row or none make no difference")
	}
}

func TestReadAStateOfAnotherVersion(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		doc string
		ok  bool
	}{
		"nothing yet":        {"", false},
		"not a document":     {"{", false},
		"of another version": {`{"version":"v9","jobs":2,"colour":"red","engines":[{"name":"gpu","window":8,"in_flight":3,"models":[{"Name":"m"}]}]}`, true},
	} {
		s, ok := DecodeState(cluster.Member{State: []byte(test.doc)})
		if ok != test.ok {
			t.Errorf("%s: ok is %v", name, ok)
		}
		if ok && (s.Jobs != 2 || s.Engines[0].Window != 8 || s.Engines[0].InFlight != 3 || s.Engines[0].Models[0].Name != "m") {
			t.Errorf("%s: read %+v", name, s)
		}
	}
}
