package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/rowmill/rowmill/bench/gpu"
	"github.com/rowmill/rowmill/engine/sim/batching"
)

// gpuResult is the content of a stage's result file.
type gpuResult struct {
	Workload string     `json:"workload"`
	Prompt   int        `json:"prompt"` // tokens, as generated
	Answer   int        `json:"answer"` // mean tokens, from the number of end tokens
	Machine  machine    `json:"machine"`
	Begun    time.Time  `json:"begun"`
	Steps    []gpu.Step `json:"steps"`
	Runs     []gpuRun   `json:"runs"` // in order of their start
	Best     string     `json:"best"` // name of the best generator
	Kept     float64    `json:"kept"` // sequences that the best generator kept running in 19 of 20 readings
}

// gpuRun holds the figures of a contender in one round.
type gpuRun struct {
	Contender string  `json:"contender"`
	Bare      bool    `json:"bare"` // it is a generator
	Rows      int64   `json:"rows"`
	Prompt    float64 `json:"prompt"`       // mean tokens, counted by the server
	Tokens    float64 `json:"tokens_per_s"` // answer tokens per second in the steady part
	RowRate   float64 `json:"rows_per_s"`   // the same in rows with this run's mean length
	Running   float64 `json:"running"`      // mean sequences in the steady part
	Peak      float64 `json:"peak"`         // largest number of running and waiting sequences
	Preempted float64 `json:"preempted"`
	Reached   float64 `json:"reached_s"` // time from the first request until the rate was nearly steady
	Length    float64 `json:"length_s"`
	Short     float64 `json:"short"` // share of the steady time with fewer sequences than the best generator kept

	course course
}

// measureGPU runs one stage: it starts a server, measures its step times, and runs the
// contenders in turns.
func (b *bench) measureGPU(ctx context.Context, o gpuOptions, m machine, w workload) error {
	result := gpuResult{Workload: w.name, Prompt: w.prompt, Answer: w.answer, Machine: m, Begun: time.Now().UTC()}
	server, address, g, err := b.startGPUServer(ctx, o, m, w)
	if err != nil {
		return err
	}
	defer server.end()
	if result.Steps, err = b.measureSteps(ctx, m, w, address, g); err != nil {
		return err
	}
	// Keep the measurements so far if the time runs out later.
	path := filepath.Join(o.out, w.name+".json")
	if err := writeJSON(path, result); err != nil {
		return err
	}
	contenders, err := b.gpuContenders(ctx, m, w)
	if err != nil {
		return err
	}
	warm, err := b.runOnGPU(ctx, w, contenders[1], address, g, max(int64(w.slots), 16))
	if err != nil {
		return err
	}
	rows := max(int64(warm.RowRate*o.length.Seconds()), int64(w.slots))
	for round := range b.rounds {
		for i := range contenders { // rotate the first contender: a server may slow down over time
			c := contenders[(i+round)%len(contenders)]
			r, err := b.runOnGPU(ctx, w, c, address, g, rows)
			if err != nil {
				return err
			}
			b.log.Info("measured", "workload", w.name, "round", round+1, "contender", c.name,
				"tokens_per_s", short(r.Tokens), "running", short(r.Running))
			result.Runs = append(result.Runs, r)
		}
		result.compare()
		if err := writeJSON(path, result); err != nil {
			return err
		}
	}
	return nil
}

// measureSteps measures the server's steps. A server with little memory may run fewer
// sequences at once; larger steps are skipped with a warning.
func (b *bench) measureSteps(ctx context.Context, m machine, w workload, address string, g gauges) ([]gpu.Step, error) {
	const rounds = 3
	transport := &http.Transport{MaxIdleConnsPerHost: slices.Max(w.decode)}
	defer transport.CloseIdleConnections()
	watch := gpu.Stopwatch{
		Client: &http.Client{Transport: transport}, URL: "http://" + address, Model: model, Shape: w.shape,
		Rounds: rounds, Random: rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1)), Few: w.few, Many: w.many,
	}
	if m.Profile != "" {
		profile, err := batching.FindProfile(m.Profile)
		if err != nil {
			return nil, err
		}
		watch.Profile = &profile
	}
	var steps []gpu.Step
	for _, n := range w.decode {
		warm := watch // the first run warms up the server
		warm.Rounds = 1
		course, err := observe(ctx, address, g, func() error {
			_, err := warm.Decode(ctx, n, w.prompt)
			return err
		})
		if err != nil {
			return nil, err
		}
		// Answers of a tiny model may end between two readings.
		if ran := course.mostRunning(); !m.CPU && ran < float64(n) {
			b.log.Warn("the server cannot run this many sequences at once, skipping their step", "sequences", n, "ran", ran)
			continue
		}
		s, err := watch.Decode(ctx, n, w.prompt)
		if err != nil {
			return nil, err
		}
		b.log.Info("measured", "step", s.String(), "ms", short(s.Measured), "simulated_ms", short(s.Simulated))
		steps = append(steps, s)
	}
	if len(steps) == 0 || steps[0].Batch != 1 {
		return nil, errors.New("the step of one sequence was not measured; measurements of prompts need it")
	}
	alone := time.Duration(steps[0].Measured * float64(time.Millisecond))
	for _, n := range w.prefill {
		s, err := watch.Prefill(ctx, n, alone)
		if err != nil {
			return nil, err
		}
		b.log.Info("measured", "step", s.String(), "ms", short(s.Measured), "simulated_ms", short(s.Simulated))
		steps = append(steps, s)
	}
	return steps, nil
}

