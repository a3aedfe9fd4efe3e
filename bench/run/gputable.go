package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
)

// printGPU prints the tables of all result files in a directory, and lists stages
// without a file.
func printGPU(w io.Writer, dir string) error {
	printed := false
	for _, stage := range append([]workload{processorWorkload}, workloads...) {
		data, err := os.ReadFile(filepath.Join(dir, stage.name+".json"))
		if errors.Is(err, os.ErrNotExist) {
			continue
		} else if err != nil {
			return fmt.Errorf("read results: %w", err)
		}
		var r gpuResult
		if err := json.Unmarshal(data, &r); err != nil {
			return fmt.Errorf("read results of %s: %w", stage.name, err)
		}
		r.print(w)
		printed = true
	}
	if !printed {
		return fmt.Errorf("%s contains no results: run a stage first", dir)
	}
	return nil
}

func (r *gpuResult) print(w io.Writer) {
	m := r.Machine
	where := m.GPU
	switch {
	case m.Server == simServer:
		where = "no GPU: the simulator, which shows only that the program works"
	case m.CPU:
		where = "no GPU: a tiny model on a processor, which shows only that the program works"
	}
	version := map[string]string{vllmServer: " " + m.VLLM, torchServer: ", our own, on torch " + m.Torch}[m.Server]
	fmt.Fprintf(w, "\n%s: %s; server: %s%s; prompts of %d tokens, answers of %d in the mean; commit %s, %s\n",
		r.Workload, where, m.Server, version, r.Prompt, r.Answer, m.Commit, r.Begun.Format("2006-01-02"))
	r.printSteps(w)
	if len(r.Runs) > 0 {
		r.printRuns(w)
	}
}

func (r *gpuResult) printSteps(w io.Writer) {
	t := table{head: []string{"step", "measured, ms", "simulated, ms", "simulator's error"}}
	var off spread
	for _, s := range r.Steps {
		simulated, wrong := "–", "–"
		if e, ok := s.Error(); ok {
			simulated, wrong = short(s.Simulated), fmt.Sprintf("%+.1f %%", 100*e)
			off = append(off, math.Abs(e))
		}
		t.add(s.String(), fmt.Sprintf("%s (%s–%s)", short(s.Measured), short(s.Least), short(s.Greatest)), simulated, wrong)
	}
	fmt.Fprintln(w)
	t.print(w)
	if len(off) > 0 {
		fmt.Fprintf(w, "\nProfile %s: off by %.1f %% in the median (goal: 10 %%).\n", r.Machine.Profile, 100*off.median())
	}
}

func (r *gpuResult) printRuns(w io.Writer) {
	t := table{head: []string{
		"contender", "tokens/s", "÷ best generator", "rows/s", "running", "peak at the server", "95 % of its rate after, s",
		"fewer ran than the best kept, % of the time",
	}}
	base := r.spread(r.Best, tokensOf)
	seen := map[string]bool{}
	for _, run := range r.Runs {
		if seen[run.Contender] {
			continue
		}
		seen[run.Contender] = true
		name, f := run.Contender, func(value func(gpuRun) float64) spread { return r.spread(run.Contender, value) }
		if name == r.Best {
			name += " (best)"
		}
		t.add(name, f(tokensOf).String(), f(tokensOf).over(base).precise(), f(func(r gpuRun) float64 { return r.RowRate }).String(),
			f(func(r gpuRun) float64 { return r.Running }).String(), f(func(r gpuRun) float64 { return r.Peak }).String(),
			f(func(r gpuRun) float64 { return r.Reached }).String(),
			f(func(r gpuRun) float64 { return 100 * r.Short }).String())
	}
	fmt.Fprintln(w)
	t.print(w)
	if own, best := r.spread("rowmill", promptOf).median(), r.spread(r.Best, promptOf).median(); math.Abs(own-best) > 0.01*best {
		fmt.Fprintf(w, "\nNOT COMPARABLE: to the server Rowmill's prompts have %.1f tokens in the mean, the generator's %.1f.\n", own, best)
	}
	more := 100 * (r.spread("rowmill", shortOf).median() - r.spread(r.Best, shortOf).median())
	fmt.Fprintf(w, "\nThe best generator kept %.0f sequences running (fewer in one reading of twenty). Idle that Rowmill causes: fewer ran in %.2f %% more of the steady time than under the generator (goal: 1 %%).\n",
		r.Kept, more)
}

func promptOf(r gpuRun) float64 { return r.Prompt }
func shortOf(r gpuRun) float64  { return r.Short }
