// Package jobs holds the commands that use a service: submit a job, follow
// it, fetch its results, list and cancel. It owns what they are called and
// what they print; the API itself is spoken by package client.
package jobs

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rowmill/rowmill/cmd/rowmill/connect"
	"github.com/rowmill/rowmill/cmd/rowmill/exit"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
)

// Config is what the commands need from the program around them.
type Config struct {
	Term      *terminal.IO
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
	service connect.Options
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
	c := &commands{Config: cfg, service: connect.Options{Term: cfg.Term, UserAgent: cfg.UserAgent}}
	root := &cobra.Command{
		Use:   "jobs",
		Short: "Submit jobs, follow them and fetch their results",
		Long: `Submit jobs to a Rowmill service, follow them and fetch their results.

` + connect.Help + `

Data goes to standard output, everything else to standard error.

` + exit.Help,
		Example: `  rowmill jobs submit prompts.csv --column prompt
  rowmill jobs list
  rowmill jobs results job-… --output answers.parquet`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.service.Flags(root)
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

// completeJobs offers the ids of recent jobs.
func (c *commands) completeJobs(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	const none = cobra.ShellCompDirectiveNoFileComp
	if len(args) > 0 && !strings.Contains(cmd.Use, "...") {
		return nil, none
	}
	api, err := c.service.Client()
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
