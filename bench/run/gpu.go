package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rowmill/rowmill/bench/gpu"
)

// A workload is one kind of rows for a real server, with the measurements on it.
type workload struct {
	name    string
	shape   gpu.Shape
	prompt  int // tokens
	answer  int // mean tokens; at most four times as many
	slots   int // concurrent answers of the server
	sweep   []int
	decode  []int // batch sizes for measured decode steps, 1 first
	prefill []int // prompt lengths for measured prefill steps, tokens
	few     int   // length of short answers for step measurements, tokens
	many    int
}

// workloads lists the workloads for a GPU. A processor has a workload of its own.
var (
	workloads = []workload{
		{
			name: "short", shape: gpu.Llama8B, prompt: 300, answer: 150, slots: 256, sweep: []int{128, 256, 320, 384},
			decode: []int{1, 8, 32, 128, 256}, prefill: []int{300}, few: 128, many: 256,
		},
		{
			name: "long", shape: gpu.Llama8B, prompt: 4000, answer: 200, slots: 128, sweep: []int{32, 64, 96},
			decode: []int{1}, prefill: []int{2000}, few: 128, many: 256,
		},
	}
	processorWorkload = workload{
		name: "tiny", shape: gpu.Tiny, prompt: 60, answer: 24, slots: 8, sweep: []int{8, 12},
		decode: []int{1, 8}, prefill: []int{60}, few: 12, many: 36,
	}
)

// most returns the limit for answers: fewer than one in fifty would be longer.
func (w workload) most() int { return 4 * w.answer }

// context returns the context length for the server. If a server does not count
// prompts, Rowmill estimates them and assumes a template around them; the context has
// room for that, so that no row is refused or cut.
func (w workload) context() int { return w.prompt + w.prompt/16 + 64 + max(w.most(), w.many) }

// gpuOptions holds the flags of this benchmark.
type gpuOptions struct {
	stages  []string
	out     string // folder for results
	python  string
	server  string // auto, or one of gpuServers
	profile string // profile of the simulator
	cpu     bool
	gauges  bool
	length  time.Duration
	further string // additional arguments for the server
}

// The stages. Each writes a file of results.
const (
	lookStage  = "look"
	tableStage = "table"
)

// realGPU measures a node, a bare generator and the simulator's step times on a real
// server with random weights.
func (b *bench) realGPU(ctx context.Context) error {
	o, err := b.gpuFlags(b.args)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return fmt.Errorf("create results directory: %w", err)
	}
	list := workloads
	if o.cpu {
		list = []workload{processorWorkload}
	}
	known := []string{lookStage}
	for _, w := range list {
		known = append(known, w.name)
	}
	known = append(known, tableStage)
	if len(o.stages) == 0 {
		o.stages = known
	}
	for _, stage := range o.stages {
		if !slices.Contains(known, stage) {
			return fmt.Errorf("unknown stage %q: choose one of %s", stage, strings.Join(known, ", "))
		}
	}
	if slices.Equal(o.stages, []string{tableStage}) {
		return printGPU(os.Stdout, o.out)
	}
	m, err := b.inspect(ctx, o)
	if err != nil {
		return err
	}
	for _, w := range list {
		if !slices.Contains(o.stages, w.name) {
			continue
		}
		if err := b.measureGPU(ctx, o, m, w); err != nil {
			return fmt.Errorf("stage %s: %w", w.name, err)
		}
	}
	if slices.Contains(o.stages, tableStage) {
		return printGPU(os.Stdout, o.out)
	}
	return nil
}

func (b *bench) gpuFlags(args []string) (gpuOptions, error) {
	flags := flag.NewFlagSet("gpu", flag.ContinueOnError)
	o := gpuOptions{}
	flags.StringVar(&o.out, "out", filepath.Join(b.dir, "gpu"), "directory for the results; the table is made of all that lie there")
	flags.StringVar(&o.python, "python", "python3", "Python that has vLLM or torch")
	flags.StringVar(&o.server, "server", "auto", "server: "+strings.Join(gpuServers, ", ")+"; auto: the first of them that is there (the simulator only with -cpu)")
	flags.StringVar(&o.profile, "profile", "", "the simulator's profile of this GPU; empty: by the GPU's name")
	flags.StringVar(&o.further, "server-args", "", "further arguments of the server, parted by blanks")
	flags.BoolVar(&o.cpu, "cpu", false, "a tiny model on this machine's processor: shows that the program works, and nothing else")
	flags.BoolVar(&o.gauges, "gauges", false, "the PyTorch server's gauges have vLLM's names, so that Rowmill reads them")
	flags.DurationVar(&o.length, "length", 30*time.Second, "about how long one contender runs in one round")
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), "usage: run [flags] gpu [flags] [look|short|long|table ...]; with -cpu: look|tiny|table. None: all.")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.stages = flags.Args()
	if o.server != "auto" && !slices.Contains(gpuServers, o.server) {
		return o, fmt.Errorf("-server %s: choose auto or one of %s", o.server, strings.Join(gpuServers, ", "))
	}
	if o.length <= 0 {
		return o, errors.New("-length must be above 0")
	}
	return o, nil
}
