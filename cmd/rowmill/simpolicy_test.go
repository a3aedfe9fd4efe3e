package main

import (
	"strings"
	"testing"

	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/engine/discover"
)

func TestSimulatedIsNeverMixedWithReal(t *testing.T) {
	t.Parallel()
	const realOne, madeUp = "real", "simulated"
	for _, test := range []struct {
		name    string
		never   bool
		inUse   string // empty: no server in use
		found   string
		refused string
	}{
		{"first, real", false, "", realOne, ""},
		{"first, simulated", false, "", madeUp, ""},
		{"real beside real", false, realOne, realOne, ""},
		{"simulated beside simulated", false, madeUp, madeUp, ""},
		{"real beside simulated", false, madeUp, realOne, "restart the node, with --engine http://127.0.0.1:8000"},
		{"simulated beside real", false, realOne, madeUp, "outputs are real"},
		{"never simulated", true, "", madeUp, "simulator.enabled is never"},
		{"never simulated, real", true, "", realOne, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := &simulationPolicy{simulatedNever: test.never}
			if test.inUse != "" {
				p.decideOnce(test.inUse == madeUp)
				p.decideOnce(test.inUse != madeUp) // has no effect: the first call decides
			}
			f := discover.FoundServer{Address: "127.0.0.1:8000", Info: engine.ServerInfo{Simulated: test.found == madeUp}}
			reason := p.refusalReason(f)
			if !strings.Contains(reason, test.refused) || (reason == "") != (test.refused == "") {
				t.Errorf("refused for %q, want %q", reason, test.refused)
			}
			if passed := p.unusedServers(); (len(passed) == 1) != (reason != "") {
				t.Errorf("passed over: %+v", passed)
			}
			if p.isSimulating() != (test.inUse == madeUp) {
				t.Errorf("simulates: %v", p.isSimulating())
			}
		})
	}
}
