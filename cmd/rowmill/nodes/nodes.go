// Package nodes holds the commands about the nodes of a service. It owns the names and
// the output of the commands; package client speaks the API.
package nodes

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

// nodeCommands holds the data that all commands of this package share.
type nodeCommands struct {
	command.GroupOptions
	wait time.Duration
}

// Command returns `rowmill nodes`.
func Command(service connect.Options) *cobra.Command {
	c := &nodeCommands{GroupOptions: command.GroupOptions{Options: service}}
	return c.AddSubcommands(&cobra.Command{
		Use:   "nodes",
		Short: "Show and drain the nodes of a service",
		Long: `Show and drain the nodes of a service. This needs an administrator's key of the
account default; any node answers for all nodes.

` + command.Help,
	}, c.list(), c.drain())
}

func (c *nodeCommands) list() *cobra.Command {
	return c.SetPrintingBody(&cobra.Command{
		Use:   "list",
		Short: "List the live nodes, with their models and their work",
		Long: `List the live nodes, with their models and their work.

ROWS is the number of rows in flight on the node's inference servers, and the most
that these servers take at once. JOBS is the number of jobs that the node owns. The star
marks the node that answered. The values are about a second old.`,
		Example: `  rowmill nodes list
  rowmill nodes list -o json | jq -r '.nodes[].id'`,
		Args: cobra.NoArgs,
	}, func(ctx context.Context, api *client.Client, _ []string) error {
		found, answer, err := api.ListNodes(ctx)
		if err != nil {
			return fmt.Errorf("list nodes: %w", err)
		}
		return c.PrintTable(answer.Raw, func(row terminal.RowWriter) {
			row("NODE", "ID", "ADDRESS", "ROLE", "VERSION", "MODELS", "JOBS", "ROWS", "SINCE")
			for _, n := range found.Nodes {
				name, role := n.Name, n.Role
				if n.Self {
					name += "*"
				}
				if n.State != "running" {
					role += ", " + n.State
				}
				row(terminal.FillEmptyCells(name, n.ID, n.URL, role, n.Version, terminal.AbbreviateList(n.Models), terminal.FormatCount(n.Jobs),
					terminal.FormatCount(n.InFlight)+"/"+terminal.FormatCount(n.Window), terminal.FormatTime(n.Since))...)
			}
		}, "SINCE", "VERSION", "ADDRESS", "ROLE")
	})
}

func (c *nodeCommands) drain() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "drain [NODE]",
		Short: "Stop a node after it has finished or handed back its work",
		Long: `Stop a node after it has finished or handed back its work.

NODE is an id or a unique name; the default is the node that answers. The node
takes no more rows, lets rows in flight finish within its jobs.drain_timeout, hands
its jobs to others and leaves, and its process ends with code 0. Rows that it could
not finish run again elsewhere.

The command waits until the node has left, for at most --wait.`,
		Example: `  rowmill nodes drain gpu3
  rowmill nodes drain --server http://10.0.0.7:8088 --wait 0`,
		Args: cobra.MaximumNArgs(1),
	}
	cmd.Flags().DurationVar(&c.wait, "wait", 2*time.Minute, "how long to wait until the node has left; 0 does not wait")
	return c.SetBody(cmd, func(ctx context.Context, api *client.Client, args []string) error {
		return c.drainNode(ctx, api, strings.Join(args, "")) // args has one name at most
	})
}

// pollEvery is the time between two requests that check whether a node has left, or that ask
// for new output of a server.
const pollEvery = 250 * time.Millisecond

// drainNode drains the node with this ID or name, and waits until the node has left,
// for --wait at most. An empty name means the node that answers.
func (c *nodeCommands) drainNode(ctx context.Context, api *client.Client, name string) error {
	before, _, err := api.ListNodes(ctx)
	if err != nil {
		return fmt.Errorf("drain: %w", err)
	}
	node, err := findNode(before.Nodes, name)
	if err != nil {
		return fmt.Errorf("drain: %w", err)
	}
	if _, _, err := api.DrainNode(ctx, node.ID); err != nil {
		return fmt.Errorf("drain: %w", err)
	}
	c.Term.Say("node %s drains", terminal.SanitizeLine(node.ID))
	if c.wait <= 0 {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.wait, exit.WithCode(exit.Timeout,
		fmt.Errorf("node %s has not left within %v; it goes on draining", terminal.SanitizeLine(node.ID), c.wait)))
	defer cancel()
	if err := waitUntilLeft(ctx, api, node); err != nil {
		return err
	}
	c.Term.Say("node %s has left", terminal.SanitizeLine(node.ID))
	return nil
}

// findNode returns the node with this ID, or else with this name, which must be unique. An
// empty name means the node that answered the request.
func findNode(nodes []client.Node, name string) (client.Node, error) {
	var named []client.Node
	for _, n := range nodes {
		if n.ID == name || name == "" && n.Self {
			return n, nil
		}
		if n.Name == name {
			named = append(named, n)
		}
	}
	switch {
	case len(named) == 1:
		return named[0], nil
	case len(named) == 0:
		return client.Node{}, exit.WithCode(exit.NotFound, fmt.Errorf("there is no live node %q; `rowmill nodes list` shows the live nodes", name))
	}
	ids := make([]string, len(named))
	for i, n := range named {
		ids[i] = n.ID
	}
	return client.Node{}, exit.WithCode(exit.Usage, fmt.Errorf("%d nodes are called %q; name one by its id: %s", len(named), name, strings.Join(ids, ", ")))
}

// waitUntilLeft waits until the service does not list a node any more. If the node
// itself answers the requests, it has left when it stops answering.
func waitUntilLeft(ctx context.Context, api *client.Client, node client.Node) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
		found, _, err := api.ListNodes(ctx)
		var away *client.UnreachableError
		switch {
		case node.Self && errors.As(err, &away):
			return nil
		case err != nil && ctx.Err() == nil:
			return fmt.Errorf("find out whether the node has left: %w", err)
		case err == nil && !slices.ContainsFunc(found.Nodes, func(n client.Node) bool { return n.ID == node.ID }):
			return nil
		}
	}
}
