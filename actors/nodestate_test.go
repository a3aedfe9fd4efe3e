package actors

import (
	"slices"
	"testing"

	"github.com/rowmill/rowmill/engine"
)

// TestStateNear changes a state, and says whether the others need not hear of
// it.
func TestStateNear(t *testing.T) {
	t.Parallel()
	said := nodeState{Version: "v1", Jobs: 1, Engines: []engineState{
		{Name: "gpu", Kind: "vllm", Window: 100, InFlight: 60, Models: []engine.ServedModel{{Name: "m"}}},
	}}
	for name, test := range map[string]struct {
		change func(*nodeState)
		near   bool
	}{
		"nothing":             {func(*nodeState) {}, true},
		"a little more load":  {func(s *nodeState) { s.Engines[0].InFlight = 85 }, true},
		"much more load":      {func(s *nodeState) { s.Engines[0].InFlight = 86 }, false},
		"much less load":      {func(s *nodeState) { s.Engines[0].InFlight = 34 }, false},
		"no load":             {func(s *nodeState) { s.Engines[0].InFlight = 0 }, false},
		"a wider window":      {func(s *nodeState) { s.Engines[0].Window = 125 }, true},
		"a much wider window": {func(s *nodeState) { s.Engines[0].Window = 126 }, false},
		"another model":       {func(s *nodeState) { s.Engines[0].Models = []engine.ServedModel{{Name: "n"}} }, false},
		"another kind":        {func(s *nodeState) { s.Engines[0].Kind = "sglang" }, false},
		"no engine":           {func(s *nodeState) { s.Engines = nil }, false},
		"another engine":      {func(s *nodeState) { s.Engines = append(s.Engines, engineState{Name: "gpu2"}) }, false},
		"a job":               {func(s *nodeState) { s.Jobs = 2 }, false},
		"draining":            {func(s *nodeState) { s.Draining = true }, false},
	} {
		now := said
		now.Engines = slices.Clone(said.Engines)
		test.change(&now)
		if now.near(said) != test.near {
			t.Errorf("%s: near is %v", name, !test.near)
		}
	}
	few := nodeState{Engines: []engineState{{Window: 100, InFlight: 1}}}
	if none := (nodeState{Engines: []engineState{{Window: 100}}}); none.near(few) || few.near(none) {
		t.Error("a row or none make no difference")
	}
}
