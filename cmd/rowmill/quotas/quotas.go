// Package quotas holds the commands about an account's quotas and usage. It owns the
// names and the output of the commands; package client speaks the API.
package quotas

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/cmd/rowmill/command"
	"github.com/rowmill/rowmill/cmd/rowmill/connect"
	"github.com/rowmill/rowmill/cmd/rowmill/exit"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
)

// quotaCommands holds the data that all commands of this package share.
type quotaCommands struct{ command.GroupOptions }

// Command returns `rowmill quotas`.
func Command(service connect.Options) *cobra.Command {
	c := &quotaCommands{command.GroupOptions{Options: service}}
	return c.AddSubcommands(&cobra.Command{
		Use:   "quotas",
		Short: "Show and change the quotas of an account",
		Long: `Show and change the quotas of an account.

For each priority, two quotas limit every single job: its rows and its input
tokens. A job above one of them fails when its rows are counted. The cost quota
limits the cost of all jobs of the account in a calendar month (UTC). The spent
money and the reservations of other jobs use up this quota. If the estimated cost
of a job is more than the rest, the job fails before any of its rows is run.

If an account has no quota of its own, the setting of the service applies. A job
keeps the quotas that applied when it was submitted. These commands need an
administrator's key; a key of the account default may name any other account.

` + command.Help,
	}, c.get(), c.set())
}

func (c *quotaCommands) get() *cobra.Command {
	return c.AddAccountFlag(c.SetPrintingBody(&cobra.Command{
		Use:   "get",
		Short: "Show the current quotas and where each comes from",
		Example: `  rowmill quotas get
  rowmill quotas get --account acme -o json`,
		Args: cobra.NoArgs,
	}, func(ctx context.Context, api *client.Client, _ []string) error {
		q, answer, err := api.ShowQuotas(ctx, c.Account)
		if err != nil {
			return fmt.Errorf("get quotas: %w", err)
		}
		return c.printQuotas(q, answer)
	}))
}

// printQuotas prints the quotas of an account, and whether each comes from the account or the
// configuration.
func (c *quotaCommands) printQuotas(q client.Quotas, answer client.Answer) error {
	return c.PrintTable(answer.Raw, func(row terminal.RowWriter) {
		c.Term.Say("account %s", terminal.SanitizeLine(q.Account))
		row("QUOTA", "VALUE", "FROM")
		line := func(name, value string, own bool) {
			from := "configuration"
			if own {
				from = "account"
			}
			row(name, value, from)
		}
		for _, bound := range q.Quotas {
			own := client.OwnQuota{}
			if i := ownQuotaIndex(q.Own.Quotas, bound.Priority); i >= 0 {
				own = q.Own.Quotas[i]
			}
			line(fmt.Sprintf("rows of a job, priority %d", bound.Priority), formatQuota(bound.RowQuota), own.RowQuota != nil)
			line(fmt.Sprintf("input tokens of a job, priority %d", bound.Priority), formatQuota(bound.TokenQuota), own.TokenQuota != nil)
		}
		cost := "no limit"
		if q.CostQuotaUSD != nil {
			cost = fmt.Sprintf("%.2f USD", *q.CostQuotaUSD)
		}
		line("cost of a month", cost, q.Own.CostQuotaUSD != nil)
	})
}

// formatQuota formats a quota; 0 means no limit.
func formatQuota(n int64) string {
	if n == 0 {
		return "no limit"
	}
	return terminal.FormatCount(n)
}

// ownQuotaIndex returns the index of the account's own quota for a priority, or -1.
func ownQuotaIndex(own []client.OwnQuota, priority rowmill.Priority) int {
	return slices.IndexFunc(own, func(q client.OwnQuota) bool { return q.Priority == priority })
}

// The flag values that remove the account's own quota.
const (
	configured = "default" // value of --rows and --tokens
	unlimited  = "none"    // value of --cost-usd
)

// unnamed is the value of quotaChange.priority without the flag --priority.
const unnamed rowmill.Priority = -1

// quotaChange holds the flags of `rowmill quotas set`. A nil field does not change its
// quota.
type quotaChange struct {
	priority     rowmill.Priority
	rows, tokens *string
	cost         *string
}

