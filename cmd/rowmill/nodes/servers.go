package nodes

import (
	"context"
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
	"github.com/rowmill/rowmill/engine/placement"
)

// Servers returns `rowmill servers`.
func Servers(service connect.Options) *cobra.Command {
	c := &nodeCommands{GroupOptions: command.GroupOptions{Options: service}}
	return c.AddSubcommands(&cobra.Command{
		Use:   "servers",
		Short: "Show, start and stop the servers that nodes run",
		Long: `Show, start and stop the inference servers that nodes run: the servers of the
setting servers, which take turns on the GPUs of their node. ` + "`rowmill engines`" + ` shows
all servers that run rows, also servers that other programs start. This needs an
administrator's key of the account default; any node answers for all nodes.

A server has one of three modes:

  auto  the node starts it when rows wait for it, and stops it when they do not; this
        is the default
  on    it runs, and takes GPUs from servers with mode auto
  off   it does not run; jobs for its models wait for another server

SERVER is NODE/NAME, or NAME if only one node has a server of that name.

` + command.Help,
	}, c.listServers(),
		c.setMode("start", placement.On, "Start a server, and keep it running",
			"If it needs GPUs of servers with mode auto, the node stops these servers. Their rows\nhave the time placement.drain to end. Rows that do not end run again."),
		c.setMode("stop", placement.Off, "Stop a server, and keep it stopped",
			"Its rows have the time placement.drain to end. Rows that do not end run again. Jobs for\nits models wait for another server of the model, for at most jobs.wait_for_engine."),
		c.setMode("auto", placement.Auto, "Let the node start and stop a server by demand",
			"This ends `start` and `stop`."),
		c.showLog())
}

func (c *nodeCommands) listServers() *cobra.Command {
	return c.SetPrintingBody(&cobra.Command{
		Use:   "list",
		Short: "List the servers that nodes run, with their phase and their GPUs",
		Long: `List the servers that nodes run, with their phase and their GPUs.

PHASE is stopped, loading, running, sleeping (its weights wait in the memory of the
machine), or stopping (it finishes its rows). SINCE is the begin of the phase. GPUS is
the number of GPUs that it needs, and in brackets the GPUs that it has now. MODELS is
empty until the first start, if the settings do not name the models. LAST ERROR says
why the server ended by itself; ` + "`rowmill servers logs`" + ` says more.`,
		Example: `  rowmill servers list
  rowmill servers list -o json | jq -r '.servers[] | select(.error).name'`,
		Args: cobra.NoArgs,
	}, func(ctx context.Context, api *client.Client, _ []string) error {
		found, answer, err := api.ListServers(ctx)
		if err != nil {
			return fmt.Errorf("list servers: %w", err)
		}
		return c.PrintTable(answer.Raw, func(row terminal.RowWriter) {
			row("SERVER", "PHASE", "MODE", "GPUS", "MODELS", "SINCE", "LAST ERROR")
			for _, s := range found.Servers {
				row(terminal.FillEmptyCells(serverTitle(s), s.Phase, s.Mode, formatGPUs(s), terminal.AbbreviateList(s.Models),
					terminal.FormatTime(&s.Since), terminal.Deref(s.Error))...)
			}
		}, "SINCE", "MODELS", "GPUS")
	})
}

// serverTitle returns the name of a server for commands.
func serverTitle(s client.Server) string { return s.Node + "/" + s.Name }

// formatGPUs returns how many GPUs a server needs, and which it has.
func formatGPUs(s client.Server) string {
	text := strconv.FormatInt(s.GPUs, 10)
	if len(s.On) == 0 {
		return text
	}
	indices := make([]string, len(s.On))
	for i, gpu := range s.On {
		indices[i] = strconv.FormatInt(gpu, 10)
	}
	return text + " (" + strings.Join(indices, ", ") + ")"
}

// setMode returns the command that sets a mode.
func (c *nodeCommands) setMode(name string, mode placement.Mode, short, long string) *cobra.Command {
	return c.SetBody(&cobra.Command{
		Use:   name + " SERVER",
		Short: short,
		Long: short + `.

` + long + `

The mode ` + string(mode) + ` stays when the node restarts. The command does not wait until the node has
acted.`,
		Example: "  rowmill servers " + name + " gpu1/qwen",
		Args:    cobra.ExactArgs(1),
	}, func(ctx context.Context, api *client.Client, args []string) error {
		server, err := findServer(ctx, api, args[0])
		if err == nil {
			server, _, err = api.PatchServer(ctx, server.NodeID, server.Name, client.ServerChange{Mode: string(mode)})
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		c.Term.Say("server %s has the mode %s; it was %s", terminal.SanitizeLine(serverTitle(server)), server.Mode, server.Phase)
		return nil
	})
}

// findServer returns the server with this name, or with this node and name.
func findServer(ctx context.Context, api *client.Client, title string) (found client.Server, err error) {
	all, _, err := api.ListServers(ctx)
	if err != nil {
		return found, err
	}
	var titles []string
	for _, s := range all.Servers {
		if title == s.NodeID+"/"+s.Name {
			return s, nil
		}
		if title == s.Name || title == serverTitle(s) {
			found = s
			titles = append(titles, s.NodeID+"/"+s.Name)
		}
	}
	switch len(titles) {
	case 0:
		return found, exit.WithCode(exit.NotFound, fmt.Errorf("no live node runs a server %q; `rowmill servers list` shows the servers", title))
	case 1:
		return found, nil
	}
	return found, exit.WithCode(exit.Usage, fmt.Errorf("%d servers are called %q; name one of %s", len(titles), title, strings.Join(titles, ", ")))
}

func (c *nodeCommands) showLog() *cobra.Command {
	var lines int64
	follow := false
	cmd := &cobra.Command{
		Use:   "logs SERVER",
		Short: "Print the end of a server's output",
		Long: `Print the end of a server's output, standard output and standard error together.
The node keeps the output in DATA/servers/NAME.log; the command prints at most 64 KiB.`,
		Example: `  rowmill servers logs gpu1/qwen --lines 50
  rowmill servers logs qwen --follow       # until Ctrl-C`,
		Args: cobra.ExactArgs(1),
	}
	cmd.Flags().Int64Var(&lines, "lines", 200, "how many lines at most")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "print new output until Ctrl-C")
	return c.SetBody(cmd, func(ctx context.Context, api *client.Client, args []string) error {
		server, err := findServer(ctx, api, args[0])
		if err != nil {
			return fmt.Errorf("logs: %w", err)
		}
		part := client.GetServerLogParams{Lines: lines}
		for {
			log, _, err := api.GetServerLog(ctx, server.NodeID, server.Name, part)
			if err != nil {
				return fmt.Errorf("logs: %w", err)
			}
			for line := range strings.Lines(log.Text) {
				text, ended := strings.CutSuffix(line, "\n")
				if text = terminal.SanitizeLine(text); ended || !follow {
					text += "\n"
				}
				if _, err := io.WriteString(c.Term.Out, text); err != nil {
					return err
				}
			}
			if !follow {
				return nil
			}
			part = client.GetServerLogParams{Lines: maxFollowedLines, After: log.End}
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(pollEvery):
			}
		}
	})
}

// maxFollowedLines is how many new lines --follow requests at once: as many as the service
// allows.
const maxFollowedLines = 10_000
