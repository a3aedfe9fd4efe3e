package jobs

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/client"
)

func (c *commands) resume() *cobra.Command {
	var want client.Resumption
	var params client.ResumeJobParams
	var priority rowmill.Priority
	var again bool
	cmd := c.ofJobs(&cobra.Command{
		Use:   "resume JOB",
		Short: "Run what a job that is over has left",
		Long: `Create a job that takes over the rows which a failed or cancelled job, or a
succeeded one with failed rows, has committed, and runs the rest. Its id goes to
standard output; its results have all rows, its cost those that it runs.

If a job continues it already, the command names that job and makes none.

The input must be kept still: jobs.input_retention of the service says how long
that is.`,
		Example: "  rowmill jobs resume job-…\n  rowmill jobs resume job-… --rows failed",
		Args:    cobra.ExactArgs(1),
	})
	flags := cmd.Flags()
	flags.StringVar(&want.Rows, "rows", "", "missing: rows that are not done; failed: those that failed too (default: failed where that is why the job failed, or it succeeded)")
	flags.IntVar((*int)(&priority), "priority", 0, "priority of the new job, as jobs submit takes it (default: that of the job)")
	flags.StringVar(&want.Name, "name", "", "name of the new job (default: that of the job)")
	flags.BoolVar(&again, "again", false, "make a job even if another job already continues this job; its rows run, and are paid, again")
	flags.StringVar(&params.IdempotencyKey, "idempotency-key", "", "makes repeating the command harmless")
	return c.Prints(cmd, func(ctx context.Context, api *client.Client, args []string) error {
		if flags.Changed("priority") {
			want.JobPriority = &priority
		}
		if again {
			want.Again = &again
		}
		made, _, err := api.ResumeJob(ctx, args[0], params, want)
		if err != nil {
			return fmt.Errorf("resume %s: %w", args[0], err)
		}
		return c.Print(map[string]string{"job_id": made.JobID, "message": made.Metadata.Message}, func(w io.Writer) error {
			c.Term.Say("%s", made.Metadata.Message)
			_, err := fmt.Fprintln(w, made.JobID)
			return err
		})
	})
}
