package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/cmd/rowmill/exit"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
)

func (c *jobCommands) get() *cobra.Command {
	return c.SetPrintingBody(c.withJobCompletion(&cobra.Command{
		Use:     "get JOB",
		Short:   "Show a job's record",
		Example: "  rowmill jobs get job-…\n  rowmill jobs get job-… -o json | jq .output_tokens",
		Args:    cobra.ExactArgs(1),
	}), func(ctx context.Context, api *client.Client, args []string) error {
		job, err := api.Job(ctx, args[0])
		if err != nil {
			return fmt.Errorf("get %s: %w", args[0], err)
		}
		return c.Print(job, func(w io.Writer) error {
			nodes, err := fetchJobNodes(ctx, api, job)
			if err != nil {
				return fmt.Errorf("find the nodes that have rows of %s: %w", args[0], err)
			}
			return terminal.WriteTable(w, func(row terminal.RowWriter) {
				writeJobFields(row, job)
				for _, n := range nodes {
					row("on "+n.Node, fmt.Sprintf("%s rows, %s done", terminal.FormatCount(n.RowsAssigned), terminal.FormatCount(n.RowsDone)))
				}
			})
		})
	})
}

// fetchJobNodes returns the nodes that have rows of a running job, and none for other jobs.
func fetchJobNodes(ctx context.Context, api *client.Client, job client.Job) ([]client.NodeRows, error) {
	if job.Status != rowmill.StatusRunning {
		return nil, nil
	}
	p, _, err := api.GetProgress(ctx, job.ID)
	return p.Nodes, err
}

// writeJobFields writes the fields of a job to a table for people, one per line.
func writeJobFields(row terminal.RowWriter, job client.Job) {
	line := func(name, value string) {
		if value != "" {
			row(name, value)
		}
	}
	line("job", job.ID)
	line("status", string(job.ShownStatus()))
	line("message", job.Message)
	if f := job.FailureReason; f != nil {
		line("failure", fmt.Sprintf("%s (%s)", f.Message, f.Code))
		line("", f.AdditionalContext)
	}
	for _, label := range job.ListLabels() {
		line(label.Field, terminal.Deref(*label.Text))
	}
	line("model", job.Model)
	line("priority", strconv.Itoa(int(job.Priority)))
	line("input", job.Input)
	line("rows", formatRows(job))
	line("continues", terminal.Deref(job.Continues))
	line("continued by", terminal.Deref(job.ContinuedBy))
	line("results in", job.Output)
	line("deadline", terminal.FormatTime(job.Deadline))
	if job.Forecast != nil {
		line("forecast", describeForecast(job.Forecast))
	}
	if job.Reuse != nil {
		line("reuses rows of", job.Reuse.From+", by "+string(job.Reuse.By))
	}
	if job.ParkedUntil != nil {
		line("parked until", terminal.FormatTime(job.ParkedUntil))
	}
	writeRowCounts(row, job)
	line("input tokens", formatCount(job.InputTokens))
	line("output tokens", formatCount(job.OutputTokens))
	line("cost", formatCost(job.JobCost))
	writeEstimate(row, job)
	if sampling, err := json.Marshal(job.Sampling); err == nil && len(job.Sampling) > 0 {
		line("sampling", string(sampling))
	}
	line("key", terminal.Deref(job.KeyID))
	line("created", terminal.FormatTime(&job.Created))
	line("started", terminal.FormatTime(job.Started))
	line("completed", terminal.FormatTime(job.Completed))
	for _, warning := range job.Warnings {
		line("warning", warning)
	}
}

// writeRowCounts writes how many rows were reused, deduplicated, failed or cut, one
// line for each number above 0.
func writeRowCounts(row terminal.RowWriter, job client.Job) {
	if job.InputRows != nil {
		row("input rows", fmt.Sprintf("%s, limit %s, %s", terminal.FormatCount(*job.InputRows), terminal.FormatCount(job.Limit), job.Sample))
	}
	if job.RowsTakenOver > 0 {
		row("rows reused", terminal.FormatCount(job.RowsTakenOver))
	}
	if job.DeduplicatedRows > 0 {
		row("equal rows", terminal.FormatCount(job.DeduplicatedRows)+" not run: they have the answers of equal rows")
	}
	if job.FailedRows > 0 {
		row("failed rows", terminal.FormatCount(job.FailedRows))
	}
	if job.TruncatedRows > 0 {
		row("cut inputs", terminal.FormatCount(job.TruncatedRows))
	}
	if job.TruncatedOutputs > 0 {
		row("cut outputs", terminal.FormatCount(job.TruncatedOutputs))
	}
}

