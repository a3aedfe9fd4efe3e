package nodes

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/cmd/rowmill/command"
	"github.com/rowmill/rowmill/cmd/rowmill/connect"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
)

// Actors returns `rowmill actors`.
func Actors(service connect.Options) *cobra.Command {
	c := &nodeCommands{GroupOptions: command.GroupOptions{Options: service}}
	var filter client.ListActorsParams
	var minAge time.Duration
	cmd := c.SetPrintingBody(&cobra.Command{
		Use:   "actors",
		Short: "Show the work of the nodes, and stuck work",
		Long: `Show the work of the nodes, and for how long it has run; the longest is first. This
needs an administrator's key of the account default. Any node answers for all, and
the command names the nodes that do not answer.

A node consists of actors: node (itself), engine (one for each inference server),
job (one for each job that it owns), results (records the parts of that job) and
worker (one for each job with rows on this node). Each actor handles the messages of
its mailbox one after another. It runs slow work as a task, in the background.

  MAIL     how many messages wait in the mailbox
  OLDEST   how long the oldest message has waited, at least. More than some
           seconds: the actor is stuck. This is a fault of the program; drain and
           restart the node, and its jobs continue elsewhere
  TASK     the task that has run longest, and for how long. "read the input"
           may take hours, "drop parts later" takes half a minute by design. If
           "write a part", "load rows", "commit parts" or "make the result" runs
           for minutes, the bucket or the records are slow or down, and LAST ERROR
           says why
  RESTARTS how often this node has started the same actor again; more than a few
           for a job: it moves back and forth between owners
  LAST ERROR
           the last warning of the actor, or the reason why it waits, with its age:
           it may be old. If rows wait for an engine: the reason, such as a limit
           per minute, and the time when they continue`,
		Example: `  rowmill actors --min-age 1m              # what may be stuck
  rowmill actors --job job-… --kind worker
  rowmill actors -o json | jq -r '.actors[0].task'`,
		Args: cobra.NoArgs,
	}, func(ctx context.Context, api *client.Client, _ []string) error {
		filter.MinAge = int64(max(minAge, 0) / time.Second)
		found, answer, err := api.ListActors(ctx, filter)
		if err != nil {
			return fmt.Errorf("list actors: %w", err)
		}
		for _, n := range found.Nodes {
			if n.Error != "" {
				c.Term.Say("node %s does not answer: %s", terminal.SanitizeLine(n.Name), terminal.SanitizeLine(n.Error))
			}
			if n.LeftOut > 0 {
				c.Term.Say("node %s has %d more; narrow them with --kind, --job or --min-age", terminal.SanitizeLine(n.Name), n.LeftOut)
			}
		}
		return c.PrintTable(answer.Raw, func(row terminal.RowWriter) {
			row("AGE", "KIND", "JOB OR ENGINE", "NODE", "MAIL", "OLDEST", "TASK", "RESTARTS", "LAST ERROR")
			for _, a := range found.Actors {
				row(terminal.FillEmptyCells(c.actorCells(a)...)...)
			}
		}, "RESTARTS", "MAIL")
	})
	cmd.Flags().StringVar(&filter.Kind, "kind", "", "only actors of a kind: node, engine, job, worker or results")
	cmd.Flags().StringVar(&filter.JobID, "job", "", "only actors of a job")
	cmd.Flags().StringVar(&filter.Node, "node", "", "only actors of a node, by id or name")
	cmd.Flags().DurationVar(&minAge, "min-age", 0, "only actors that have done the same thing for at least this time")
	command.CompleteFlagValues(cmd, "kind", "node", "engine", "job", "worker", "results")
	c.AddFlags(cmd)
	return cmd
}

// actorCells returns the cells of an actor's line in the table.
func (c *nodeCommands) actorCells(a client.Actor) []string {
	kind, task, trouble := a.Kind, "", ""
	if a.State != "running" {
		kind += ", " + a.State
	}
	if a.Task != "" {
		task = a.Task + " " + formatSeconds(a.TaskSeconds)
		if a.Tasks > 1 {
			task += fmt.Sprintf(" and %d more", a.Tasks-1)
		}
	}
	if a.LastError != nil {
		trouble = fmt.Sprintf("%s (%v ago)", a.LastError.Message, c.Term.Now().Sub(a.LastError.At).Round(time.Second))
	}
	return []string{
		formatSeconds(max(a.OldestMessageSeconds, a.TaskSeconds)), kind, a.JobID + a.Engine, a.Node, terminal.FormatCount(a.MailboxDepth), formatSeconds(a.OldestMessageSeconds),
		task, terminal.FormatCount(a.Restarts), trouble,
	}
}

func formatSeconds(seconds float64) string {
	return time.Duration(seconds * float64(time.Second)).Round(time.Second).String()
}
