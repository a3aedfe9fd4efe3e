package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rowmill/rowmill/catalog"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/engine/discover"
)

func TestLineupMixesNothing(t *testing.T) {
	t.Parallel()
	const realOne, madeUp = "real", "simulated"
	for _, test := range []struct {
		name    string
		never   bool
		inUse   string // empty for undecided
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
			l := &lineup{simulatedNever: test.never}
			if test.inUse != "" {
				l.settle(test.inUse == madeUp)
				l.settle(test.inUse != madeUp) // the first one has decided
			}
			f := discover.Found{Address: "127.0.0.1:8000", Info: engine.Info{Simulated: test.found == madeUp}}
			reason := l.refuse(f)
			if !strings.Contains(reason, test.refused) || (reason == "") != (test.refused == "") {
				t.Errorf("refused for %q, want %q", reason, test.refused)
			}
			if passed := l.passedOver(); (len(passed) == 1) != (reason != "") {
				t.Errorf("passed over: %+v", passed)
			}
			if l.simulates() != (test.inUse == madeUp) {
				t.Errorf("simulates: %v", l.simulates())
			}
		})
	}
}

func TestServesTellsTheCatalogsModels(t *testing.T) {
	t.Parallel()
	m := &Main{Catalog: catalog.Default()}
	all := m.Catalog.All()
	var info engine.Info
	for _, model := range all { // as servers call them
		info.Models = append(info.Models, engine.ServedModel{Name: model.EngineNames[0]}, engine.ServedModel{Name: model.ID})
	}
	if got := m.served(info); len(got) != len(all) || got[0] != all[0].ID {
		t.Errorf("all models are %v", got)
	}
	if got := m.serves(info); !strings.HasPrefix(got, all[0].ID+", ") || !strings.HasSuffix(got, fmt.Sprintf(" and %d more", len(all)-5)) || strings.Count(got, ",") != 4 {
		t.Errorf("all models are %q", got)
	}
	if got, want := m.serves(offers([]string{all[1].EngineNames[0], "own"})), all[1].ID; got != want {
		t.Errorf("one model is %q, want %q", got, want)
	}
	if got := m.serves(offers([]string{"own"})); got != "none of the catalog's models (its own: own)" {
		t.Errorf("none is %q", got)
	}
}
