package jobs

import (
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/cmd/rowmill/exit"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
	"github.com/rowmill/rowmill/internal/textfmt"
)

// maxComparePage is the largest number of rows that the API returns on one page of a
// comparison.
const maxComparePage = 1000

func (c *jobCommands) compare() *cobra.Command {
	var shown int64
	var path string
	cmd := c.withJobCompletion(&cobra.Command{
		Use:   "compare JOB JOB...",
		Short: "Compare two to four jobs on one input",
		Long: `Compare two to four jobs on one input: their cost, tokens and time, how many of their
rows are equal, and rows with different outputs side by side. If a job has a limit, only
the rows that all jobs have are compared.

JSON is compared by its value, not by its text. For properties of the outputs with at most
20 different values, VALUES has each value with its number of rows in each job.

rowmill jobs attach JOB JOB... writes the results of the jobs as one Parquet file.`,
		Example: `  rowmill jobs compare job-… job-…
  rowmill jobs compare job-… job-… job-… --rows 0 --csv compared.csv`,
		Args: cobra.RangeArgs(2, 4),
	})
	cmd.Flags().Int64Var(&shown, "rows", 10, "how many different rows to show")
	cmd.Flags().StringVar(&path, "csv", "", "also write all rows to this CSV file: row, input, and the output of each job")
	return c.SetPrintingBody(cmd, func(ctx context.Context, api *client.Client, args []string) error {
		if shown < 0 {
			return exit.WithCode(exit.Usage, fmt.Errorf("--rows must be at least 0, is %d", shown))
		}
		if _, err := os.Stat(path); path != "" && err == nil {
			return exit.WithCode(exit.Usage, fmt.Errorf("%s exists; choose another file with --csv", path))
		}
		ids := strings.Join(args, ",")
		summary, answer, err := api.SummarizeComparison(ctx, ids)
		if err != nil {
			return fmt.Errorf("compare: %w", err)
		}
		rows := []client.ComparedRow{}
		if shown > 0 {
			err = eachComparedRow(ctx, api, client.CompareJobsParams{Jobs: ids, Limit: min(shown, maxComparePage), Different: "true"}, func(row client.ComparedRow) bool {
				rows = append(rows, row)
				return int64(len(rows)) < shown
			})
		}
		if err == nil {
			err = c.Print(map[string]any{"summary": answer.Raw, "rows": rows}, func(w io.Writer) error {
				return c.printComparison(w, &summary, rows)
			})
		}
		if err == nil && path != "" {
			err = c.saveComparison(ctx, api, ids, nameJobs(summary.Jobs), path)
		}
		return err
	})
}

// eachComparedRow fetches rows of a comparison page by page, and calls visit for each row until
// visit returns false.
func eachComparedRow(ctx context.Context, api *client.Client, params client.CompareJobsParams, visit func(client.ComparedRow) bool) error {
	for {
		page, _, err := api.CompareJobs(ctx, params)
		if err != nil {
			return fmt.Errorf("compare: %w", err)
		}
		for _, row := range page.Rows {
			if !visit(row) {
				return nil
			}
		}
		if page.NextOffset == nil {
			return nil
		}
		params.Offset = *page.NextOffset
	}
}

// maxPromptName is the longest beginning of a prompt that names a job, in bytes.
const maxPromptName = 40

// nameJobs returns different names for jobs: their own names, models or system prompts, whichever
// differs between all jobs. If all of them are equal, it returns the ids.
func nameJobs(jobs []client.ComparedJob) (names []string) {
	for _, name := range []func(client.ComparedJob) string{
		func(job client.ComparedJob) string { return terminal.Deref(job.Name) },
		func(job client.ComparedJob) string { return job.Model },
		func(job client.ComparedJob) string {
			return textfmt.Shorten(terminal.Deref(job.SystemPrompt), maxPromptName)
		},
		func(job client.ComparedJob) string { return job.JobID },
	} {
		names = names[:0]
		for _, job := range jobs {
			if text := name(job); text != "" && !slices.Contains(names, text) {
				names = append(names, text)
			}
		}
		if len(names) == len(jobs) {
			break
		}
	}
	return names
}