func (c *quotaCommands) set() *cobra.Command {
	ch := quotaChange{}
	cmd := &cobra.Command{
		Use:   "set",
		Short: "Change quotas of an account",
		Long: `Change quotas of an account. Quotas without a flag do not change. Jobs that were
submitted earlier keep their quotas.`,
		Example: `  rowmill quotas set --priority 1 --rows 5000000 --tokens 2000000000
  rowmill quotas set --cost-usd 250 --account acme
  rowmill quotas set --priority 0 --rows default --cost-usd none`,
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.IntVar((*int)(&ch.priority), "priority", 0, "priority of the jobs for --rows and --tokens, as for jobs submit")
	flags.String("rows", "", "maximum number of rows of a job, or "+configured+" for the setting of the service")
	flags.String("tokens", "", "maximum number of input tokens of a job, or "+configured)
	flags.String("cost-usd", "", "US dollars that all jobs may cost in a calendar month, or "+unlimited+" for no limit")
	return c.AddAccountFlag(c.SetPrintingBody(cmd, func(ctx context.Context, api *client.Client, _ []string) error {
		given := func(flag string) *string {
			if !flags.Changed(flag) {
				return nil
			}
			return new(flags.Lookup(flag).Value.String())
		}
		ch.rows, ch.tokens, ch.cost = given("rows"), given("tokens"), given("cost-usd")
		if !flags.Changed("priority") {
			ch.priority = unnamed
		}
		return c.applyChange(ctx, api, ch)
	}))
}

// applyChange changes the account's own quotas. It returns an error if another client changes
// them at the same time.
func (c *quotaCommands) applyChange(ctx context.Context, api *client.Client, ch quotaChange) error {
	if err := ch.validate(); err != nil {
		return exit.WithCode(exit.Usage, err)
	}
	before, answer, err := api.ShowQuotas(ctx, c.Account)
	if err != nil {
		return fmt.Errorf("get quotas: %w", err)
	}
	own, err := ch.applyTo(before.Own)
	if err != nil {
		return exit.WithCode(exit.Usage, err)
	}
	after, answer, err := api.PutQuotas(ctx, client.PutQuotasParams{Account: c.Account, IfMatch: answer.ETag}, own)
	if err != nil {
		return fmt.Errorf("set quotas: %w", err)
	}
	return c.printQuotas(after, answer)
}

// validate returns an error if the change names no quota, or if a flag is missing or
// invalid.
func (ch quotaChange) validate() error {
	bounds, invalid := ch.rows != nil || ch.tokens != nil, ch.priority.Validate()
	switch {
	case !bounds && ch.cost == nil:
		return errors.New("nothing to change; name --rows, --tokens or --cost-usd")
	case bounds && ch.priority == unnamed:
		return errors.New("--rows and --tokens are for one priority; name it with --priority: " + rowmill.PriorityValues)
	case bounds && invalid != nil:
		return fmt.Errorf("--priority %w", invalid)
	case !bounds && ch.priority != unnamed:
		return errors.New("--priority is for --rows and --tokens; the cost quota is for all jobs together")
	}
	_, err := ch.applyTo(client.OwnQuotas{})
	return err
}

// applyTo returns own, the account's own quotas, with the change applied. It returns an
// error if a flag has an invalid value.
func (ch quotaChange) applyTo(own client.OwnQuotas) (client.OwnQuotas, error) {
	own.Quotas = slices.Clone(own.Quotas)
	if ch.rows != nil || ch.tokens != nil {
		at := ownQuotaIndex(own.Quotas, ch.priority)
		if at < 0 {
			at = len(own.Quotas)
			own.Quotas = append(own.Quotas, client.OwnQuota{Priority: ch.priority})
		}
		q := &own.Quotas[at]
		if err := errors.Join(parseQuotaFlag("--rows", ch.rows, &q.RowQuota), parseQuotaFlag("--tokens", ch.tokens, &q.TokenQuota)); err != nil {
			return own, err
		}
		if q.RowQuota == nil && q.TokenQuota == nil {
			own.Quotas = slices.Delete(own.Quotas, at, at+1)
		}
	}
	if ch.cost == nil {
		return own, nil
	}
	own.CostQuotaUSD = nil
	if *ch.cost == unlimited {
		return own, nil
	}
	usd, err := strconv.ParseFloat(*ch.cost, 64)
	if err != nil || !(usd >= 0) {
		return own, fmt.Errorf("--cost-usd must be an amount of US dollars, such as 250 or 0.5, or %s; is %q", unlimited, *ch.cost)
	}
	own.CostQuotaUSD = &usd
	return own, nil
}

// parseQuotaFlag parses the value of a flag and writes it to a quota. With a nil value the
// quota does not change; with the value "default" it becomes nil.
func parseQuotaFlag(flag string, value *string, into **int64) error {
	switch {
	case value == nil:
		return nil
	case *value == configured:
		*into = nil
		return nil
	}
	n, err := strconv.ParseInt(*value, 10, 64)
	if err != nil || n < 1 {
		return fmt.Errorf("%s must be a whole number of at least 1, or %s; is %q", flag, configured, *value)
	}
	*into = &n
	return nil
}