func (c *jobCommands) status() *cobra.Command {
	return c.SetPrintingBody(c.withJobCompletion(&cobra.Command{
		Use:   "status JOB",
		Short: "Show a job's status",
		Long:  "Show a job's status on standard output, and the service's message about it on standard error.",
		Args:  cobra.ExactArgs(1),
	}), func(ctx context.Context, api *client.Client, args []string) error {
		s, err := api.Status(ctx, args[0])
		if err != nil {
			return fmt.Errorf("status of %s: %w", args[0], err)
		}
		return c.Print(s.Raw, func(w io.Writer) error {
			if s.Message != "" {
				c.Term.Say("%s", s.Message)
			}
			_, err := fmt.Fprintln(w, c.Term.PaintState(string(s.Status)))
			return err
		})
	})
}

func (c *jobCommands) cancel() *cobra.Command {
	return c.SetBody(c.withJobCompletion(&cobra.Command{
		Use:   "cancel JOB...",
		Short: "Cancel jobs",
		Long:  "Cancel jobs. A job that has ended is not changed; the exit code is then 1.",
		Args:  cobra.MinimumNArgs(1),
	}), func(ctx context.Context, api *client.Client, args []string) error {
		return c.forEachJob("cancel", args, func(id string) (string, error) {
			answer, _, err := api.CancelJob(ctx, id)
			if err == nil && !answer.Cancelled {
				err = exit.WithCode(exit.Failure, errors.New(answer.Message))
			}
			return cmp.Or(answer.Message, "cancelled"), err
		})
	})
}

// forEachJob calls do for each job and prints the text that do returns. It goes on after an error,
// and returns all errors.
func (c *jobCommands) forEachJob(verb string, ids []string, do func(id string) (string, error)) error {
	var errs []error
	for _, id := range ids {
		done, err := do(id)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s %s: %w", verb, id, err))
			continue
		}
		c.Term.Say("%s: %s", id, done)
	}
	return errors.Join(errs...)
}

func (c *jobCommands) release() *cobra.Command {
	return c.SetBody(c.withJobCompletion(&cobra.Command{
		Use:   "release JOB...",
		Short: "Run parked jobs now",
		Long: `Run parked jobs now.

A node parks a job that may crash nodes: two processes ended before the job made
progress, and each ran only this job. "rowmill jobs get" shows the nodes and the times.
A parked job also runs again by itself, after an hour (jobs.park_time).`,
		Args: cobra.MinimumNArgs(1),
	}), func(ctx context.Context, api *client.Client, args []string) error {
		return c.forEachJob("release", args, func(id string) (string, error) {
			_, _, err := api.ReleaseJob(ctx, id)
			return "released", err
		})
	})
}

func (c *jobCommands) pause() *cobra.Command {
	return c.reschedule("pause", &cobra.Command{
		Use:   "pause JOB...",
		Short: "Pause jobs, so that other jobs get their GPUs",
		Long: `Pause jobs, so that other jobs get their GPUs.

Rows that servers run already finish first, and no row is lost. A paused job keeps its
finished rows and waits until "rowmill jobs unpause".`,
		Args: cobra.MinimumNArgs(1),
	}, client.Schedule{Paused: new(true)}, "paused")
}

func (c *jobCommands) unpause() *cobra.Command {
	return c.reschedule("unpause", &cobra.Command{
		Use:   "unpause JOB...",
		Short: "Let paused jobs continue",
		Args:  cobra.MinimumNArgs(1),
	}, client.Schedule{Paused: new(false)}, "continues")
}