// printComparison prints a table of the jobs, a table of their properties, and rows side by side.
func (c *jobCommands) printComparison(w io.Writer, summary *client.ComparisonSummary, rows []client.ComparedRow) error {
	names := nameJobs(summary.Jobs)
	if n := summary.DifferentInputs; n > 0 {
		fmt.Fprintf(w, "warning: the inputs of the jobs differ in %s of %s rows; the answers of these rows cannot be compared\n\n", terminal.FormatCount(n), terminal.FormatCount(summary.Counted))
	}
	if slices.ContainsFunc(summary.Jobs, func(job client.ComparedJob) bool { return job.NumRows != summary.NumRows }) {
		all := "both"
		if len(names) > 2 {
			all = "all"
		}
		fmt.Fprintf(w, "Compares the %s rows that %s jobs have.\n\n", terminal.FormatCount(summary.NumRows), all)
	}
	err := terminal.WriteTable(w, func(row terminal.RowWriter) {
		row(append([]string{""}, names...)...)
		for _, line := range []struct {
			name string
			cell func(client.ComparedJob) string
		}{
			{"job", func(job client.ComparedJob) string { return job.JobID }},
			{"model", func(job client.ComparedJob) string { return job.Model }},
			{"status", func(job client.ComparedJob) string { return job.Status }},
			{"rows done", func(job client.ComparedJob) string { return terminal.FormatCount(job.RowsDone) }},
			{"failed rows", func(job client.ComparedJob) string { return terminal.FormatCount(job.FailedRows) }},
			{"cost", func(job client.ComparedJob) string { return formatCost(job.Cost) }},
			{"input tokens", func(job client.ComparedJob) string { return formatCount(job.InputTokens) }},
			{"output tokens", func(job client.ComparedJob) string { return formatCount(job.OutputTokens) }},
			{"time", func(job client.ComparedJob) string { return formatSeconds(job.Seconds) }},
		} {
			cells := []string{line.name}
			for _, job := range summary.Jobs {
				cells = append(cells, cmp.Or(line.cell(job), "-"))
			}
			row(cells...)
		}
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "\nequal rows: %s; different: %s; pending: %s\n",
		formatShare(summary.Equal, summary.Counted), terminal.FormatCount(summary.Different), terminal.FormatCount(summary.Pending))
	if summary.Counted < summary.NumRows {
		fmt.Fprintf(w, "counted: the first %s of %s rows\n", terminal.FormatCount(summary.Counted), terminal.FormatCount(summary.NumRows))
	}
	if len(summary.Properties) > 0 {
		fmt.Fprintln(w)
		err = terminal.WriteTable(w, func(row terminal.RowWriter) {
			row("PROPERTY", "EQUAL ROWS", "VALUES")
			for _, property := range summary.Properties {
				row(cmp.Or(property.Property, "(answer)"), formatShare(property.Equal, property.Rows), formatValues(property))
			}
		})
	}
	width := c.Term.Width()
	for i, row := range rows {
		if i == 0 {
			fmt.Fprintln(w)
			terminal.WriteColumns(w, width, names...)
		}
		writeComparedRow(w, width, summary.Jobs, row)
	}
	return err
}

// writeComparedRow writes a row for people: its input, and its outputs side by side.
func writeComparedRow(w io.Writer, width int, jobs []client.ComparedJob, row client.ComparedRow) {
	note := ""
	if !row.SameInput {
		note = " (the inputs of the jobs differ)"
	}
	terminal.WriteColumns(w, width, fmt.Sprintf("\nrow %d%s: %s", row.Row, note, terminal.Deref(row.Input)))
	outputs := make([]string, len(row.Outputs))
	for i, o := range row.Outputs {
		switch outputs[i] = outputText(o); o.Status {
		case "failed":
			outputs[i] = "failed: " + terminal.Deref(o.Code)
		case "pending":
			outputs[i] = o.Status
			if i < len(jobs) && rowmill.Status(jobs[i].Status).IsTerminal() {
				outputs[i] = "not run"
			}
		}
	}
	terminal.WriteColumns(w, width, outputs...)
}

// outputText returns the text of an output, the JSON of an embedding, or "" if the row is not
// done.
func outputText(o client.ComparedOutput) string {
	var text *string
	if json.Unmarshal(o.Output, &text) != nil {
		return string(o.Output)
	}
	return terminal.Deref(text)
}

// saveComparison writes all rows of a comparison to a CSV file. names are the names of the jobs.
func (c *jobCommands) saveComparison(ctx context.Context, api *client.Client, ids string, names []string, path string) error {
	var rows, cut int64
	err := replaceFile(path, func(w io.Writer) error {
		out := csv.NewWriter(w)
		_ = out.Write(append([]string{"row", "input"}, names...)) // the writer keeps its first error
		err := eachComparedRow(ctx, api, client.CompareJobsParams{Jobs: ids, Limit: maxComparePage}, func(row client.ComparedRow) bool {
			cells, isCut := []string{strconv.FormatInt(row.Row, 10), terminal.Deref(row.Input)}, row.Cut
			for _, o := range row.Outputs {
				cells, isCut = append(cells, outputText(o)), isCut || o.Cut
			}
			if rows++; isCut {
				cut++
			}
			return out.Write(cells) == nil
		})
		out.Flush()
		return errors.Join(err, out.Error())
	})
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	c.Term.Say("wrote %s (%s rows)", path, terminal.FormatCount(rows))
	if cut > 0 {
		c.Term.Say("rows with a text that was cut at 16 KiB: %s; rowmill jobs results writes whole texts", terminal.FormatCount(cut))
	}
	return nil
}

// formatShare formats a number of rows and its share, such as 90 of 100 (90.0 %).
func formatShare(n, all int64) string {
	if all == 0 {
		return "0 of 0"
	}
	return fmt.Sprintf("%s of %s (%.1f %%)", terminal.FormatCount(n), terminal.FormatCount(all), 100*float64(n)/float64(all))
}

// formatValues formats the values of a property with the number of rows in each job, such as
// true 7 | 9, false 3 | 1.
func formatValues(property client.ComparedProperty) string {
	values := make([]string, len(property.Values))
	for i, value := range property.Values {
		counts := make([]string, len(property.Counts))
		for j := range property.Counts {
			counts[j] = terminal.FormatCount(property.Counts[j][i])
		}
		values[i] = string(value) + " " + strings.Join(counts, " | ")
	}
	return strings.Join(values, ", ")
}

func formatSeconds(seconds *float64) string {
	if seconds == nil {
		return ""
	}
	return terminal.FormatDuration(time.Duration(*seconds * float64(time.Second)))
}
