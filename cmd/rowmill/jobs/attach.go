package jobs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/cmd/rowmill/exit"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
)

func (c *jobCommands) attach() *cobra.Command {
	var s resultFlags
	var timeout time.Duration
	cmd := c.withJobCompletion(&cobra.Command{
		Use:   "attach JOB...",
		Short: "Follow a job and write its results",
		Long: `Follow a job until it ends and write its results. For an estimate it prints the
result. The results of two to four jobs on one input become one Parquet file.

Ctrl-C detaches: the job continues, and the same command follows it again.`,
		Example: "  rowmill jobs attach job-… --output answers.parquet",
		Args:    cobra.RangeArgs(1, maxModels),
	})
	s.addFlags(cmd, "")
	addTimeoutFlag(cmd, &timeout)
	return c.SetBody(cmd, func(ctx context.Context, api *client.Client, args []string) error {
		if err := s.resolvePath(args[0]); err != nil {
			return err
		}
		if len(args) > 1 {
			if err := s.checkJoint(); err != nil {
				return exit.WithCode(exit.Usage, fmt.Errorf("several jobs have one result file: %w", err))
			}
		}
		return c.followAndSave(ctx, api, args, &s, timeout)
	})
}

func addTimeoutFlag(cmd *cobra.Command, timeout *time.Duration) {
	cmd.Flags().DurationVar(timeout, "timeout", 0, "stop waiting after this time, such as 30m; the job goes on (default: wait for ever)")
}

// followAndSave follows a job, or the jobs of a set, until they end, and writes their results. If
// following stops before that, followAndSave prints how to continue.
func (c *jobCommands) followAndSave(ctx context.Context, api *client.Client, ids []string, s *resultFlags, timeout time.Duration) (err error) {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, timeout,
			exit.WithCode(exit.Timeout, fmt.Errorf("%s has not ended after %v", strings.Join(ids, ", "), timeout)))
		defer cancel()
	}
	defer func() {
		if err != nil && (ctx.Err() != nil || client.Temporary(err)) {
			c.printHowToReattach(ids, s, err)
		}
	}()
	begun := c.Term.Now()
	for _, id := range ids {
		job, err := c.followJob(ctx, api, id)
		if err == nil {
			err = outcomeError(job)
		}
		if err != nil {
			return err
		}
		if job.RunType == rowmill.RunEstimate {
			return c.printEstimate(job)
		}
		c.printSummary(job, c.Term.Now().Sub(begun))
	}
	if s.skip {
		return nil
	}
	return c.saveResults(ctx, api, ids, s)
}

// printSummary prints how many rows and tokens a succeeded job had, and how long it took.
// watchedFor is used if the record has no times.
func (c *jobCommands) printSummary(job client.Job, watchedFor time.Duration) {
	took := watchedFor
	if job.Started != nil && job.Completed != nil {
		took = job.Completed.Sub(*job.Started)
	}
	line := fmt.Sprintf("%s succeeded: %s rows in %s, %s tokens in, %s out", job.ID,
		terminal.FormatCount(terminal.Deref(job.NumRows)), terminal.FormatDuration(took),
		terminal.FormatCount(terminal.Deref(job.InputTokens)), terminal.FormatCount(terminal.Deref(job.OutputTokens)))
	c.Term.Say("%s", line)
	if job.FailedRows > 0 {
		c.Term.Say("%s rows failed and have no output; see why: rowmill jobs errors %s", terminal.FormatCount(job.FailedRows), job.ID)
	}
	if job.DeduplicatedRows > 0 {
		c.Term.Say("%s rows were equal to other rows: they have the same answers and used no tokens", terminal.FormatCount(job.DeduplicatedRows))
	}
	if job.Output != "" {
		c.Term.Say("the service has written the results to %s", job.Output)
	}
	if job.HasOtherRows() {
		c.Term.Say("the input has %s rows; run the others: rowmill jobs resume %s --rows rest", terminal.FormatCount(*job.InputRows), job.ID)
	}
	c.printCuts(job)
}

// printCuts prints how many inputs and outputs of a job were cut.
func (c *jobCommands) printCuts(job client.Job) {
	if job.TruncatedRows > 0 {
		c.Term.Say("%s inputs were cut to fit the model's context; --no-truncate fails the job instead", terminal.FormatCount(job.TruncatedRows))
	}
	if job.TruncatedOutputs > 0 {
		c.Term.Say("%s outputs were cut by the length limit; raise it with --param max_tokens=N", terminal.FormatCount(job.TruncatedOutputs))
	}
}

// printHowToReattach prints that the job continues without this program, and how to follow or
// cancel the job. It prints even with --quiet.
func (c *jobCommands) printHowToReattach(ids []string, s *resultFlags, why error) {
	var signal exit.Signal
	if errors.As(why, &signal) {
		fmt.Fprintln(c.Term.Err, "detached")
	}
	all := strings.Join(ids, " ")
	fmt.Fprintf(c.Term.Err, "the job goes on; follow it again with\n  rowmill jobs attach %s%s\nor end it with\n  rowmill jobs cancel %s\n", all, s.formatFlags(), all)
}
