package nodes

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/cmd/rowmill/command"
	"github.com/rowmill/rowmill/cmd/rowmill/connect"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
	"github.com/rowmill/rowmill/internal/textfmt"
)

// Engines returns `rowmill engines`.
func Engines(service connect.Options) *cobra.Command {
	c := &nodeCommands{GroupOptions: command.GroupOptions{Options: service}}
	cmd := c.SetPrintingBody(&cobra.Command{
		Use:   "engines",
		Short: "Show the inference servers of all nodes",
		Long: `Show the inference servers of all nodes. This needs an administrator's key of the
account default; any node answers for all nodes.

ROWS is the number of rows in flight on the server, and the most that it takes at
once. ROWS/S counts the answers of the last minute. LAST ERROR says why the server is
down, or why rows wait for it.

` + command.Help,
		Example: `  rowmill engines
  rowmill engines -o json | jq -r '.engines[] | select(.state == "down").name'`,
		Args: cobra.NoArgs,
	}, func(ctx context.Context, api *client.Client, _ []string) error {
		found, answer, err := api.ListEngines(ctx)
		if err != nil {
			return fmt.Errorf("list engines: %w", err)
		}
		for _, node := range found.MissingNodes {
			c.Term.Say("node %s does not answer", terminal.SanitizeLine(node))
		}
		return c.PrintTable(answer.Raw, func(row terminal.RowWriter) {
			row("ENGINE", "NODE", "STATE", "MODELS", "ROWS", "ROWS/S", "LAST ERROR")
			for _, e := range found.Engines {
				row(terminal.FillEmptyCells(engineCells(e)...)...)
			}
		}, "ROWS/S", "MODELS")
	})
	c.AddFlags(cmd)
	return cmd
}

// engineCells returns the cells of an inference server's line in the table.
func engineCells(e client.Engine) []string {
	state, speed := e.State, ""
	if e.Simulated {
		state += ", simulated"
	}
	if e.RowsPerSecond != nil {
		speed = strconv.FormatFloat(*e.RowsPerSecond, 'f', 1, 64)
	}
	models := make([]string, len(e.Models))
	for i, m := range e.Models {
		models[i] = m.ID
	}
	return []string{
		e.Name, e.Node, state, terminal.AbbreviateList(models),
		terminal.FormatCount(e.InFlight) + "/" + terminal.FormatCount(e.Window), speed, terminal.Deref(e.LastError),
	}
}

// GPUs returns `rowmill gpus`.
func GPUs(service connect.Options) *cobra.Command {
	c := &nodeCommands{GroupOptions: command.GroupOptions{Options: service}}
	cmd := c.SetPrintingBody(&cobra.Command{
		Use:   "gpus",
		Short: "Show the NVIDIA GPUs of all nodes",
		Long: `Show the NVIDIA GPUs of all nodes, with the values of nvidia-smi. This needs an
administrator's key of the account default; any node answers for all nodes.

BUSY is the share of the last moments in which the GPU worked. MEMORY is the used and
the total memory. ENGINES names the inference servers of the node; the service does not
know which GPU each of them uses.

` + command.Help,
		Example: `  rowmill gpus
  rowmill gpus -o json | jq -r '.nodes[].gpus[].uuid'`,
		Args: cobra.NoArgs,
	}, func(ctx context.Context, api *client.Client, _ []string) error {
		found, answer, err := api.ListGPUs(ctx)
		if err != nil {
			return fmt.Errorf("list GPUs: %w", err)
		}
		engines := map[string][]string{} // by node
		if !c.WantsJSON() {
			all, _, err := api.ListEngines(ctx)
			if err != nil {
				return fmt.Errorf("list the engines of the GPUs' nodes: %w", err)
			}
			for _, e := range all.Engines {
				engines[e.Node] = append(engines[e.Node], e.Name)
			}
		}
		for _, n := range found.Nodes {
			if n.Problem != nil {
				c.Term.Say("the GPUs of node %s are unknown: %s", terminal.SanitizeLine(n.Node), terminal.SanitizeLine(*n.Problem))
			}
		}
		return c.PrintTable(answer.Raw, func(row terminal.RowWriter) {
			row("NODE", "GPU", "NAME", "BUSY", "MEMORY", "ENGINES")
			for _, n := range found.Nodes {
				for _, g := range n.GPUs {
					row(terminal.FillEmptyCells(n.Node, strconv.FormatInt(g.Index, 10), g.Name, formatBusy(g), formatMemory(g), terminal.AbbreviateList(engines[n.Node]))...)
				}
			}
		})
	})
	c.AddFlags(cmd)
	return cmd
}

// formatBusy returns how busy a GPU is, rounded down, so that 100% appears only when all is
// used. The text is empty if this is unknown.
func formatBusy(g client.GPU) string {
	if g.Utilization == nil {
		return ""
	}
	return strconv.Itoa(int(100**g.Utilization)) + "%"
}

func formatMemory(g client.GPU) string {
	if g.MemoryUsedBytes == nil || g.MemoryTotalBytes == nil {
		return ""
	}
	return textfmt.FormatSize(*g.MemoryUsedBytes) + "/" + textfmt.FormatSize(*g.MemoryTotalBytes)
}
