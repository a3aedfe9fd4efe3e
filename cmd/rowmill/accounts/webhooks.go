package accounts

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/cmd/rowmill/command"
	"github.com/rowmill/rowmill/cmd/rowmill/connect"
	"github.com/rowmill/rowmill/cmd/rowmill/exit"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
)

// Webhooks returns `rowmill webhooks`.
func Webhooks(service connect.Options) *cobra.Command {
	c := &accountCommands{command.GroupOptions{Options: service}}
	return c.AddSubcommands(&cobra.Command{
		Use:   "webhooks",
		Short: "Send events about the ends of jobs to an address",
		Long: `Send events about the ends of jobs to an address, by POST, at least once.

Events are signed by the rules of Standard Webhooks, so that a receiver can check
the sender. OpenAI's clients accept the events of batches. An event that the
receiver does not accept is sent again for three days. docs/webhooks.md has a
receiver.

These commands need an administrator's key. A key of the account default may name any
other account.

` + command.Help,
	}, c.addWebhook(), c.listWebhooks(), c.testWebhook(), c.rotateWebhook(), c.deliveries(), c.removeWebhooks())
}

func (c *accountCommands) addWebhook() *cobra.Command {
	var wanted client.NewWebhook
	cmd := &cobra.Command{
		Use:   "add URL",
		Short: "Add a webhook and print its secret; it cannot be printed again",
		Long: `Add a webhook and print its secret; it cannot be printed again.

The command prints the secret to standard output, and everything else to standard error:
"> FILE" writes the secret to a file, and the terminal does not show it. Without --event the webhook gets
batch.completed, batch.failed, batch.expired and batch.cancelled for batches of OpenAI
clients, and job.succeeded, job.failed and job.cancelled for all other jobs.`,
		Example: `  rowmill webhooks add https://example.com/hook > hook.secret
  rowmill webhooks add https://example.com/hook --event job.failed --event job.cancelled`,
		Args: cobra.ExactArgs(1),
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&wanted.Events, "event", nil, "an event to send, such as job.failed (repeatable; default: batch.* for batches of OpenAI clients, job.* for all other jobs)")
	flags.StringVar(&wanted.Description, "description", "", "a note for people: what the webhook is for")
	return c.AddAccountFlag(c.SetPrintingBody(cmd, func(ctx context.Context, api *client.Client, args []string) error {
		wanted.URL = args[0]
		w, answer, err := api.CreateWebhook(ctx, c.Account, wanted)
		if err != nil {
			return fmt.Errorf("add a webhook: %w", err)
		}
		return c.printNewSecret(w, answer, "added webhook "+w.ID+" of account "+w.Account)
	}))
}

// printNewSecret prints the secret of a webhook that was added or rotated. summary says
// what was done.
func (c *accountCommands) printNewSecret(w client.Webhook, answer client.Answer, summary string) error {
	if w.Secret == "" {
		return errors.New("the answer holds no secret; look at `rowmill webhooks list`")
	}
	return c.printSecretOnce(answer, terminal.SanitizeLine(summary)+". Keep its secret", w.Secret)
}

func (c *accountCommands) listWebhooks() *cobra.Command {
	return c.AddAccountFlag(c.SetPrintingBody(&cobra.Command{
		Use:   "list",
		Short: "List webhooks, oldest first",
		Example: `  rowmill webhooks list
  rowmill webhooks list --account acme -o json | jq -r '.webhooks[].url'`,
		Args: cobra.NoArgs,
	}, func(ctx context.Context, api *client.Client, _ []string) error {
		all, answer, err := api.ListWebhooks(ctx, c.Account)
		if err != nil {
			return fmt.Errorf("list webhooks: %w", err)
		}
		return c.PrintTable(answer.Raw, func(row terminal.RowWriter) {
			row("ID", "URL", "EVENTS", "STATE", "SECRET", "CREATED", "DESCRIPTION")
			for _, w := range all.Webhooks {
				events, state := "batch.*, job.*", "enabled"
				if len(w.Events) > 0 {
					events = strings.Join(w.Events, " ")
				}
				switch recent := w.RecentDeliveries; {
				case w.Disabled:
					state = "disabled: " + terminal.Deref(w.DisabledReason)
				case recent != nil && recent.Failing:
					state = fmt.Sprintf("failing: %d of the newest %d deliveries", recent.Failed, recent.Attempted)
				}
				row(terminal.FillEmptyCells(w.ID, w.URL, events, state, w.SecretPrefix+"…", formatMinute(&w.CreatedAt), w.Description)...)
			}
		}, "SECRET", "CREATED")
	}))
}

