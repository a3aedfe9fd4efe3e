// Package bench measures a deployment from outside: the speed of its inference servers
// with direct requests, and the speed of Rowmill on the same rows. Package verdict
// explains the results.
package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/cmd/rowmill/bench/verdict"
	"github.com/rowmill/rowmill/cmd/rowmill/command"
	"github.com/rowmill/rowmill/cmd/rowmill/connect"
	"github.com/rowmill/rowmill/cmd/rowmill/exit"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
)

const (
	promptTokens = 100 // largest number of tokens of a prompt, in most vocabularies
	fewestRows   = 20  // smallest number of rows of a job; fewer rows give no usable rate
)

// A benchRun is one run of the command, with its flags and measurements.
type benchRun struct {
	command.GroupOptions
	model     string
	length    time.Duration
	rounds    int
	maxRows   int
	maxTokens int
	keyFile   string

	nonce    string // random text in job names and prompts, so that no cache has answers to these rows
	measured verdict.Measurements
	servers  int      // number of the model's servers
	reached  []string // servers that bench sends requests to directly, as node/name
	sent     int      // number of rows sent to servers directly
}

// Command returns `rowmill bench`.
func Command(service connect.Options) *cobra.Command {
	b := &benchRun{GroupOptions: command.GroupOptions{Options: service}}
	cmd := b.SetPrintingBody(&cobra.Command{
		Use:   "bench",
		Short: "Measure a deployment for a minute, and print what to change",
		Long: `Measure a deployment for about a minute, and say what to change.

It needs an administrator's key of the account default, and a deployment without
other work: it puts the full load on the servers of a model.

  1. It sends requests to all servers of the model directly, with more and more in
     flight, until the rate no longer grows. This is the servers' best rate. If it
     cannot reach the servers from here, because they listen on the loopback address
     of another machine, it skips this step, and there is no ratio.
  2. It runs the same number of rows in turns directly and as a job, named "rowmill
     bench …". The job's data is deleted afterwards; its record and usage stay.
  3. Every node times its records and its bucket, and with the embedded store the
     flush of its disk.
  4. It names the part that would be the first to limit the deployment's growth.

Figures are medians, with the smallest and the largest of the rounds. Rows are
short prompts with answers of at most --max-tokens, without log probabilities;
longer rows have other rates. Ctrl-C cancels the job and deletes its data.

` + connect.Help,
		Example: `  rowmill bench --model llama-3.1-8b
  rowmill bench --length 5m --max-rows 20000 -o json > bench.json`,
		Args: cobra.NoArgs,
	}, func(ctx context.Context, api *client.Client, _ []string) error { return b.run(ctx, api) })
	cmd.Flags().StringVar(&b.model, "model", "", "the model to run (default: the first that is served and generates text)")
	cmd.Flags().DurationVar(&b.length, "length", time.Minute, "about how long to measure")
	cmd.Flags().IntVar(&b.rounds, "rounds", 3, "number of rounds")
	cmd.Flags().IntVar(&b.maxRows, "max-rows", 5000, "maximum number of rows of a job, and of each step at the servers; a step always has 3 rows for each row in flight")
	cmd.Flags().IntVar(&b.maxTokens, "max-tokens", 64, "maximum number of tokens of an answer")
	cmd.Flags().StringVar(&b.keyFile, "engine-key-file", "", "file with the key of servers that require one")
	b.AddFlags(cmd)
	return cmd
}

// validateFlags returns an error that names a flag with an invalid value.
func (b *benchRun) validateFlags() error {
	switch {
	case b.length < time.Second || b.length > time.Hour:
		return fmt.Errorf("--length must be 1s to 1h, is %v", b.length)
	case b.rounds < 1 || b.rounds > 100:
		return fmt.Errorf("--rounds must be 1 to 100, is %d", b.rounds)
	case b.maxRows < fewestRows || b.maxRows > 1_000_000:
		return fmt.Errorf("--max-rows must be %d to 1000000, is %d", fewestRows, b.maxRows)
	case b.maxTokens < 1 || b.maxTokens > 4096:
		return fmt.Errorf("--max-tokens must be 1 to 4096, is %d", b.maxTokens)
	}
	return nil
}

