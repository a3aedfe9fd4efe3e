package main

import (
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill/engine/sim"
)

func TestSimulatorFlags(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args, out, err string
		code           int
	}{
		{"sim --help", "qwen3-235b/h200", "", 0},
		{"sim --help", "schema_violation", "", 0},
		{"sim --gpu llama-3.1-8b", "", "choose one of llama-3.1-8b/h100, llama-3.1-8b/h200", 2},
		{"sim --gpu llama-3.1-8b/h100 --slots 8", "", "--slots and --gpu exclude each other", 2},
		{"sim --gpu llama-3.1-8b/h100 --ttft 1s", "", "--ttft and --gpu exclude each other", 2},
		{"sim --gpu llama-3.1-8b/h100 --per-token 1s", "", "--per-token and --gpu exclude each other", 2},
		{"sim --gpu llama-3.1-8b/h100 --max-num-seqs 1025", "", "--max-num-seqs must be between 1 and 1024, is 1025", 2},
		{"sim --gpu llama-3.1-8b/h100 --queue-limit -1", "", "QueueLimit is -1", 2},
		{"sim --max-num-seqs 8", "", "add --gpu, or use --slots", 2},
		{"sim --fault fire=0.1", "", "choose from 429, 500", 2},
		{"sim --fault 500=often", "", "--fault 500=often: the rate must be a number", 2},
		{"sim --fault 500=1.5", "", "the rate of 500 is 1.5", 2},
		{"sim --revive-after 1s", "", "revive_after needs die_after", 2},
	} {
		code, out, errOut := runCommand(t.Context(), nil, "", strings.Fields(test.args)...)
		if code != test.code || !strings.Contains(out, test.out) || !strings.Contains(errOut, test.err) {
			t.Errorf("rowmill %s: code %d, want %d\n%s\n%s", test.args, code, test.code, out, errOut)
		}
	}
}

func TestFaultFlags(t *testing.T) {
	t.Parallel()
	var got sim.Faults
	err := faultFlags{
		rates: map[string]string{"503": "0.25", "reset": "1e-3"}, startupDelay: time.Second, dieAfter: time.Minute, reviveAfter: time.Hour,
	}.applyTo(&got)
	want := sim.Faults{
		Rate503: 0.25, Reset: 0.001, StartupDelay: sim.Duration(time.Second),
		DieAfter: sim.Duration(time.Minute), ReviveAfter: sim.Duration(time.Hour),
	}
	if err != nil || got != want {
		t.Errorf("got %+v, %v", got, err)
	}
}
