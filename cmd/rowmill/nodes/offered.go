package nodes

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/cmd/rowmill/command"
	"github.com/rowmill/rowmill/cmd/rowmill/connect"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
)

// Models returns `rowmill models`.
func Models(service connect.Options) *cobra.Command {
	c := &nodeCommands{GroupOptions: command.GroupOptions{Options: service}}
	return c.AddSubcommands(&cobra.Command{
		Use:   "models",
		Short: "Show the models that jobs can use",
		Long: `Show the models that jobs can use: the models of the catalog, and other models that
running servers serve. Any key may do this.

` + command.Help,
	}, c.models())
}

func (c *nodeCommands) models() *cobra.Command {
	served := false
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the models, their servers and their prices",
		Long: `List the models; served models are first.

CONTEXT is in tokens, USD IN and USD OUT are per million tokens. A dash means no
price; the cost of a job is then null. COUNTED says how the tokens of prompts are
counted: exact; server, which means estimated, and near a limit counted by the
server; or estimated. The number after it is the recent mean error in tokens, before
correction. SERVED BY names each node and engine that takes rows now, and each stopped
server that starts for rows.`,
		Example: `  rowmill models list --served
  rowmill models list -o json | jq -r '.data[] | select(.kind == "embedding").id'`,
		Args: cobra.NoArgs,
	}
	cmd.Flags().BoolVar(&served, "served", false, "only models that a server runs now, or that a node starts for rows")
	return c.SetPrintingBody(cmd, func(ctx context.Context, api *client.Client, _ []string) error {
		found, answer, err := api.ListModels(ctx)
		if err != nil {
			return fmt.Errorf("list models: %w", err)
		}
		return c.PrintTable(answer.Raw, func(row terminal.RowWriter) {
			row("MODEL", "KIND", "CONTEXT", "DIMENSION", "USD IN", "USD OUT", "COUNTED", "SERVED BY")
			for _, m := range found.Data {
				if served && len(m.ServedBy) == 0 {
					continue
				}
				row(terminal.FillEmptyCells(m.ID, string(m.Kind), formatCount(m.ContextLength), formatCount(m.Dimension),
					formatPrice(m.InputPrice), formatPrice(m.OutputPrice), formatCounting(m), formatServers(m))...)
			}
		}, "DIMENSION", "COUNTED", "CONTEXT")
	})
}

func formatCount(n int64) string {
	if n == 0 {
		return ""
	}
	return terminal.FormatCount(n)
}

func formatPrice(usd *float64) string {
	if usd == nil {
		return ""
	}
	return strconv.FormatFloat(*usd, 'f', -1, 64)
}

func formatCounting(m client.Model) string {
	if m.CountError == nil {
		return m.Counted
	}
	return fmt.Sprintf("%s (%.1f)", m.Counted, *m.CountError)
}

func formatServers(m client.Model) string {
	var names []string
	for _, s := range m.ServedBy {
		name := s.Node + "/" + s.Engine
		if s.Stopped {
			name += " (stopped)"
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return terminal.AbbreviateList(names)
}