func (c *jobCommands) prioritize() *cobra.Command {
	var priority rowmill.Priority
	cmd := &cobra.Command{
		Use:   "prioritize JOB... --priority N",
		Short: "Change the priority of jobs",
		Long: `Change the priority of jobs, also while they run.

The quotas of the new priority apply: see "rowmill quotas show".`,
		Example: `  rowmill jobs prioritize job-… --priority 0`,
		Args:    cobra.MinimumNArgs(1),
	}
	cmd.Flags().IntVar((*int)(&priority), "priority", 0, "the new priority: "+rowmill.PriorityValues)
	_ = cmd.MarkFlagRequired("priority") // it fails only for a flag that does not exist
	return c.reschedule("prioritize", cmd, client.Schedule{JobPriority: &priority}, "has the new priority")
}

// reschedule sets the body of a command that changes the schedule of jobs.
func (c *jobCommands) reschedule(verb string, cmd *cobra.Command, want client.Schedule, done string) *cobra.Command {
	return c.SetBody(c.withJobCompletion(cmd), func(ctx context.Context, api *client.Client, args []string) error {
		return c.forEachJob(verb, args, func(id string) (string, error) {
			_, _, err := api.RescheduleJob(ctx, id, want)
			return done, err
		})
	})
}

func (c *jobCommands) results() *cobra.Command {
	var s resultFlags
	cmd := c.withJobCompletion(&cobra.Command{
		Use:   "results JOB",
		Short: "Write the results of a job to a file",
		Long: `Write the results of a succeeded job to a file.

Rows come in the order of the input. A broken download of a Parquet file
continues where it stopped, also if you run the same command later. The file
appears under its name only once it is complete.

With --partial it also writes the committed rows of a job that failed, was cancelled
or still runs: one row for each row of the input, and null if there is no output.
"rowmill jobs errors" shows the reasons, and "rowmill jobs resume" runs the rest of
an ended job.`,
		Example: `  rowmill jobs results job-… --output answers.parquet --include-inputs
  rowmill jobs results job-… --format json --output - | jq -r '.outputs[]'
  rowmill jobs results job-… --partial --output so-far.parquet`,
		Args: cobra.ExactArgs(1),
	})
	s.addFlags(cmd, "")
	cmd.Flags().BoolVar(&s.want.Partial, "partial", false, "write the committed rows of a job that has not succeeded (default file: NAME.partial.parquet)")
	return c.SetBody(cmd, func(ctx context.Context, api *client.Client, args []string) error {
		if err := s.resolvePath(args[0]); err != nil {
			return err
		}
		if s.want.Partial {
			job, err := api.Job(ctx, args[0])
			if err != nil {
				return fmt.Errorf("results of %s: %w", args[0], err)
			}
			c.printPartialHint(job)
		}
		return c.saveResults(ctx, api, args[:1], &s)
	})
}

// printPartialHint prints how many rows of a job are done, if its results are incomplete.
func (c *jobCommands) printPartialHint(job client.Job) {
	switch {
	case job.Status == rowmill.StatusSucceeded || job.NumRows == nil: // all rows are done, or the number of rows is unknown
	case !job.Status.IsTerminal():
		c.Term.Say("%s is %s with %s rows done; the other rows are null", job.ID, job.Status, formatRows(job))
	case job.RowsDone < *job.NumRows:
		c.Term.Say("%s is %s with %s rows done; the other rows are null; to run them: rowmill jobs resume %s", job.ID, job.Status, formatRows(job), job.ID)
	}
}

func formatCount(n *int64) string {
	if n == nil {
		return ""
	}
	return terminal.FormatCount(*n)
}

func formatCost(cost *float64) string {
	if cost == nil {
		return ""
	}
	return fmt.Sprintf("%.6f USD", *cost)
}

// formatRows formats the number of done rows and of all rows of a job, such as 5/10.
func formatRows(job client.Job) string {
	if job.NumRows == nil {
		return "-"
	}
	if job.RowsDone == *job.NumRows || job.RunType == rowmill.RunEstimate {
		return terminal.FormatCount(*job.NumRows)
	}
	return terminal.FormatCount(job.RowsDone) + "/" + terminal.FormatCount(*job.NumRows)
}

// formatRowsAndFailed is formatRows with the number of failed rows, if there are any.
func formatRowsAndFailed(job client.Job) string {
	if job.FailedRows == 0 {
		return formatRows(job)
	}
	return formatRows(job) + ", " + terminal.FormatCount(job.FailedRows) + " failed"
}
