// Package accounts holds the commands about an account's API keys, webhooks and own
// settings. It owns the names and the output of the commands; package client speaks the
// API. The settings of a node are in package settings.
package accounts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/cmd/rowmill/command"
	"github.com/rowmill/rowmill/cmd/rowmill/connect"
	"github.com/rowmill/rowmill/cmd/rowmill/exit"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
)

// accountCommands holds the data that all commands of this package share.
type accountCommands struct{ command.GroupOptions }

// Keys returns `rowmill keys`.
func Keys(service connect.Options) *cobra.Command {
	c := &accountCommands{command.GroupOptions{Options: service}}
	return c.AddSubcommands(&cobra.Command{
		Use:   "keys",
		Short: "Create, list, rotate and revoke API keys",
		Long: `Create, list, rotate and revoke API keys.

Every key belongs to an account, and sees only the jobs, Functions and results of
that account. A user key runs jobs; an admin key also manages keys, quotas,
settings and Functions. The text of a key is shown once, when it is made: the
service keeps only its hash. Changes take effect on every node within
5 seconds.

These commands need an administrator's key. A key of the account default may name any
other account; naming a new account creates it.

` + command.Help,
	}, c.createKey(), c.listKeys(), c.rotateKey(), c.revokeKeys())
}

func (c *accountCommands) createKey() *cobra.Command {
	var wanted client.NewKey
	var expires string
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Create a key and print it; it cannot be printed again",
		Long: `Create a key and print it; it cannot be printed again.

The command prints the key to standard output, and everything else to standard error:
"> FILE" writes the key to a file, and the terminal does not show it.`,
		Example: `  rowmill keys create --name nightly --expires 90d > nightly.key
  rowmill keys create --account acme --role admin --name "acme's first"`,
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.StringVar(&wanted.Account, "account", "", "the account (default: that of your key)")
	flags.StringVar(&wanted.Name, "name", "", "a name for people, such as the user or program")
	flags.StringVar(&wanted.Role, "role", "user", "rights of the key: user, admin or reader")
	flags.StringVar(&expires, "expires", "", "when the key expires: days from now such as 90d, a day such as 2030-01-31 (its first moment, UTC), or a time such as 2030-01-31T18:00:00Z (default: never)")
	flags.StringVar(&wanted.Dialect, "dialect", "", "sdk, for clients that expect job states in upper case (default: states as documented)")
	flags.Int64Var(&wanted.RequestsPerMinute, "requests-per-minute", 0, "maximum number of requests a minute to each node (default: as the service is configured)")
	return c.SetPrintingBody(cmd, func(ctx context.Context, api *client.Client, _ []string) error {
		var err error
		if wanted.ExpiresAt, err = parseExpiry(expires, c.Term.Now()); err != nil {
			return exit.WithCode(exit.Usage, err)
		}
		if flags.Changed("requests-per-minute") && wanted.RequestsPerMinute < 1 {
			return exit.WithCode(exit.Usage, fmt.Errorf("--requests-per-minute must be at least 1, is %d", wanted.RequestsPerMinute))
		}
		k, answer, err := api.CreateKey(ctx, "", wanted)
		if err != nil {
			return fmt.Errorf("create a key: %w", err)
		}
		return c.printNewKey(k, answer, "created")
	})
}

// parseExpiry parses the value of --expires; nil means that the key never expires.
func parseExpiry(text string, now time.Time) (*time.Time, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // nil means never
	}
	if days, is := strings.CutSuffix(text, "d"); is {
		if n, err := strconv.Atoi(days); err == nil && n > 0 && n < 100_000 {
			at := now.AddDate(0, 0, n).UTC().Truncate(time.Second)
			return &at, nil
		}
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if at, err := time.Parse(layout, text); err == nil {
			at = at.UTC()
			return &at, nil
		}
	}
	return nil, fmt.Errorf("--expires must be days from now such as 90d, a day such as 2030-01-31, or a time such as 2030-01-31T18:00:00Z; is %q", text)
}

