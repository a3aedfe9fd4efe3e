package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rowmill/rowmill/cmd/rowmill/exit"
	"github.com/rowmill/rowmill/cmd/rowmill/settings"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
	"github.com/rowmill/rowmill/engine/sim"
	"github.com/rowmill/rowmill/engine/sim/batching"
)

// defaultSimListen is vLLM's default address, so that the simulator can replace vLLM
// without a change of settings.
const defaultSimListen = "127.0.0.1:8000"

func simCommand(term *terminal.IO) *cobra.Command {
	set, logs := settings.Defaults().Simulator, settings.Defaults().Log
	config := sim.Config{Profile: sim.DefaultProfile()}
	var address, catalogFile, witness string
	var models []string
	var gpu gpuFlags
	var faults faultFlags
	cmd := &cobra.Command{
		Use:   "sim",
		Short: "Run a simulated inference server",
		Long: `Run a simulated inference server: it speaks the OpenAI dialect like vLLM, serves
the models of the catalog, and makes up its answers from the prompt and the seed.
A node without a server can run the same simulator inside, see rowmill serve
--simulate.

Answers take fixed latencies (--ttft, --per-token, --slots), or, with --gpu, the
time that a model would take on a GPU with continuous batching, a bounded KV
cache and a prefix cache; one row then takes seconds, but many rows run at once.
--gpu takes one of: ` + strings.Join(listGPUNames(), ", ") + `.

--fault makes requests fail at random, as KIND=RATE with a rate between 0 and 1.
The kinds: ` + strings.Join(sim.FaultKinds(), ", ") + `.
The failing requests depend on --seed and the prompt, so that a run is repeatable. A
running server takes the same rates by POST /sim/faults.`,
		Example: `  rowmill sim --listen 127.0.0.1:8000 --slots 64
  rowmill serve --engine http://127.0.0.1:8000

  rowmill sim --gpu llama-3.1-8b/h100 --max-num-seqs 512
  rowmill sim --fault 503=0.02,reset=0.001 --startup-delay 20s
  rowmill sim --die-after 1m --revive-after 30s`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := errors.Join(chooseModels(&config, catalogFile, models), logs.Validate(), gpu.applyTo(&config, cmd.Flags()), faults.applyTo(&config.Faults))
			if err != nil {
				return exit.WithCode(exit.Usage, err)
			}
			if set.Slots < 1 {
				return exit.WithCode(exit.Usage, fmt.Errorf("--slots must be at least 1, is %d", set.Slots))
			}
			config.Logger = newLogger(term, logs)
			config.Profile = applySimSettings(config.Profile, set)
			if witness != "" {
				file, err := os.OpenFile(witness, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
				if err != nil {
					return exit.WithCode(exit.Usage, fmt.Errorf("--witness: %w", err))
				}
				defer file.Close()
				config.RequestLog = file
			}
			return runSimulator(cmd.Context(), term, address, config)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&address, "listen", defaultSimListen, "address, HOST:PORT")
	flags.StringVar(&catalogFile, "catalog", "", "YAML file of models (default: the built-in catalog)")
	flags.StringSliceVar(&models, "model", nil, "model that the server serves, by its id in the catalog; repeat for several (default: all)")
	flags.DurationVar(&set.TTFT, "ttft", set.TTFT, "time to the first token")
	flags.DurationVar(&set.PerToken, "per-token", set.PerToken, "time of each further token")
	flags.IntVar(&set.Slots, "slots", set.Slots, "maximum number of requests that run at once")
	flags.IntVar(&config.Profile.QueueLimit, "queue-limit", 0, "maximum number of waiting requests; further requests get 503 (default: no limit)")
	flags.StringVar(&gpu.name, "gpu", "", "model and GPU to simulate, such as llama-3.1-8b/h100 (default: fixed latencies)")
	flags.IntVar(&gpu.maxSeqs, "max-num-seqs", batching.DefaultMaxSeqs, fmt.Sprintf("with --gpu, maximum number of requests in a batch, from 1 to %d", batching.LargestMaxSeqs))
	flags.StringToStringVar(&faults.rates, "fault", nil, "share of the requests that fail in this way, `KIND=RATE`; separate several with commas")
	flags.Lookup("fault").DefValue = ""
	flags.DurationVar(&faults.startupDelay, "startup-delay", 0, "answer 503 for this time after the start")
	flags.DurationVar(&faults.dieAfter, "die-after", 0, "break all connections and accept no more after this time (default: never)")
	flags.DurationVar(&faults.reviveAfter, "revive-after", 0, "with --die-after, accept connections again this long after the server died (default: never)")
	flags.IntVar(&config.Profile.AnswerTokens, "answer-tokens", config.Profile.AnswerTokens, "median length of an answer, in tokens")
	flags.IntVar(&config.Profile.ReasoningTokens, "reasoning-tokens", config.Profile.ReasoningTokens, "median length of reasoning, in tokens")
	flags.IntVar(&config.MaxContext, "max-context", 0, "context length of every model, in tokens (default: the catalog's)")
	flags.Int64Var(&config.Seed, "seed", 0, "seed of the answers and the faults")
	flags.StringVar(&witness, "witness", "", "file to which the server appends a line of JSON for every row that it runs")
	flags.StringVar(&logs.Level, "log-level", logs.Level, "debug, info, warn or error")
	flags.StringVar(&logs.Format, "log-format", logs.Format, "text, json or auto")
	return cmd
}

// chooseModels sets the models of the simulated server: the models of the catalog with these ids, or
// all without ids.
func chooseModels(config *sim.Config, catalogFile string, ids []string) error {
	known, err := loadCatalog(catalogFile)
	if err != nil {
		return err
	}
	config.Models = known.All()
	if len(ids) > 0 {
		config.Models = nil
	}
	for _, id := range ids {
		m, found := known.Find(id)
		if !found {
			return fmt.Errorf("--model: the catalog has no %q", id)
		}
		config.Models = append(config.Models, m)
	}
	config.Models = fillModelDefaults(config.Models)
	return nil
}

// gpuFlags holds the values of the flags that choose a simulated GPU.
type gpuFlags struct {
	name    string
	maxSeqs int
}

func listGPUNames() (names []string) {
	for _, p := range batching.Profiles() {
		names = append(names, p.Name)
	}
	return names
}

// applyTo sets config.GPU if --gpu is given. It returns an error for flags that would
// have no effect: the flags of fixed latencies with --gpu, and --max-num-seqs without
// --gpu.
func (g gpuFlags) applyTo(config *sim.Config, flags *pflag.FlagSet) error {
	if g.name == "" {
		if flags.Changed("max-num-seqs") {
			return errors.New("--max-num-seqs is for a simulated GPU: add --gpu, or use --slots")
		}
		return nil
	}
	for _, other := range []string{"ttft", "per-token", "slots"} {
		if flags.Changed(other) {
			return fmt.Errorf("--%s and --gpu exclude each other: the GPU's profile sets the pace, and --max-num-seqs how many requests run at once", other)
		}
	}
	profile, err := batching.FindProfile(g.name)
	if err != nil {
		return fmt.Errorf("--gpu: %w", err)
	}
	if g.maxSeqs < 1 || g.maxSeqs > batching.LargestMaxSeqs {
		return fmt.Errorf("--max-num-seqs must be between 1 and %d, is %d", batching.LargestMaxSeqs, g.maxSeqs)
	}
	config.GPU = &batching.Config{Profile: profile, MaxSeqs: g.maxSeqs, QueueLimit: config.Profile.QueueLimit}
	return nil
}

// faultFlags holds the values of the flags that inject faults.
type faultFlags struct {
	rates                               map[string]string
	startupDelay, dieAfter, reviveAfter time.Duration
}

func (f faultFlags) applyTo(faults *sim.Faults) error {
	for _, kind := range slices.Sorted(maps.Keys(f.rates)) {
		rate, err := strconv.ParseFloat(f.rates[kind], 64)
		if err != nil {
			return fmt.Errorf("--fault %s=%s: the rate must be a number between 0 and 1", kind, f.rates[kind])
		}
		if err := faults.SetRate(kind, rate); err != nil {
			return fmt.Errorf("--fault: %w", err)
		}
	}
	faults.StartupDelay = sim.Duration(f.startupDelay)
	faults.DieAfter, faults.ReviveAfter = sim.Duration(f.dieAfter), sim.Duration(f.reviveAfter)
	if err := faults.Validate(); err != nil {
		return fmt.Errorf("--fault, --startup-delay, --die-after, --revive-after: %w", err)
	}
	return nil
}

// runSimulator runs a simulated server until ctx ends.
func runSimulator(ctx context.Context, term *terminal.IO, address string, config sim.Config) error {
	server, err := openSimulator(ctx, address, config)
	if err != nil {
		return err
	}
	fmt.Fprintf(term.Out, "simulated inference server at %s; outputs are made up\n", server.URL())
	<-ctx.Done()
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), graceTimeout)
	defer cancel()
	return server.Stop(closing)
}
