package accounts

import (
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/cmd/rowmill/connect"
	"github.com/rowmill/rowmill/cmd/rowmill/exit"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
)

// never is how the command line says that data is kept for ever.
const never = "never"

// Settings returns `rowmill settings`.
func Settings(service connect.Options) *cobra.Command {
	c := &commands{service: service}
	root := &cobra.Command{
		Use:   "settings",
		Short: "Show and change what an account has chosen",
		Long: `Show and change what an account has chosen: how long after its end a job's
input and results are kept. The record of the job stays for ever.

All this takes an administrator's key; one of the account default may name any
other account. What an operator chooses for a node is another matter: see
rowmill config.

` + connect.Help + `

` + exit.Help,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.service.Flags(root)
	root.AddCommand(c.getSettings(), c.setSettings())
	return root
}

// ofAccount adds the flags that both commands have.
func (c *commands) ofAccount(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringVar(&c.account, "account", "", "the account (default: that of the key)")
	return c.printed(cmd)
}

func (c *commands) getSettings() *cobra.Command {
	return c.ofAccount(&cobra.Command{
		Use:   "get",
		Short: "Show what the account has chosen",
		Example: `  rowmill settings get
  rowmill settings get --account acme -o json`,
		Args: cobra.NoArgs,
		RunE: c.service.With(func(cmd *cobra.Command, api *client.Client, _ []string) error {
			s, err := api.Settings(cmd.Context(), c.account)
			if err != nil {
				return fmt.Errorf("get settings: %w", err)
			}
			return c.showSettings(s)
		}),
	})
}

func (c *commands) setSettings() *cobra.Command {
	var retention string
	cmd := &cobra.Command{
		Use:   "set",
		Short: "Change what the account has chosen",
		Example: `  rowmill settings set --retention-days 30
  rowmill settings set --retention-days never --account acme`,
		Args: cobra.NoArgs,
		RunE: c.service.With(func(cmd *cobra.Command, api *client.Client, _ []string) error {
			days, err := retentionDays(retention)
			if err != nil {
				return exit.With(exit.Usage, err)
			}
			s, err := api.SetRetention(cmd.Context(), c.account, days)
			if err != nil {
				return fmt.Errorf("set settings: %w", err)
			}
			return c.showSettings(s)
		}),
	}
	cmd.Flags().StringVar(&retention, "retention-days", "", "days after its end for which a job's input and results are kept: 1, 7, 30, 90 or "+never)
	return c.ofAccount(cmd)
}

// retentionDays reads the flag; nil is for ever. Which numbers there are is
// the service's to say.
func retentionDays(text string) (*int, error) {
	switch n, err := strconv.Atoi(text); {
	case text == "":
		return nil, fmt.Errorf("nothing to change; name --retention-days: 1, 7, 30, 90 or %s", never)
	case text == never:
		return nil, nil //nolint:nilnil // for ever is an answer
	case err != nil:
		return nil, fmt.Errorf("--retention-days must be 1, 7, 30, 90 or %s; is %q", never, text)
	default:
		return &n, nil
	}
}

func (c *commands) showSettings(s client.Settings) error {
	if c.print == "json" {
		return terminal.JSON(c.service.Term.Out, s.Raw)
	}
	kept := "for ever"
	if s.RetentionDays != nil {
		kept = fmt.Sprintf("%d days after the job's end", *s.RetentionDays)
	}
	c.service.Term.Say("account %s", terminal.Printable(s.Account))
	return terminal.Table(c.service.Term.Out, func(w io.Writer) {
		fmt.Fprintln(w, "SETTING\tVALUE")
		fmt.Fprintf(w, "inputs and results are kept\t%s\n", kept)
	})
}
