package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rowmill/rowmill/internal/must"
)

// The GPU benchmark runs in its form for a CPU, from start to end, on the simulator.
// The test checks that all contenders answer all rows, and that results and tables have
// the right content. It does not check speed. `make bench/gpu/cpu` runs it on real
// servers.
func TestGPUBenchmarkOnAProcessor(t *testing.T) {
	t.Parallel()
	dir := must.Get(filepath.Abs(t.ArtifactDir()))(t)
	for _, program := range []string{"run", "generator"} {
		build := exec.CommandContext(t.Context(), "go", "build", "-tags=nomsgpack", "-o", filepath.Join(dir, program), "./bench/"+program)
		build.Dir, build.Env = "..", append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v\n%s", program, err, out)
		}
	}
	results := filepath.Join(dir, "results")
	gpu := func(args ...string) (string, error) {
		run := exec.CommandContext(t.Context(), filepath.Join(dir, "run"),
			append([]string{"-rounds", "1", "-dir", filepath.Join(dir, "work"), "-rowmill", binary, "-built", dir, "gpu", "-out", results}, args...)...)
		run.Dir = ".."
		out, err := run.CombinedOutput()
		return string(out), err
	}
	if out, err := gpu("-cpu", "-server", "sim", "-length", "1s", "look", "tiny"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	var measured struct {
		Steps []struct {
			Measured  float64 `json:"measured_ms"`
			Simulated float64 `json:"simulated_ms"`
		} `json:"steps"`
		Runs []struct {
			Contender string  `json:"contender"`
			Tokens    float64 `json:"tokens_per_s"`
		} `json:"runs"`
		Best string `json:"best"`
	}
	data := must.Get(os.ReadFile(filepath.Join(results, "tiny.json")))(t)
	must.Succeed(t, json.Unmarshal(data, &measured))
	if len(measured.Steps) != 3 || len(measured.Runs) != 3 || !strings.HasPrefix(measured.Best, "generator") {
		t.Errorf("%d steps and %d runs, the best of them %q: want 3, 3 and a generator", len(measured.Steps), len(measured.Runs), measured.Best)
	}
	for i, s := range measured.Steps {
		if s.Measured == 0 || s.Simulated <= 0 {
			t.Errorf("step %d took %v ms, simulated %v ms", i, s.Measured, s.Simulated)
		}
	}
	for _, r := range measured.Runs {
		if r.Tokens <= 0 {
			t.Errorf("%s: %v tokens/s", r.Contender, r.Tokens)
		}
	}

	out, err := gpu("table")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"shows only that the program works", "| rowmill |", "(best)", "one token of each of 8 sequences", "goal: 10 %"} {
		if !strings.Contains(out, want) {
			t.Errorf("the table lacks %q:\n%s", want, out)
		}
	}
	// On a machine without the requirements, the program lists them.
	out, err = gpu("-python", "/nowhere/python3", "look")
	for _, want := range []string{"no NVIDIA GPU can be used here", "nvidia-smi:", "/nowhere/python3 does not run", "With -cpu"} {
		if err == nil || !strings.Contains(out, want) {
			t.Errorf("without a GPU: %v, which lacks %q: %s", err, want, out)
		}
	}
}
