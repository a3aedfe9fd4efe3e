package quotas

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/cmd/rowmill/command"
	"github.com/rowmill/rowmill/cmd/rowmill/connect"
	"github.com/rowmill/rowmill/cmd/rowmill/exit"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
)

// Usage returns `rowmill usage`.
func Usage(service connect.Options) *cobra.Command {
	c := &commands{command.Set{Options: service}}
	var from, to string
	cmd := &cobra.Command{
		Use:   "usage",
		Short: "Show what an account used: rows, tokens, cost, by day and model",
		Long: `Show what an account used: rows, tokens and cost, by day and model.

Rows count on the day (UTC) on which they were done, also those of jobs that
were cancelled or failed later. Rows that failed used no tokens and cost
nothing; nor do estimates. Without flags it is the current month.

Any key sees the usage of its own account; an administrator of the account
default may name another.

` + command.Help,
		Example: `  rowmill usage
  rowmill usage --from 2026-01-01 --to 2026-01-31 --account acme
  rowmill usage -o json | jq .total.cost_usd`,
		Args: cobra.NoArgs,
	}
	c.Flags(cmd)
	cmd.Flags().StringVar(&from, "from", "", "first day, UTC (default: the first of the month of --to)")
	cmd.Flags().StringVar(&to, "to", "", "last day, included (default: today)")
	return c.OfAccount(c.Prints(cmd, func(ctx context.Context, api *client.Client, _ []string) error {
		for flag, day := range map[string]string{"--from": from, "--to": to} {
			if _, err := time.Parse(time.DateOnly, day); day != "" && err != nil {
				return exit.With(exit.Usage, fmt.Errorf("%s must be a day such as 2026-01-31, is %q", flag, day))
			}
		}
		u, err := api.Usage(ctx, c.Account, from, to)
		if err != nil {
			return fmt.Errorf("usage: %w", err)
		}
		return c.Table(u.Raw, func(row terminal.Row) {
			c.Term.Say("account %s, %s to %s", terminal.Printable(u.Account), terminal.Printable(u.From), terminal.Printable(u.To))
			row("DAY", "MODEL", "ROWS", "FAILED", "TOKENS IN", "TOKENS OUT", "USD")
			line := func(day, model string, f client.Figures) {
				row(day, model, terminal.Count(f.Rows), terminal.Count(f.FailedRows),
					terminal.Count(f.InputTokens), terminal.Count(f.OutputTokens), fmt.Sprintf("%.6f", f.Cost))
			}
			for _, entry := range u.Usage {
				line(entry.Day, entry.Model, entry.Figures)
			}
			line("total", "", u.Total)
		})
	}))
}