// gpuContenders returns the node, and a generator for each number of requests in
// flight. They request no log probabilities, which would measure the server's JSON
// encoding.
func (b *bench) gpuContenders(ctx context.Context, m machine, w workload) ([]driver, error) {
	generator, err := b.build(ctx, "generator")
	if err != nil {
		return nil, err
	}
	sampling := map[string]any{"temperature": 1, "max_tokens": w.most()}
	if m.Server == vllmServer {
		sampling["min_tokens"] = 1 // no empty answers; the PyTorch server never gives any
	}
	fields, err := json.Marshal(sampling)
	if err != nil {
		return nil, fmt.Errorf("encode fields: %w", err)
	}
	asked := maps.Clone(sampling)
	asked["logprobs"] = false
	// A cut row would be less work, so accept no cut rows.
	list := []driver{{name: "rowmill", run: b.nodeDriver(submission{Sampling: asked, Truncate: new(false)})}}
	for _, n := range w.sweep {
		list = append(list, driver{name: fmt.Sprintf("generator, %d in flight", n), bare: true, run: generatorDriver(generator, n, fields)})
	}
	return list, nil
}

// runOnGPU runs a contender on rows that are new to the server.
func (b *bench) runOnGPU(ctx context.Context, w workload, c driver, address string, g gauges, rows int64) (gpuRun, error) {
	in := filepath.Join(b.dir, "gpu-"+w.name+".parquet")
	random := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 2))
	err := writeRows(in, rows, func(text []byte, _ int64) []byte { return w.shape.AppendPrompt(text, random, w.prompt) })
	if err != nil {
		return gpuRun{}, err
	}
	defer os.Remove(in)
	course, err := observe(ctx, address, g, func() error { return c.run(ctx, address, in, rows) })
	if err != nil {
		return gpuRun{}, fmt.Errorf("%s: %w", c.name, err)
	}
	f, err := course.figures() // in tokens, which the gauges count, not in rows
	if err != nil {
		return gpuRun{}, fmt.Errorf("%s: %w", c.name, err)
	}
	return gpuRun{
		Contender: c.name, Bare: c.bare, Rows: rows, Prompt: (course[len(course)-1].prompts - course[0].prompts) / float64(rows), Tokens: f.rate, RowRate: f.rate * float64(rows) / f.done,
		Running: f.batch, Peak: f.peak, Preempted: f.preempted, Reached: f.reached.Seconds(), Length: f.length.Seconds(),
		course: course,
	}, nil
}

// compare computes for each run the share of the steady time with fewer sequences than
// the best generator kept running.
func (r *gpuResult) compare() {
	r.Best = r.bestGenerator()
	var ran []float64
	for _, run := range r.Runs {
		if run.Contender == r.Best {
			ran = append(ran, run.course.steadyRunning()...)
		}
	}
	if len(ran) > 0 { // otherwise the steady part is between two readings
		slices.Sort(ran)
		r.Kept = ran[len(ran)/20]
	}
	for i := range r.Runs {
		run := &r.Runs[i]
		run.Short = below(run.course.steadyRunning(), r.Kept)
	}
}

// bestGenerator returns the generator with the highest median of tokens.
func (r *gpuResult) bestGenerator() string {
	best, most := "", 0.0
	for _, run := range r.Runs {
		if !run.Bare {
			continue
		}
		if rate := r.spread(run.Contender, tokensOf).median(); rate > most {
			best, most = run.Contender, rate
		}
	}
	return best
}

func tokensOf(r gpuRun) float64 { return r.Tokens }

// spread returns a figure of all rounds of a contender.
func (r *gpuResult) spread(contender string, value func(gpuRun) float64) (s spread) {
	for _, run := range r.Runs {
		if run.Contender == contender {
			s = append(s, value(run))
		}
	}
	return s
}

// steadyRunning returns the running sequences of each reading in the steady part.
func (c course) steadyRunning() (ran []float64) {
	from, to := c.steady()
	for _, r := range c {
		if r.at.After(from) && r.at.Before(to) {
			ran = append(ran, r.running)
		}
	}
	return ran
}

// mostRunning returns the largest number of running sequences.
func (c course) mostRunning() (most float64) {
	for _, r := range c {
		most = max(most, r.running)
	}
	return most
}

// below returns the share of readings with fewer running sequences than kept.
func below(ran []float64, kept float64) float64 {
	fewer := 0
	for _, n := range ran {
		if n < kept {
			fewer++
		}
	}
	return float64(fewer) / max(float64(len(ran)), 1)
}
