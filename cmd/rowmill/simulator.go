package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/rowmill/rowmill/cmd/rowmill/exit"
	"github.com/rowmill/rowmill/cmd/rowmill/settings"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
	"github.com/rowmill/rowmill/engine/sim"
)

// defaultSimListen is where vLLM listens by default, so that one can stand in
// for the other.
const defaultSimListen = "127.0.0.1:8000"

func simCommand(io *terminal.IO) *cobra.Command {
	set, logs := settings.Defaults().Simulator, settings.Defaults().Log
	config := sim.Config{Profile: sim.DefaultProfile()}
	var address, catalogFile, witness string
	cmd := &cobra.Command{
		Use:   "sim",
		Short: "Run a simulated inference server",
		Long: `Run a simulated inference server: it speaks the OpenAI dialect as vLLM does,
serves every model of the catalog, and makes its answers up from the prompt and
the seed. It is what a node without --engine runs inside itself.`,
		Example: `  rowmill sim --listen 127.0.0.1:8000 --slots 64
  rowmill serve --engine http://127.0.0.1:8000`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			models, err := loadCatalog(catalogFile)
			if err := errors.Join(err, logs.Validate()); err != nil {
				return exit.With(exit.Usage, err)
			}
			if set.Slots < 1 {
				return exit.With(exit.Usage, fmt.Errorf("--slots must be at least 1, is %d", set.Slots))
			}
			config.Models, config.Logger = models.All(), newLogger(io, logs)
			config.Profile = paced(config.Profile, set)
			if witness != "" {
				file, err := os.OpenFile(witness, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
				if err != nil {
					return exit.With(exit.Usage, fmt.Errorf("--witness: %w", err))
				}
				defer file.Close()
				config.Witness = file
			}
			return runSimulator(cmd.Context(), io, address, config)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&address, "listen", defaultSimListen, "address, HOST:PORT")
	flags.StringVar(&catalogFile, "catalog", "", "YAML file of models (default: the built-in catalog)")
	flags.DurationVar(&set.TTFT, "ttft", set.TTFT, "time to the first token")
	flags.DurationVar(&set.PerToken, "per-token", set.PerToken, "time of each further token")
	flags.IntVar(&set.Slots, "slots", set.Slots, "requests that run at once")
	flags.IntVar(&config.Profile.QueueLimit, "queue-limit", 0, "requests that may wait; more are answered 503 (default: any number)")
	flags.IntVar(&config.Profile.AnswerTokens, "answer-tokens", config.Profile.AnswerTokens, "median length of an answer, in tokens")
	flags.IntVar(&config.Profile.ReasoningTokens, "reasoning-tokens", config.Profile.ReasoningTokens, "median length of reasoning, in tokens")
	flags.IntVar(&config.MaxContext, "max-context", 0, "context length of every model, in tokens (default: the catalog's)")
	flags.Int64Var(&config.Seed, "seed", 0, "changes all answers")
	flags.StringVar(&witness, "witness", "", "file that gets a line of JSON for every row computed")
	flags.StringVar(&logs.Level, "log-level", logs.Level, "debug, info, warn or error")
	flags.StringVar(&logs.Format, "log-format", logs.Format, "text, json or auto")
	return cmd
}

// runSimulator serves until ctx ends.
func runSimulator(ctx context.Context, io *terminal.IO, address string, config sim.Config) error {
	server, err := openSimulator(ctx, address, config)
	if err != nil {
		return err
	}
	fmt.Fprintf(io.Out, "simulated inference server at %s; outputs are made up\n", server.URL())
	<-ctx.Done()
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), graceTimeout)
	defer cancel()
	return server.Stop(closing)
}

// openSimulator starts a simulated server.
func openSimulator(ctx context.Context, address string, config sim.Config) (*sim.Server, error) {
	server, err := sim.New(config)
	if err != nil {
		return nil, exit.With(exit.Usage, err)
	}
	return server, server.Start(ctx, address)
}

// paced is a profile with the settings' pace.
func paced(p sim.Profile, set settings.Simulator) sim.Profile {
	p.TimeToFirstToken, p.TimePerToken, p.Slots = set.TTFT, set.PerToken, set.Slots
	return p
}
