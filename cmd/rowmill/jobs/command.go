// Package jobs holds the commands about jobs: submit a job, follow it, fetch its
// results, list and cancel jobs. It owns the names and the output of the commands;
// package client speaks the API.
package jobs

import (
	"cmp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/cmd/rowmill/command"
	"github.com/rowmill/rowmill/cmd/rowmill/connect"
	"github.com/rowmill/rowmill/cmd/rowmill/exit"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
)

// Config configures the commands of this package.
type Config struct {
	connect.Options
	// Poll is the time between two requests for the state of a running job. When the
	// command begins to follow a job, the requests are more frequent. Default: 1s.
	Poll time.Duration
	// Patience is how long a command that follows a job waits for a service that does
	// not answer. Default: 2m, longer than a restart of the service takes.
	Patience time.Duration
}

// jobCommands holds the data that all commands of this package share.
type jobCommands struct {
	command.GroupOptions
	poll, patience time.Duration
	warned         map[string]bool // warnings of jobs that were printed
}

// printWarnings prints the warnings that the command has not printed yet. The answer to a submission
// and the record of its job have the same warnings.
func (c *jobCommands) printWarnings(warnings []string) {
	for _, warning := range warnings {
		if !c.warned[warning] {
			c.warned[warning] = true
			c.Term.Say("warning: %s", warning)
		}
	}
}

func newJobCommands(cfg Config) *jobCommands {
	return &jobCommands{
		GroupOptions: command.GroupOptions{Options: cfg.Options},
		poll:         cmp.Or(cfg.Poll, time.Second), patience: cmp.Or(cfg.Patience, 2*time.Minute), warned: make(map[string]bool),
	}
}

// Command returns `rowmill jobs`.
func Command(cfg Config) *cobra.Command {
	c := newJobCommands(cfg)
	return c.AddSubcommands(&cobra.Command{
		Use:   "jobs",
		Short: "Submit jobs, follow them and fetch their results",
		Long: `Submit jobs to a Rowmill service, follow them and fetch their results.

` + connect.Help + `

Data goes to standard output, everything else to standard error.

` + exit.Help,
		Example: `  rowmill jobs submit prompts.csv --column prompt
  rowmill jobs list
  rowmill jobs results job-… --output answers.parquet`,
	}, c.submit(), c.attach(), c.list(), c.get(), c.open(), c.status(), c.cancel(), c.resume(), c.pause(), c.unpause(), c.prioritize(), c.release(), c.results(), c.errors(), c.rows(), c.compare())
}

// withJobCompletion makes shell completion offer job IDs as the arguments of a command.
func (c *jobCommands) withJobCompletion(cmd *cobra.Command) *cobra.Command {
	cmd.ValidArgsFunction = c.completeJobs
	return cmd
}

// completeJobs returns the IDs of recent jobs for shell completion.
func (c *jobCommands) completeJobs(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	const none = cobra.ShellCompDirectiveNoFileComp
	if len(args) > 0 && !strings.Contains(cmd.Use, "...") {
		return nil, none
	}
	api, err := c.NewClient()
	if err != nil {
		return nil, none
	}
	defer api.Close()
	page, _, err := api.ListJobs(cmd.Context(), client.ListJobsParams{Limit: 50})
	if err != nil {
		return nil, none
	}
	var out []string
	for _, job := range page.Jobs {
		out = append(out, job.ID+"\t"+strings.TrimSpace(string(job.Status)+" "+terminal.Deref(job.Name)))
	}
	return out, none
}
