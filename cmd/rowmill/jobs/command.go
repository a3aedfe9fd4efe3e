// Package jobs holds the commands that use a service: submit a job, follow
// it, fetch its results, list and cancel. It owns what they are called and
// what they print; the API itself is spoken by package client.
package jobs

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rowmill/rowmill/cmd/rowmill/client"
	"github.com/rowmill/rowmill/cmd/rowmill/exit"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
)

// Config is what the commands need from the program around them.
type Config struct {
	IO        *terminal.IO
	UserAgent string
	// Poll is the time between two looks at a running job, after a quick
	// start. Default: 1s.
	Poll time.Duration
	// Patience is how long a followed job's service may be away. Default: 2m,
	// longer than a restart takes.
	Patience time.Duration
}

// commands is the state that all commands share: flags and streams.
type commands struct {
	Config
	server  string
	key     string
	keyFile string
	print   string // table or json
}

// Command returns `rowmill jobs`.
func Command(cfg Config) *cobra.Command {
	if cfg.Poll == 0 {
		cfg.Poll = time.Second
	}
	if cfg.Patience == 0 {
		cfg.Patience = 2 * time.Minute
	}
	c := &commands{Config: cfg}
	root := &cobra.Command{
		Use:   "jobs",
		Short: "Submit jobs, follow them and fetch their results",
		Long: `Submit jobs to a Rowmill service, follow them and fetch their results.

The service and the key come from --server and --api-key-file, else from
ROWMILL_SERVER and ROWMILL_API_KEY (or ROWMILL_API_KEY_FILE), else from
$XDG_CONFIG_HOME/rowmill/config.yaml (~/.config/rowmill/config.yaml), which
only you may be able to read:

    server: http://127.0.0.1:8088
    api_key: …

Data goes to standard output, everything else to standard error.

` + exit.Help,
		Example: `  rowmill jobs submit prompts.csv --column prompt
  rowmill jobs list
  rowmill jobs results job-… --output answers.parquet`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	flags := root.PersistentFlags()
	flags.StringVar(&c.server, "server", "", "address of the service (default "+defaultServer+")")
	flags.StringVar(&c.keyFile, "api-key-file", "", "file that holds the API key")
	flags.StringVar(&c.key, "api-key", "", "the API key; others on this machine can see it there, prefer a file or ROWMILL_API_KEY")
	flags.BoolVarP(&c.IO.Quiet, "quiet", "q", c.IO.Quiet, "no progress and no messages but errors")
	root.AddCommand(
		c.submit(), c.attach(), c.list(), c.get(), c.status(), c.cancel(), c.results(), c.errors(), c.rows(),
	)
	return root
}

// outputFlag adds -o to a command that prints records.
func (c *commands) outputFlag(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&c.print, "print", "o", "table", "how to print: table or json")
	must(cmd.RegisterFlagCompletionFunc("print", cobra.FixedCompletions([]string{"table", "json"}, cobra.ShellCompDirectiveNoFileComp)))
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if c.print != "table" && c.print != "json" {
			return exit.With(exit.Usage, fmt.Errorf("-o must be table or json, is %q", c.print))
		}
		return run(cmd, args)
	}
}

// json prints a value, indented.
func (c *commands) json(v any) error {
	enc := json.NewEncoder(c.IO.Out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// completeJobs offers the ids of recent jobs.
func (c *commands) completeJobs(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	const none = cobra.ShellCompDirectiveNoFileComp
	if len(args) > 0 && !strings.Contains(cmd.Use, "...") {
		return nil, none
	}
	api, err := c.connect()
	if err != nil {
		return nil, none
	}
	defer api.Close()
	page, err := api.List(cmd.Context(), 50, "")
	if err != nil {
		return nil, none
	}
	var out []string
	for _, job := range page.Jobs {
		out = append(out, job.ID+"\t"+strings.TrimSpace(string(job.Status)+" "+text(job.Name)))
	}
	return out, none
}

// with runs a command with a connected client.
func (c *commands) with(run func(cmd *cobra.Command, api *client.Client, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		api, err := c.connect()
		if err != nil {
			return err
		}
		defer api.Close()
		return run(cmd, api, args)
	}
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// must is for what can only fail by a mistake in this package.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