// printNewKey prints a key that was created or rotated. verb is one of these two words.
func (c *accountCommands) printNewKey(k client.Key, answer client.Answer, verb string) error {
	if k.Key == "" {
		return errors.New("the answer holds no key; look at `rowmill keys list`")
	}
	ends := "it does not expire"
	if k.ExpiresAt != nil {
		ends = "it expires at " + terminal.FormatTime(k.ExpiresAt)
	}
	return c.printSecretOnce(answer, fmt.Sprintf("%s %s key %s of account %s; %s. Keep its text", verb, k.Role, k.ID, terminal.SanitizeLine(k.Account), ends), k.Key)
}

// printSecretOnce prints a secret that the service shows only this time. about is a text that
// describes the secret.
func (c *accountCommands) printSecretOnce(answer client.Answer, about, secret string) error {
	return c.Print(answer.Raw, func(w io.Writer) error {
		c.Term.Say("%s: it cannot be shown again:", about)
		_, err := fmt.Fprintln(w, terminal.SanitizeLine(secret))
		return err
	})
}

func (c *accountCommands) listKeys() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List keys, oldest first",
		Long: `List keys, oldest first: the keys of your account, or, for an administrator of the
account default, the keys of all accounts.`,
		Example: `  rowmill keys list
  rowmill keys list --account acme -o json | jq -r '.keys[].id'`,
		Args: cobra.NoArgs,
	}
	cmd.Flags().StringVar(&c.Account, "account", "", "the account (default: that of your key, or all)")
	return c.SetPrintingBody(cmd, func(ctx context.Context, api *client.Client, _ []string) error {
		keys, answer, err := api.Keys(ctx, c.Account)
		if err != nil {
			return fmt.Errorf("list keys: %w", err)
		}
		return c.PrintTable(answer.Raw, func(row terminal.RowWriter) {
			row("ID", "ACCOUNT", "ROLE", "NAME", "CREATED", "EXPIRES", "LAST USED", "DIALECT", "PER MINUTE")
			for _, k := range keys {
				perMinute := ""
				if k.RequestsPerMinute != nil {
					perMinute = terminal.FormatCount(*k.RequestsPerMinute)
				}
				row(terminal.FillEmptyCells(k.ID, k.Account, k.Role, k.Name, formatMinute(&k.CreatedAt), formatMinute(k.ExpiresAt), formatMinute(k.LastUsedAt), terminal.Deref(k.Dialect), perMinute)...)
			}
		}, "DIALECT", "PER MINUTE", "CREATED")
	})
}

// formatMinute formats a time to the minute, in UTC; the text is empty if at is nil.
func formatMinute(at *time.Time) string {
	if at == nil {
		return ""
	}
	return at.UTC().Format("2006-01-02 15:04")
}

func (c *accountCommands) rotateKey() *cobra.Command {
	return c.SetPrintingBody(&cobra.Command{
		Use:   "rotate ID",
		Short: "Replace the text of a key and print the new text; it cannot be printed again",
		Long: `Replace the text of a key and print the new text; it cannot be printed again. Name,
role, account and expiry stay. All nodes refuse the old text within 5 seconds.`,
		Example: `  rowmill keys rotate 5f2c9a01d3e4 > nightly.key`,
		Args:    cobra.ExactArgs(1),
	}, func(ctx context.Context, api *client.Client, args []string) error {
		k, answer, err := api.RotateKey(ctx, args[0])
		if err != nil {
			return fmt.Errorf("rotate: %w", err)
		}
		return c.printNewKey(k, answer, "rotated")
	})
}

func (c *accountCommands) revokeKeys() *cobra.Command {
	return c.SetBody(&cobra.Command{
		Use:   "revoke ID...",
		Short: "Revoke keys for good",
		Long: `Revoke keys for good. All nodes refuse them within 5 seconds. Jobs that were
submitted with them go on.`,
		Example: `  rowmill keys revoke 5f2c9a01d3e4`,
		Args:    cobra.MinimumNArgs(1),
	}, func(ctx context.Context, api *client.Client, args []string) error {
		for _, id := range args {
			if _, _, err := api.RevokeKey(ctx, id); err != nil {
				return fmt.Errorf("revoke %s: %w", terminal.SanitizeLine(id), err)
			}
			c.Term.Say("key %s is revoked", terminal.SanitizeLine(id))
		}
		return nil
	})
}
