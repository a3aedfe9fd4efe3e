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
	c := &commands{Set: command.Set{Options: service}}
	var filter client.ListActorsParams
	var minAge time.Duration
	cmd := c.Prints(&cobra.Command{
		Use:   "actors",
		Short: "Show what the nodes are at, and what is stuck",
		Long: `Show what the nodes are at, and for how long: on top stands what has been at one
thing for longest. This takes an administrator's key of the account default; any
node answers for all, and those that do not answer are named.

A node is made of actors: node (itself), engine (one for each inference server),
job (one for each job that it owns), results (records the parts of that job) and
worker (one for each job whose rows it runs). Each works off its mailbox, one
message after the other, and gives slow work away as an errand.

  OLDEST   how long the oldest message has waited, at the least. More than some
           seconds: the actor does not come to it. A fault of the program; drain
           and restart the node, its jobs go on elsewhere
  ERRAND   the errand that has been out for longest, and how long. "read the
           input" may take hours, "drop parts later" half a minute by design.
           "write a part", "load rows", "commit parts", "make the result" for
           minutes: storage or records are slow or away, and LAST ERROR says why
  RESTARTS how often this node has begun anew with the same; more than a few for
           a job: it goes back and forth between owners
  LAST ERROR
           the last warning of the actor, or what it met while it waits; it may be
           long past, the age is behind it. If rows wait for an engine: the reason,
           such as a limit by the minute, and the time when they go on`,
		Example: `  rowmill actors --min-age 1m              # what may be stuck
  rowmill actors --job job-… --kind worker
  rowmill actors -o json | jq -r '.actors[0].errand'`,
		Args: cobra.NoArgs,
	}, func(ctx context.Context, api *client.Client, _ []string) error {
		filter.MinAge = int64(max(minAge, 0) / time.Second)
		found, answer, err := api.ListActors(ctx, filter)
		if err != nil {
			return fmt.Errorf("list actors: %w", err)
		}
		for _, n := range found.Nodes {
			if n.Error != "" {
				c.Term.Say("node %s does not answer: %s", terminal.Printable(n.Name), terminal.Printable(n.Error))
			}
			if n.LeftOut > 0 {
				c.Term.Say("node %s has %d more; narrow them with --kind, --job or --min-age", terminal.Printable(n.Name), n.LeftOut)
			}
		}
		return c.Table(answer.Raw, func(row terminal.Row) {
			row("AGE", "KIND", "JOB OR ENGINE", "NODE", "MAIL", "OLDEST", "ERRAND", "RESTARTS", "LAST ERROR")
			for _, a := range found.Actors {
				row(terminal.Dashed(c.actor(a)...)...)
			}
		})
	})
	cmd.Flags().StringVar(&filter.Kind, "kind", "", "only those of a kind: node, engine, job, worker or results")
	cmd.Flags().StringVar(&filter.JobID, "job", "", "only those of a job")
	cmd.Flags().StringVar(&filter.Node, "node", "", "only those of a node, by id or name")
	cmd.Flags().DurationVar(&minAge, "min-age", 0, "only those that have been at one thing for so long")
	command.Choices(cmd, "kind", "node", "engine", "job", "worker", "results")
	c.Flags(cmd)
	return cmd
}

// actor is the line of one.
func (c *commands) actor(a client.Actor) []string {
	kind, errand, trouble := a.Kind, "", ""
	if a.State != "running" {
		kind += ", " + a.State
	}
	if a.Errand != "" {
		errand = a.Errand + " " + ago(a.ErrandSeconds)
		if a.Errands > 1 {
			errand += fmt.Sprintf(" and %d more", a.Errands-1)
		}
	}
	if a.LastError != nil {
		trouble = fmt.Sprintf("%s (%v ago)", a.LastError.Message, c.Term.Now().Sub(a.LastError.At).Round(time.Second))
	}
	return []string{
		ago(max(a.OldestMessageSeconds, a.ErrandSeconds)), kind, a.JobID + a.Engine, a.Node, terminal.Count(a.MailboxDepth), ago(a.OldestMessageSeconds),
		errand, terminal.Count(a.Restarts), trouble,
	}
}

func ago(seconds float64) string {
	return time.Duration(seconds * float64(time.Second)).Round(time.Second).String()
}
