package jobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/client"
)

// fieldsToFlags replaces the fields of the API in a message with the flags of this command.
var fieldsToFlags = strings.NewReplacer(
	`send {"rows": "missing"}`, "use --rows missing",
	`send {"rows": "failed"}`, "use --rows failed",
	`send {"rows": "rest"}`, "use --rows rest",
	`send {"again": true}`, "use --again",
)

func (c *jobCommands) resume() *cobra.Command {
	var want client.Resumption
	var params client.ResumeJobParams
	var priority rowmill.Priority
	var again bool
	var maxTokens int64
	cmd := c.withJobCompletion(&cobra.Command{
		Use:   "resume JOB",
		Short: "Run the rest of an ended job",
		Long: `Create a job that reuses the committed rows of a failed or cancelled job, or of
a succeeded job with failed rows or a limit, and runs the other rows. The command
prints the new job's id to standard output. The results of the new job have all rows;
its cost counts only the rows that it runs.

If another job already continues JOB, the command names that job and creates none.

The input must still exist: jobs.input_retention of the service says for how long.`,
		Example: "  rowmill jobs resume job-…\n  rowmill jobs resume job-… --rows failed",
		Args:    cobra.ExactArgs(1),
	})
	flags := cmd.Flags()
	flags.StringVar(&want.Rows, "rows", "", "which rows run. missing: rows that are not done; failed: rows that are not done, and failed rows; rest: rows that are not done, failed rows, and rows that --limit left out (default: failed if the job succeeded, or failed because of failed rows; else missing)")
	flags.IntVar((*int)(&priority), "priority", 0, "priority of the new job, as for jobs submit (default: the old job's)")
	flags.StringVar(&want.Name, "name", "", "name of the new job (default: the old job's)")
	flags.Int64Var(&maxTokens, "max-tokens", 0, "max_tokens of the rows that run again, for rows that failed with output_truncated (default: the old job's)")
	flags.BoolVar(&again, "again", false, "create a job even if another job continues this job already; its rows run, and cost, again")
	flags.StringVar(&params.IdempotencyKey, "idempotency-key", "", "repeating the command with the same key creates no second job")
	return c.SetPrintingBody(cmd, func(ctx context.Context, api *client.Client, args []string) error {
		if flags.Changed("priority") {
			want.JobPriority = &priority
		}
		if flags.Changed("max-tokens") {
			want.SamplingParams = &client.ResumptionParams{MaxTokens: &maxTokens}
		}
		if again {
			want.Again = &again
		}
		made, _, err := api.ResumeJob(ctx, args[0], params, want)
		if err != nil {
			var refused *client.APIError
			if errors.As(err, &refused) {
				refused.Message = fieldsToFlags.Replace(refused.Message)
			}
			return fmt.Errorf("resume %s: %w", args[0], err)
		}
		return c.Print(map[string]string{"job_id": made.JobID, "message": made.Metadata.Message}, func(w io.Writer) error {
			c.Term.Say("%s", made.Metadata.Message)
			_, err := fmt.Fprintln(w, made.JobID)
			return err
		})
	})
}
