package accounts

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/cmd/rowmill/command"
	"github.com/rowmill/rowmill/cmd/rowmill/connect"
	"github.com/rowmill/rowmill/cmd/rowmill/exit"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
)

// never is the value of --retention-days for data that never expires.
const never = "never"

// Settings returns `rowmill settings`.
func Settings(service connect.Options) *cobra.Command {
	c := &accountCommands{command.GroupOptions{Options: service}}
	return c.AddSubcommands(&cobra.Command{
		Use:   "settings",
		Short: "Show and change how long the data of an account is kept",
		Long: `Show and change the settings of an account: how long after its end a job's
input and results are kept. The record of the job stays for ever.

To change them you need an administrator's key; a key of the account default may name
any other account. For the settings of a node see rowmill config.

` + command.Help,
	}, c.getSettings(), c.previewSettings(), c.setSettings())
}

func (c *accountCommands) previewSettings() *cobra.Command {
	return c.AddAccountFlag(c.SetPrintingBody(&cobra.Command{
		Use:   "preview",
		Short: "Show which data each choice of retention would remove, and change nothing",
		Example: `  rowmill settings preview
  rowmill settings preview --account acme -o json`,
		Args: cobra.NoArgs,
	}, func(ctx context.Context, api *client.Client, _ []string) error {
		p, answer, err := api.PreviewSettings(ctx, c.Account)
		if err != nil {
			return fmt.Errorf("preview settings: %w", err)
		}
		return c.PrintTable(answer.Raw, func(row terminal.RowWriter) {
			c.Term.Say("account %s", terminal.SanitizeLine(p.Account))
			row("KEPT FOR", "JOBS TO REMOVE", "BYTES OF RESULTS", "THE OLDEST ENDED", "THE NEXT REMOVAL")
			for _, e := range p.Presets {
				row(terminal.FillEmptyCells(formatRetention(e.RetentionDays), formatJobsToRemove(e), terminal.FormatCount(e.ResultBytes), terminal.FormatTime(e.OldestEndedAt), terminal.FormatTime(e.NextAt))...)
			}
			if !p.LookedAtAll {
				c.Term.Say("only the %d jobs that ended first were checked", p.LookedAt)
			}
		}, "THE OLDEST ENDED")
	}))
}

func formatRetention(days *int64) string {
	if days == nil {
		return "for ever"
	}
	if *days == 1 {
		return "1 day"
	}
	return fmt.Sprintf("%d days", *days)
}

func formatJobsToRemove(e client.RetentionEffect) string {
	if e.AtLeast {
		return fmt.Sprintf("at least %d", e.Jobs)
	}
	return strconv.FormatInt(e.Jobs, 10)
}

func (c *accountCommands) getSettings() *cobra.Command {
	return c.AddAccountFlag(c.SetPrintingBody(&cobra.Command{
		Use:   "get",
		Short: "Show the settings of the account",
		Example: `  rowmill settings get
  rowmill settings get --account acme -o json`,
		Args: cobra.NoArgs,
	}, func(ctx context.Context, api *client.Client, _ []string) error {
		s, answer, err := api.GetSettings(ctx, c.Account)
		if err != nil {
			return fmt.Errorf("get settings: %w", err)
		}
		return c.printSettings(s, answer)
	}))
}

func (c *accountCommands) setSettings() *cobra.Command {
	var retention string
	cmd := &cobra.Command{
		Use:   "set",
		Short: "Change the settings of the account, and print which data this removes",
		Example: `  rowmill settings set --retention-days 30
  rowmill settings set --retention-days never --account acme`,
		Args: cobra.NoArgs,
	}
	cmd.Flags().StringVar(&retention, "retention-days", "", "days until a job's results are deleted, counted from its end: 1, 7, 30, 90 or "+never)
	return c.AddAccountFlag(c.SetPrintingBody(cmd, func(ctx context.Context, api *client.Client, _ []string) error {
		days, err := parseRetentionDays(retention)
		if err != nil {
			return exit.WithCode(exit.Usage, err)
		}
		if days != nil {
			if err := c.printRemovals(ctx, api, *days); err != nil {
				return fmt.Errorf("preview settings: %w", err)
			}
		}
		s, answer, err := api.PatchSettings(ctx, client.PatchSettingsParams{Account: c.Account}, client.SettingsChange{RetentionDays: days})
		if err != nil {
			return fmt.Errorf("set settings: %w", err)
		}
		return c.printSettings(s, answer)
	}))
}

// printRemovals prints how many jobs lose their data if the retention becomes this many
// days.
func (c *accountCommands) printRemovals(ctx context.Context, api *client.Client, days int64) error {
	p, _, err := api.PreviewSettings(ctx, c.Account)
	if err != nil {
		return err
	}
	for _, e := range p.Presets {
		if e.RetentionDays != nil && *e.RetentionDays == days && e.Jobs > 0 {
			c.Term.Say("the data of %s jobs will be removed within minutes; the oldest ended at %s", formatJobsToRemove(e), terminal.FormatTime(e.OldestEndedAt))
		}
	}
	return nil
}

// parseRetentionDays parses the value of --retention-days; nil means that data never
// expires. The service checks which numbers are allowed.
func parseRetentionDays(text string) (*int64, error) {
	switch n, err := strconv.ParseInt(text, 10, 64); {
	case text == "":
		return nil, fmt.Errorf("nothing to change; name --retention-days: 1, 7, 30, 90 or %s", never)
	case text == never:
		return nil, nil //nolint:nilnil // nil means for ever
	case err != nil:
		return nil, fmt.Errorf("--retention-days must be 1, 7, 30, 90 or %s; is %q", never, text)
	default:
		return &n, nil
	}
}

func (c *accountCommands) printSettings(s client.Settings, answer client.Answer) error {
	return c.PrintTable(answer.Raw, func(row terminal.RowWriter) {
		kept := formatRetention(s.RetentionDays)
		if s.RetentionDays != nil {
			kept += " after the job's end"
		}
		c.Term.Say("account %s", terminal.SanitizeLine(s.Account))
		row("SETTING", "VALUE")
		row("inputs and results are kept", kept)
	})
}
