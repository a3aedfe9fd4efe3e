package quotas

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/cmd/rowmill/command"
	"github.com/rowmill/rowmill/cmd/rowmill/connect"
	"github.com/rowmill/rowmill/cmd/rowmill/exit"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
)

// Values of the flag --group-by.
const (
	byDay   = "day"
	byModel = "model"
	byKey   = "key"
)

// Usage returns `rowmill usage`.
func Usage(service connect.Options) *cobra.Command {
	c := &quotaCommands{command.GroupOptions{Options: service}}
	var q client.GetUsageParams
	groups := []string{byDay, byModel}
	cmd := &cobra.Command{
		Use:   "usage",
		Short: "Show the usage of an account: rows, tokens, cost, by day, model and key",
		Long: `Show the usage of an account: rows, tokens and cost, by day and model, or by
--group-by.

Rows count on the day (UTC) on which they were done, also rows of jobs that were
cancelled or failed later. Failed rows and estimates use no tokens and cost
nothing. COPIES are rows that got the answer of an equal row. Without flags the
command shows the current month.

A row counts for the API key that submitted its job. Usage without a key was
made with the key of the configuration, or before keys were recorded.

Any key sees the usage of its own account; an administrator of the account
default may name another.

` + command.Help,
		Example: `  rowmill usage
  rowmill usage --from 2026-01-01 --to 2026-01-31 --account acme
  rowmill usage --group-by key
  rowmill usage --group-by day,model --key 0123456789ab
  rowmill usage -o json | jq .total.cost_usd`,
		Args: cobra.NoArgs,
	}
	c.AddFlags(cmd)
	cmd.Flags().StringVar(&q.From, "from", "", "first day, UTC (default: the first of the month of --to)")
	cmd.Flags().StringVar(&q.To, "to", "", "last day, included (default: today)")
	cmd.Flags().StringSliceVar(&groups, "group-by", groups, "how to group the lines: one or more of day, model and key")
	cmd.Flags().StringVar(&q.KeyID, "key", "", "only usage by jobs of this key: its id, as rowmill keys list shows it")
	return c.AddAccountFlag(c.SetPrintingBody(cmd, func(ctx context.Context, api *client.Client, _ []string) error {
		for flag, day := range map[string]string{"--from": q.From, "--to": q.To} {
			if _, err := time.Parse(time.DateOnly, day); day != "" && err != nil {
				return exit.WithCode(exit.Usage, fmt.Errorf("%s must be a day such as 2026-01-31, is %q", flag, day))
			}
		}
		if len(groups) == 0 {
			return exit.WithCode(exit.Usage, errors.New("--group-by names nothing; it must be one or more of day, model and key, separated by commas"))
		}
		for _, by := range groups {
			if !slices.Contains([]string{byDay, byModel, byKey}, by) {
				return exit.WithCode(exit.Usage, fmt.Errorf("--group-by must be one or more of day, model and key, separated by commas; it has %q", by))
			}
		}
		if q.Account = c.Account; cmd.Flags().Changed("group-by") {
			q.GroupBy = strings.Join(groups, ",")
		}
		u, answer, err := api.GetUsage(ctx, q)
		if err != nil {
			return fmt.Errorf("usage: %w", err)
		}
		return c.PrintTable(answer.Raw, func(row terminal.RowWriter) {
			c.Term.Say("account %s, %s to %s", terminal.SanitizeLine(u.Account), terminal.SanitizeLine(u.From), terminal.SanitizeLine(u.To))
			heads, cells := usageColumns(groups)
			row(append(heads, "ROWS", "FAILED", "COPIES", "TOKENS IN", "TOKENS OUT", "USD")...)
			line := func(cells []string, f client.UsageTotal) {
				row(append(cells, terminal.FormatCount(f.Rows), terminal.FormatCount(f.FailedRows), terminal.FormatCount(f.DeduplicatedRows),
					terminal.FormatCount(f.InputTokens), terminal.FormatCount(f.OutputTokens), fmt.Sprintf("%.6f", f.CostUSD))...)
			}
			for _, e := range u.Usage {
				line(cells(e), client.UsageTotal{
					Rows: e.Rows, FailedRows: e.FailedRows, DeduplicatedRows: e.DeduplicatedRows,
					InputTokens: e.InputTokens, OutputTokens: e.OutputTokens, CostUSD: e.CostUSD,
				})
			}
			total := make([]string, len(heads))
			total[0] = "total"
			line(total, u.Total)
		}, "COPIES", "FAILED", "TOKENS IN", "TOKENS OUT")
	}))
}

// usageColumns returns the headings of the columns for these groups, and a function that
// returns the cells of a line in the same order.
func usageColumns(groups []string) (heads []string, cells func(client.UsageLine) []string) {
	day, model, key := slices.Contains(groups, byDay), slices.Contains(groups, byModel), slices.Contains(groups, byKey)
	if day {
		heads = append(heads, "DAY")
	}
	if model {
		heads = append(heads, "MODEL")
	}
	if key {
		heads = append(heads, "KEY", "NAME")
	}
	return heads, func(l client.UsageLine) (cells []string) {
		if day {
			cells = append(cells, terminal.Deref(l.Day))
		}
		if model {
			cells = append(cells, terminal.Deref(l.Model))
		}
		if key {
			cells = append(cells, terminal.FillEmptyCells(terminal.Deref(l.KeyID), terminal.Deref(l.KeyName))...)
		}
		return cells
	}
}