func (b *benchRun) run(ctx context.Context, api *client.Client) error {
	if err := b.validateFlags(); err != nil {
		return exit.WithCode(exit.Usage, err)
	}
	b.nonce, b.measured, b.reached, b.sent = strings.ToLower(rand.Text()[:8]), verdict.Measurements{}, nil, 0
	model, servers, err := b.findModelServers(ctx, api)
	if err != nil {
		return err
	}
	targets, err := b.connectServers(ctx, api, model, servers)
	defer targets.close()
	if err != nil {
		return err
	}
	if err := b.measureStorageTimes(ctx, api); err != nil {
		return err
	}
	most := b.rounds * b.maxRows
	if len(targets) == 0 {
		most += fewestRows
	}
	b.announceUsage(model, "at most", most)
	rows := fewestRows
	if len(targets) > 0 {
		rate, err := b.findPeakRate(ctx, targets)
		if err != nil {
			return wrapDirectError(ctx, err)
		}
		rows = b.rowsPerRun(rate, 2*b.rounds)
	} else {
		job, err := b.runJob(ctx, api, model, "first", rows) // measures the speed, so that the rounds need not include the slow first answers of servers
		if err != nil {
			return err
		}
		rows = b.rowsPerRun(job.Rate(), b.rounds)
	}
	b.announceUsage(model, "now", b.rounds*rows)
	for round := range b.rounds {
		if len(targets) > 0 {
			rate, err := targets.sendAllRows(ctx, b.makePrompts(fmt.Sprint("direct ", round), rows), max(1, verdict.FastestStep(b.measured.Steps).InFlight))
			if err != nil {
				return wrapDirectError(ctx, err)
			}
			b.sent += rows
			b.measured.Direct = append(b.measured.Direct, rate)
			b.Term.Say("round %d of %d: the servers %s rows/s", round+1, b.rounds, formatFigure(rate))
		}
		job, err := b.runJob(ctx, api, model, fmt.Sprint("round ", round+1), rows)
		if err != nil {
			return err
		}
		b.measured.Jobs = append(b.measured.Jobs, job)
		b.Term.Say("round %d of %d: Rowmill %s rows/s", round+1, b.rounds, formatFigure(job.Rate()))
	}
	return b.printReport(model)
}

// wrapDirectError returns why direct requests to the servers failed. After an interrupt it
// returns the cause of the interrupt.
func wrapDirectError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("send requests to the servers directly: %w", err)
}

// rowsPerRun returns how many rows each of the given number of runs needs, so that the runs
// together fill the time that remains after the climb. rate is in rows per second.
func (b *benchRun) rowsPerRun(rate float64, runs int) int {
	wanted := rate * (b.length.Seconds() * 2 / 3) / float64(runs)
	return max(fewestRows, int(math.Min(wanted, float64(b.maxRows))))
}

// announceUsage prints, before the jobs start, the most tokens and money that jobs with this
// number of rows can use.
func (b *benchRun) announceUsage(model client.Model, when string, rows int) {
	tokens := int64(rows) * int64(promptTokens+b.maxTokens)
	text := fmt.Sprintf("jobs on %s: %s %s rows, up to %s tokens", model.ID, when, terminal.FormatCount(int64(rows)), terminal.FormatCount(tokens))
	if model.InputPrice != nil && model.OutputPrice != nil {
		text += fmt.Sprintf(", %.4g USD by its price", (float64(promptTokens)**model.InputPrice+float64(b.maxTokens)**model.OutputPrice)*float64(rows)/1e6)
	}
	b.Term.Say("%s", terminal.SanitizeLine(text))
}

