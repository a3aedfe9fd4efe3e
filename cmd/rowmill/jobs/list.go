package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/cmd/rowmill/exit"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
)

// maxPage is the largest number of items that the API returns on one page.
const maxPage = 100

func (c *jobCommands) list() *cobra.Command {
	var filter client.ListJobsParams
	var statuses []string
	cmd := listCommand[client.Job]{
		what: "jobs", limit: 20,
		repeatCommand: func([]string) string {
			again := "rowmill jobs list"
			if len(statuses) > 0 {
				again += " --status " + shellQuote(strings.Join(statuses, ","))
			}
			if filter.Q != "" {
				again += " --search " + shellQuote(filter.Q)
			}
			if filter.FailedRows {
				again += " --failed-rows"
			}
			return again
		},
		header: []string{"JOB", "STATUS", "ROWS", "MODEL", "AGE", "NAME"}, least: []string{"MODEL", "AGE"},
		fetch: func(ctx context.Context, api *client.Client, _ []string, limit int, cursor string) ([]client.Job, string, error) {
			filter.Status, filter.Limit, filter.Cursor = strings.Join(statuses, ","), int64(limit), cursor
			page, _, err := api.ListJobs(ctx, filter)
			if err != nil {
				err = fmt.Errorf("list jobs: %w", err)
			}
			return page.Jobs, page.NextCursor, err
		},
		cells: func(job client.Job) []string {
			name := terminal.Deref(job.Name)
			if job.RunType == rowmill.RunEstimate {
				name = strings.TrimSpace(name + " (estimate)")
			}
			return []string{job.ID, string(job.ShownStatus()), formatRowsAndFailed(job), job.Model, terminal.FormatAge(c.Term.Now().Sub(job.Created)), name}
		},
	}.setUpCommand(c, &cobra.Command{
		Use:     "list",
		Short:   "List jobs, newest first",
		Example: "  rowmill jobs list\n  rowmill jobs list --status running,failed --search nightly\n  rowmill jobs list --all -o json | jq -r '.[] | select(.status == \"failed\") | .job_id'",
		Args:    cobra.NoArgs,
	})
	cmd.Flags().StringSliceVar(&statuses, "status", nil, "only jobs in these states; paused is one of them")
	cmd.Flags().StringVar(&filter.Q, "search", "", "only jobs with this text in their name, id or description")
	cmd.Flags().BoolVar(&filter.FailedRows, "failed-rows", false, "only jobs that have failed rows, in any state")
	return cmd
}

func (c *jobCommands) errors() *cobra.Command {
	return listCommand[client.FailedRow]{
		what: "failed rows", limit: 100,
		repeatCommand: func(args []string) string { return "rowmill jobs errors " + args[0] },
		header:        []string{"ROW", "CODE", "MESSAGE"},
		fetch: func(ctx context.Context, api *client.Client, args []string, limit int, cursor string) ([]client.FailedRow, string, error) {
			page, _, err := api.ListErrors(ctx, args[0], client.ListErrorsParams{Limit: int64(limit), Cursor: cursor})
			if err != nil {
				err = fmt.Errorf("errors of %s: %w", args[0], err)
			}
			return page.Errors, page.NextCursor, err
		},
		cells: func(row client.FailedRow) []string {
			return []string{strconv.FormatInt(row.Row, 10), row.Code, row.Message}
		},
	}.setUpCommand(c, c.withJobCompletion(&cobra.Command{
		Use:   "errors JOB",
		Short: "List the rows that failed, and why",
		Long:  "List the rows that failed, and why. With -o json, raw_output has the engine's answers.",
		Args:  cobra.ExactArgs(1),
	}))
}

// A listCommand describes a command that fetches and prints a long list page by page: as a
// table, or as one JSON array.
type listCommand[T any] struct {
	what          string                     // name of the items, such as jobs
	limit         int                        // default number of items
	repeatCommand func(args []string) string // returns the command that lists the items again, for a hint
	header        []string
	least         []string // columns to drop first if the terminal is narrow
	fetch         func(ctx context.Context, api *client.Client, args []string, limit int, cursor string) (page []T, next string, err error)
	cells         func(T) []string
}

// setUpCommand adds to cmd the flags of the listing, and the body that fetches and prints
// the items.
func (l listCommand[T]) setUpCommand(c *jobCommands, cmd *cobra.Command) *cobra.Command {
	var cursor string
	var all bool
	cmd.Flags().IntVarP(&l.limit, "limit", "n", l.limit, "how many "+l.what+" to show")
	cmd.Flags().StringVar(&cursor, "cursor", "", "continue an earlier list at the cursor that it printed")
	cmd.Flags().BoolVarP(&all, "all", "a", false, "show all "+l.what)
	return c.SetPrintingBody(cmd, func(ctx context.Context, api *client.Client, args []string) error {
		if l.limit < 1 {
			return exit.WithCode(exit.Usage, fmt.Errorf("--limit must be at least 1, is %d", l.limit))
		}
		next, shown := cursor, 0
		for first := true; first || next != "" && (all || shown < l.limit); first = false {
			limit := maxPage
			if !all {
				limit = min(l.limit-shown, maxPage)
			}
			page, following, err := l.fetch(ctx, api, args, limit, next)
			if err != nil {
				return err
			}
			if err := l.printPage(c, page, shown, first); err != nil {
				return err
			}
			next, shown = following, shown+len(page)
		}
		if c.WantsJSON() {
			closing := "\n]"
			if shown == 0 {
				closing = "[]"
			}
			if _, err := fmt.Fprintln(c.Term.Out, closing); err != nil {
				return err
			}
		}
		if next != "" {
			c.Term.Say("more: %s --cursor %s (or --all)", l.repeatCommand(args), shellQuote(next))
		}
		return nil
	})
}

// printPage prints one page. printedBefore is the number of items on the pages before;
// first is true for the first page.
func (l listCommand[T]) printPage(c *jobCommands, page []T, printedBefore int, first bool) error {
	if !c.WantsJSON() {
		return c.Term.PrintTable(func(row terminal.RowWriter) {
			if first || c.Term.OutWidth > 0 { // there, each page may have other columns
				row(l.header...)
			}
			for _, item := range page {
				row(l.cells(item)...)
			}
		}, l.least...)
	}
	for i, item := range page {
		text, err := json.MarshalIndent(item, "  ", "  ")
		if err != nil {
			return fmt.Errorf("write an item as JSON: %w", err)
		}
		open := ",\n  "
		if printedBefore+i == 0 {
			open = "[\n  "
		}
		if _, err := fmt.Fprint(c.Term.Out, open+string(text)); err != nil {
			return err
		}
	}
	return nil
}
