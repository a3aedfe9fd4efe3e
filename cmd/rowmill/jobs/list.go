package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/cmd/rowmill/exit"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
)

// maxPage is the largest page that the API gives.
const maxPage = 100

// paging is which part of a long list is wanted.
type paging struct {
	limit  int
	cursor string
	all    bool
}

func (p *paging) flags(cmd *cobra.Command, what string, limit int) {
	cmd.Flags().IntVarP(&p.limit, "limit", "n", limit, "how many "+what+" to show")
	cmd.Flags().StringVar(&p.cursor, "cursor", "", "go on where an earlier list ended")
	cmd.Flags().BoolVarP(&p.all, "all", "a", false, "show all "+what)
}

// walk calls fetch page by page until enough was shown, and returns the
// cursor of what is left.
func (p *paging) walk(ctx context.Context, fetch func(ctx context.Context, limit int, cursor string) (n int, next string, err error)) (string, error) {
	if p.limit < 1 {
		return "", exit.With(exit.Usage, fmt.Errorf("--limit must be at least 1, is %d", p.limit))
	}
	cursor := p.cursor
	for left := p.limit; p.all || left > 0; {
		page := maxPage
		if !p.all {
			page = min(left, maxPage)
		}
		n, next, err := fetch(ctx, page, cursor)
		if err != nil || next == "" {
			return "", err
		}
		cursor = next
		left -= n
	}
	return cursor, nil
}

func (c *commands) list() *cobra.Command {
	var p paging
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List jobs, newest first",
		Example: "  rowmill jobs list\n  rowmill jobs list --all -o json | jq -r '.[] | select(.status == \"failed\") | .job_id'",
		Args:    cobra.NoArgs,
		RunE: c.service.With(func(cmd *cobra.Command, api *client.Client, _ []string) error {
			out := c.records("JOB\tSTATUS\tROWS\tMODEL\tAGE\tNAME")
			next, err := p.walk(cmd.Context(), func(ctx context.Context, limit int, cursor string) (int, string, error) {
				page, err := api.List(ctx, limit, cursor)
				if err != nil {
					return 0, "", fmt.Errorf("list jobs: %w", err)
				}
				return len(page.Jobs), page.Next, out.write(len(page.Jobs), func(i int) (any, string) {
					job := page.Jobs[i]
					return job, strings.Join([]string{
						job.ID, string(job.Status), rowsOf(job), job.Model,
						terminal.Ago(c.Term.Now().Sub(job.Created)), text(job.Name),
					}, "\t")
				})
			})
			return c.end(out, next, err, "rowmill jobs list")
		}),
	}
	p.flags(cmd, "jobs", 20)
	c.outputFlag(cmd)
	return cmd
}

func (c *commands) errors() *cobra.Command {
	var p paging
	cmd := &cobra.Command{
		Use:               "errors JOB",
		Short:             "List the rows that failed, and why",
		Long:              "List the rows that failed, and why. What the engine returned for them is in -o json.",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: c.completeJobs,
		RunE: c.service.With(func(cmd *cobra.Command, api *client.Client, args []string) error {
			out := c.records("ROW\tCODE\tMESSAGE")
			next, err := p.walk(cmd.Context(), func(ctx context.Context, limit int, cursor string) (int, string, error) {
				page, err := api.Errors(ctx, args[0], limit, cursor)
				if err != nil {
					return 0, "", fmt.Errorf("errors of %s: %w", args[0], err)
				}
				return len(page.Errors), page.Next, out.write(len(page.Errors), func(i int) (any, string) {
					row := page.Errors[i]
					return row, fmt.Sprintf("%d\t%s\t%s", row.Row, row.Code, row.Message)
				})
			})
			return c.end(out, next, err, "rowmill jobs errors "+args[0])
		}),
	}
	p.flags(cmd, "failed rows", 100)
	c.outputFlag(cmd)
	return cmd
}

// records prints a list as it comes, page by page: as a table, or as one JSON
// array.
type records struct {
	w      io.Writer
	json   bool
	header string // empty once it is written
	n      int
}

func (c *commands) records(header string) *records {
	return &records{w: c.Term.Out, json: c.print == "json", header: header}
}

// write prints n records; at gives one as a value and as a line of a table.
func (r *records) write(n int, at func(i int) (value any, line string)) error {
	if !r.json {
		return terminal.Table(r.w, func(w io.Writer) {
			if r.header != "" {
				fmt.Fprintln(w, r.header)
				r.header = ""
			}
			for i := range n {
				_, line := at(i)
				fmt.Fprintln(w, terminal.Printable(line))
			}
		})
	}
	for i := range n {
		value, _ := at(i)
		text, err := json.MarshalIndent(value, "  ", "  ")
		if err != nil {
			return fmt.Errorf("print: %w", err)
		}
		open := ",\n  "
		if r.n == 0 {
			open = "[\n  "
		}
		if _, err := fmt.Fprint(r.w, open+string(text)); err != nil {
			return err
		}
		r.n++
	}
	return nil
}

// end closes the list and says how to see more.
func (c *commands) end(r *records, next string, err error, command string) error {
	if err != nil {
		return err
	}
	if r.json {
		closing := "\n]\n"
		if r.n == 0 {
			closing = "[]\n"
		}
		if _, err := io.WriteString(r.w, closing); err != nil {
			return err
		}
	}
	if next != "" {
		c.Term.Say("more: %s --cursor %s (or --all)", command, quote(next))
	}
	return nil
}