// findModelServers returns the model to measure, and its servers that are up.
func (b *benchRun) findModelServers(ctx context.Context, api *client.Client) (client.Model, []client.Engine, error) {
	models, _, err := api.ListModels(ctx)
	if err != nil {
		return client.Model{}, nil, fmt.Errorf("list models: %w", err)
	}
	generates := func(m client.Model) bool {
		return len(m.ServedBy) > 0 && m.Problem == nil && (m.Kind == rowmill.KindGeneration || m.Kind == rowmill.KindReasoning)
	}
	i := slices.IndexFunc(models.Data, func(m client.Model) bool {
		return generates(m) && (b.model == "" || m.ID == b.model || slices.Contains(m.Aliases, b.model))
	})
	if i < 0 {
		what := "no model that generates text is served"
		if b.model != "" {
			what = fmt.Sprintf("no model %q that generates text is served", b.model)
		}
		return client.Model{}, nil, exit.WithCode(exit.NotFound, errors.New(what+"; `rowmill models list --served` shows the served models"))
	}
	model := models.Data[i]
	all, _, err := api.ListEngines(ctx)
	if err != nil {
		return model, nil, fmt.Errorf("list engines: %w", err)
	}
	nodes := map[string]bool{}
	var servers []client.Engine
	for _, e := range all.Engines {
		b.measured.OtherRows += int(e.InFlight)
		if e.State != "up" || servedModelName(e, model.ID) == "" {
			continue
		}
		servers = append(servers, e)
		nodes[e.Node] = true
		b.measured.Simulated = b.measured.Simulated || e.Simulated
		if e.Kind != nil && !slices.Contains(b.measured.Kinds, *e.Kind) {
			b.measured.Kinds = append(b.measured.Kinds, *e.Kind)
		}
	}
	if len(servers) == 0 {
		return model, nil, exit.WithCode(exit.NotFound, fmt.Errorf("no server of %s is up; `rowmill doctor` says why", model.ID))
	}
	b.servers, b.measured.Nodes = len(servers), len(nodes)
	return model, servers, nil
}

// servedModelName returns a server's name for a model; empty if it does not serve the model.
func servedModelName(e client.Engine, model string) string {
	for _, m := range e.Models {
		if m.ID == model {
			return m.Name
		}
	}
	return ""
}

// measureStorageTimes asks the nodes to time their storage, and stores the times in b.measured.
func (b *benchRun) measureStorageTimes(ctx context.Context, api *client.Client) error {
	found, _, err := api.Diagnose(ctx)
	if err != nil {
		return fmt.Errorf("ask the nodes to time their storage: %w", err)
	}
	for _, n := range found.Nodes {
		s := verdict.StorageTimes{Node: n.Name}
		if n.Facts != nil {
			if interval, err := time.ParseDuration(n.Facts.Settings["jobs.part_interval"]); err == nil {
				b.measured.Interval = max(b.measured.Interval, interval)
			}
			t := n.Facts.Storage
			s.Commits, s.Syncs, s.Puts, s.Gets, s.ObjectBytes = t.CommitSeconds, t.SyncSeconds, t.PutSeconds, t.GetSeconds, int(t.ObjectBytes)
			b.measured.Embedded = b.measured.Embedded || len(t.SyncSeconds) > 0
		}
		b.measured.Storage = append(b.measured.Storage, s)
	}
	return nil
}

// readEngineKey returns the API key of the servers from --engine-key-file; empty without
// this flag.
func (b *benchRun) readEngineKey() (string, error) {
	if b.keyFile == "" {
		return "", nil
	}
	text, err := os.ReadFile(b.keyFile)
	if err != nil {
		return "", exit.WithCode(exit.Usage, fmt.Errorf("read the key of the servers: %w", err))
	}
	return strings.TrimSpace(string(text)), nil
}

// makePrompts returns n different rows that no cache has seen, with about 50 words each.
func (b *benchRun) makePrompts(runName string, n int) []string {
	const filler = "The mill grinds what the carts bring, sack by sack, and the miller writes down who brought it, how much it weighed and when it is to be fetched. Say in a few sentences what happens on a day without wind, and who waits for whom."
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("%s, %s, row %d. %s", b.nonce, runName, i, filler)
	}
	return all
}
