package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/cmd/rowmill/exit"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
)

// defaultFoundRows is the default of --limit of rowmill jobs rows.
const defaultFoundRows = 100

func (c *jobCommands) rows() *cobra.Command {
	var filter client.PreviewParams
	var limit int64
	cmd := c.withJobCompletion(&cobra.Command{
		Use:   "rows JOB [N...]",
		Short: "Show single rows, or find rows by their content",
		Long: `Show single rows as JSON, with their attempts: one document for each. Rows are
numbered from 0.

Without numbers the command prints finished rows as JSON Lines, in the order of the
input: all of them, or the rows that satisfy every flag. Texts above 16 KiB are cut.`,
		Example: `  rowmill jobs rows job-… 0 17
  rowmill jobs rows job-… --where sentiment=negative --limit 20
  rowmill jobs rows job-… --text refund | jq -r .input`,
		Args: cobra.MinimumNArgs(1),
	})
	flags := cmd.Flags()
	flags.StringArrayVar((*[]string)(&filter.Where), "where", nil, "PROPERTY=VALUE: only rows with this value of a property of their JSON answer; =VALUE: only rows with this answer; repeatable")
	flags.StringVar(&filter.Text, "text", "", "only rows with this text in the input or the answer")
	flags.StringVar(&filter.FinishReason, "finish-reason", "", "only rows with this finish reason, such as length")
	flags.StringVar(&filter.Code, "code", "", "only rows that failed with this code, such as schema_violation")
	flags.Int64Var(&limit, "limit", defaultFoundRows, "largest number of rows to print")
	return c.SetBody(cmd, func(ctx context.Context, api *client.Client, args []string) error {
		if len(args) == 1 {
			return c.findRows(ctx, api, args[0], filter, limit)
		}
		if len(filter.Where) > 0 || filter.Text != "" || filter.FinishReason != "" || filter.Code != "" || flags.Changed("limit") {
			return exit.WithCode(exit.Usage, errors.New("give either numbers of rows or flags that choose rows"))
		}
		return c.showRows(ctx, api, args[0], args[1:])
	})
}

// showRows prints single rows.
func (c *jobCommands) showRows(ctx context.Context, api *client.Client, job string, numbers []string) error {
	for _, arg := range numbers {
		n, err := strconv.ParseInt(arg, 10, 64)
		if err != nil || n < 0 {
			return exit.WithCode(exit.Usage, fmt.Errorf("%q is not a row number; rows are numbered from 0", arg))
		}
		row, _, err := api.GetRow(ctx, job, n)
		if err != nil {
			return fmt.Errorf("row %d of %s: %w", n, job, err)
		}
		if err := terminal.WriteJSON(c.Term.Out, row); err != nil {
			return err
		}
	}
	return nil
}

// findRows prints at most limit finished rows that the filter selects.
func (c *jobCommands) findRows(ctx context.Context, api *client.Client, job string, filter client.PreviewParams, limit int64) error {
	const page = 1000 // the largest page of the service
	out := json.NewEncoder(c.Term.Out)
	out.SetEscapeHTML(false)
	for filter.Done = "true"; limit > 0; {
		filter.Limit = min(limit, page)
		found, _, err := api.Preview(ctx, job, filter)
		if err != nil {
			return fmt.Errorf("rows of %s: %w", job, err)
		}
		for _, row := range found.Rows {
			if err := out.Encode(row); err != nil {
				return err
			}
		}
		if limit -= int64(len(found.Rows)); found.NextOffset == nil {
			return nil
		}
		filter.Offset = *found.NextOffset
	}
	return nil
}
