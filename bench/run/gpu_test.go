package main

import (
	"math"
	"strings"
	"testing"
	"time"
)

// ran returns a course in which the server generates one token per reading in all, with
// the given numbers of running sequences.
func ran(running ...float64) (c course) {
	for i, n := range running {
		c = append(c, reading{at: time.Unix(int64(i), 0), done: float64(i), running: n})
	}
	return c
}

// steady returns a course of 101 readings with one number of running sequences, except
// for the given readings.
func steady(level float64, others map[int]float64) course {
	running := make([]float64, 101)
	for i := range running {
		running[i] = level
		if n, ok := others[i]; ok {
			running[i] = n
		}
	}
	return ran(running...)
}

// The generator kept the number of sequences that ran in at least 19 of 20 readings of
// its steady part. A run is short while it has fewer. Readings outside the steady part
// do not matter.
func TestSequencesThatAreMissing(t *testing.T) {
	t.Parallel()
	idle := map[int]float64{0: 0, 5: 1, 95: 1, 100: 0}
	r := gpuResult{Runs: []gpuRun{
		{Contender: "rowmill", Tokens: 99, course: steady(256, map[int]float64{0: 0, 30: 128, 31: 128, 32: 64})},
		{Contender: "generator, 128 in flight", Bare: true, Tokens: 70, course: steady(128, idle)},
		{Contender: "generator, 256 in flight", Bare: true, Tokens: 100, course: steady(256, map[int]float64{40: 250, 100: 0})},
	}}
	r.compare()
	if r.Best != "generator, 256 in flight" || r.Kept != 256 {
		t.Errorf("the best generator is %q and kept %v, want that of 256 and 256", r.Best, r.Kept)
	}
	for i, want := range []float64{3 / 59.0, 1, 1 / 59.0} {
		if got := r.Runs[i]; math.Abs(got.Short-want) > 1e-9 {
			t.Errorf("%s: short %v, want %v", got.Contender, got.Short, want)
		}
	}
}

func TestGPUServerChosen(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		machine machine
		wanted  string
		server  string
		profile string
		wrong   string // part of the error
	}{
		{name: "vLLM first", machine: machine{GPU: "NVIDIA H100 80GB HBM3", Torch: "2.11", VLLM: "0.32"}, wanted: "auto", server: vllmServer, profile: "llama-3.1-8b/h100"},
		{name: "else torch", machine: machine{GPU: "NVIDIA H200", Torch: "2.11"}, wanted: "auto", server: torchServer, profile: "llama-3.1-8b/h200"},
		{name: "a GPU without a profile", machine: machine{GPU: "NVIDIA L40S", Torch: "2.11"}, wanted: "auto", server: torchServer},
		{name: "as wanted", machine: machine{GPU: "NVIDIA H100", Torch: "2.11", VLLM: "0.32"}, wanted: torchServer, server: torchServer, profile: "llama-3.1-8b/h100"},
		{name: "no GPU", machine: machine{Torch: "2.11", VLLM: "0.32"}, wanted: "auto", wrong: "no NVIDIA GPU"},
		{name: "not there", machine: machine{GPU: "NVIDIA H100", Torch: "2.11"}, wanted: vllmServer, wrong: "does not have it"},
		{name: "no real server", machine: machine{GPU: "NVIDIA H100", Torch: "2.11"}, wanted: simServer, wrong: "not a real server"},
		{name: "processor, nothing there", machine: machine{CPU: true}, wanted: "auto", server: simServer, profile: "llama-3.1-8b/h100"},
		{name: "processor, torch", machine: machine{CPU: true, Torch: "2.11"}, wanted: "auto", server: torchServer},
		{name: "processor beside a GPU", machine: machine{CPU: true, GPU: "NVIDIA H100", Torch: "2.11"}, wanted: "auto", server: torchServer},
	} {
		m := test.machine
		var err error
		m.Server, err = m.choose(test.wanted)
		switch {
		case test.wrong != "":
			if err == nil || !strings.Contains(err.Error(), test.wrong) {
				t.Errorf("%s: error %v, want one with %q", test.name, err, test.wrong)
			}
		case err != nil || m.Server != test.server || m.profile() != test.profile:
			t.Errorf("%s: server %q, profile %q, error %v; want %q and %q", test.name, m.Server, m.profile(), err, test.server, test.profile)
		}
	}
}

// The table has one line per contender with all its rounds. Added idle time is relative
// to the generator's.
func TestGPUTable(t *testing.T) {
	t.Parallel()
	r := gpuResult{
		Workload: "short", Prompt: 300, Answer: 150, Best: "generator, 256 in flight", Kept: 250,
		Machine: machine{Server: torchServer, Torch: "2.11", GPU: "NVIDIA H100", Profile: "llama-3.1-8b/h100"},
	}
	for i := range 2 {
		r.Runs = append(r.Runs,
			gpuRun{Contender: "rowmill", Prompt: 300, Tokens: 990, Short: 0.07},
			gpuRun{Contender: "generator, 256 in flight", Bare: true, Prompt: 300, Tokens: 1000 + float64(i)*100, Short: 0.04})
	}
	var out strings.Builder
	r.print(&out)
	for _, want := range []string{
		"NVIDIA H100; server: torch, our own, on torch 2.11", "| rowmill | 990 (990–990) | 0.945 (0.900–0.990) |",
		"| generator, 256 in flight (best) | 1050 (1000–1100) | 1.000 (1.000–1.000) |",
		"fewer ran in 3.00 % more of the steady time",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "NOT COMPARABLE") {
		t.Error("equal prompts are said to differ")
	}
	if got := strings.Count(out.String(), "| rowmill |"); got != 1 {
		t.Errorf("rowmill stands in the table %d times", got)
	}
	// A contender with cut prompts had less work, so it has no figure.
	for i := range r.Runs {
		if !r.Runs[i].Bare {
			r.Runs[i].Prompt = 290
		}
	}
	out.Reset()
	if r.print(&out); !strings.Contains(out.String(), "NOT COMPARABLE: to the server Rowmill's prompts have 290.0 tokens in the mean, the generator's 300.0") {
		t.Errorf("other prompts are not said to be others:\n%s", out.String())
	}
}