func (c *accountCommands) testWebhook() *cobra.Command {
	var event string
	cmd := &cobra.Command{
		Use:   "test ID",
		Short: "Send a webhook an event now, and show the answer",
		Long: `Send a webhook an event now, and show the answer. The event is about a job that
does not exist, with an id of zeros. If the receiver does not accept the event, the
exit code is 1.`,
		Example: `  rowmill webhooks test we_0190f0a000007000800000000000ab12
  rowmill webhooks test we_0190f0a000007000800000000000ab12 --event batch.completed`,
		Args: cobra.ExactArgs(1),
	}
	cmd.Flags().StringVar(&event, "event", "", "type of the event to send (default: the webhook's first event type, or job.succeeded)")
	return c.AddAccountFlag(c.SetPrintingBody(cmd, func(ctx context.Context, api *client.Client, args []string) error {
		test, answer, err := api.TestWebhook(ctx, args[0], client.TestWebhookParams{Account: c.Account, Event: event})
		if err != nil {
			return fmt.Errorf("test: %w", err)
		}
		err = c.PrintTable(answer.Raw, func(row terminal.RowWriter) {
			row("EVENT", "ACCEPTED", "STATUS", "TOOK", "ERROR", "ANSWER")
			row(terminal.FillEmptyCells(test.Event, map[bool]string{true: "yes", false: "no"}[test.Delivered], formatStatus(test.Attempt), formatDuration(test.Attempt), terminal.Deref(test.Attempt.Error), firstLine(test.Attempt.Answer))...)
		})
		if err == nil && !test.Delivered {
			err = exit.WithCode(exit.Failure, errors.New("the receiver did not accept the event"))
		}
		return err
	}))
}

func formatStatus(a client.DeliveryAttempt) string {
	if a.Status == nil {
		return ""
	}
	return fmt.Sprint(*a.Status)
}

func formatDuration(a client.DeliveryAttempt) string {
	return time.Duration(a.DurationSeconds * float64(time.Second)).Round(time.Millisecond).String()
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

func (c *accountCommands) rotateWebhook() *cobra.Command {
	return c.AddAccountFlag(c.SetPrintingBody(&cobra.Command{
		Use:   "rotate ID",
		Short: "Replace the secret of a webhook and print the new secret, once",
		Long: `Replace the secret of a webhook and print the new secret, once. For 24 hours, events
are also signed with the old secret, so that you have time to change the receiver.`,
		Example: `  rowmill webhooks rotate we_0190f0a000007000800000000000ab12 > hook.secret`,
		Args:    cobra.ExactArgs(1),
	}, func(ctx context.Context, api *client.Client, args []string) error {
		w, answer, err := api.RotateWebhook(ctx, args[0], c.Account)
		if err != nil {
			return fmt.Errorf("rotate: %w", err)
		}
		return c.printNewSecret(w, answer, "rotated webhook "+w.ID+"; the old secret also signs for a day")
	}))
}

func (c *accountCommands) deliveries() *cobra.Command {
	params := client.ListDeliveriesParams{}
	cmd := &cobra.Command{
		Use:   "deliveries ID",
		Short: "Show what was sent to a webhook, newest first",
		Long: `Show what was sent to a webhook, newest first. A delivery is kept for 30 days
after it was delivered or has failed.`,
		Example: `  rowmill webhooks deliveries we_0190f0a000007000800000000000ab12 --limit 10`,
		Args:    cobra.ExactArgs(1),
	}
	cmd.Flags().Int64Var(&params.Limit, "limit", 20, "maximum number of deliveries to show, up to 100")
	cmd.Flags().StringVar(&params.Cursor, "cursor", "", "continue an earlier list at the cursor that it printed")
	return c.AddAccountFlag(c.SetPrintingBody(cmd, func(ctx context.Context, api *client.Client, args []string) error {
		params.Account, params.Limit = c.Account, max(params.Limit, 0)
		page, answer, err := api.ListDeliveries(ctx, args[0], params)
		if err != nil {
			return fmt.Errorf("list deliveries: %w", err)
		}
		err = c.PrintTable(answer.Raw, func(row terminal.RowWriter) {
			row("ID", "EVENT", "JOB", "HAPPENED", "STATE", "TRIES", "LAST STATUS", "ERROR", "NEXT TRY")
			for _, d := range page.Deliveries {
				var last client.DeliveryAttempt
				if n := len(d.Attempts); n > 0 {
					last = d.Attempts[n-1]
				}
				row(terminal.FillEmptyCells(d.ID, d.Event, terminal.Deref(d.JobID), formatMinute(&d.CreatedAt), d.State, fmt.Sprint(len(d.Attempts)), formatStatus(last), terminal.Deref(last.Error), formatMinute(d.NextAttemptAt))...)
			}
		}, "NEXT TRY", "HAPPENED", "LAST STATUS", "TRIES")
		if err == nil && page.NextCursor != "" && !c.WantsJSON() {
			c.Term.Say("there are more: --cursor %s", terminal.SanitizeLine(page.NextCursor))
		}
		return err
	}))
}

func (c *accountCommands) removeWebhooks() *cobra.Command {
	return c.AddAccountFlag(c.SetBody(&cobra.Command{
		Use:     "remove ID...",
		Short:   "Remove webhooks for good",
		Long:    `Remove webhooks for good. Events that wait for them are not sent.`,
		Example: `  rowmill webhooks remove we_0190f0a000007000800000000000ab12`,
		Args:    cobra.MinimumNArgs(1),
	}, func(ctx context.Context, api *client.Client, args []string) error {
		for _, id := range args {
			if _, _, err := api.DeleteWebhook(ctx, id, c.Account); err != nil {
				return fmt.Errorf("remove %s: %w", terminal.SanitizeLine(id), err)
			}
			c.Term.Say("webhook %s is removed", terminal.SanitizeLine(id))
		}
		return nil
	}))
}
