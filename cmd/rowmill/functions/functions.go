// Package functions holds the commands about Functions. It owns the names and the
// output of these commands, and the files that they read; package client speaks the
// API.
package functions

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/cmd/rowmill/command"
	"github.com/rowmill/rowmill/cmd/rowmill/connect"
	"github.com/rowmill/rowmill/cmd/rowmill/exit"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
)

// maxFile limits a definition or an input that is read into memory, in bytes. The
// service has the same limit.
const maxFile = 32 << 20

// functionCommands holds the data that all commands of this package share.
type functionCommands struct{ command.GroupOptions }

// Command returns `rowmill functions`.
func Command(service connect.Options) *cobra.Command {
	c := &functionCommands{command.GroupOptions{Options: service}}
	return c.AddSubcommands(&cobra.Command{
		Use:   "functions",
		Short: "Publish Functions and run them",
		Long: `Publish Functions and run them. A Function is a prompt with fields to fill in,
together with its model, schema and parameters. A job names the Function as its
model, and each of its rows has values for the fields. A definition is a YAML or
JSON file:

    name: grade
    model: llama-3.1-8b
    inputs:
      - name: essay
      - name: level
        required: false
    system_prompt: You are a teacher.
    prompt: |
      Grade this essay at level {{level}}: {{essay}}
    sampling_params: {temperature: 0.2}
    json_schema: {type: object, required: [grade]}

Every change is a new revision; publish and rollback choose the revision in use.
Changes need an administrator's key; any key of the account may read and run Functions.

` + command.Help,
	}, c.publish(), c.list(), c.get(), c.revisions(), c.diff(), c.rollback(), c.unpublish(), c.run())
}

func (c *functionCommands) publish() *cobra.Command {
	var draft bool
	cmd := &cobra.Command{
		Use:   "publish FILE",
		Short: "Create a Function or its next revision from a YAML or JSON file",
		Long: `Create a Function or its next revision from a YAML or JSON file, and publish it.
FILE may be - for standard input.`,
		Example: `  rowmill functions publish grade.yaml
  rowmill functions publish grade.yaml --draft
  rowmill functions get grade | sed 's/teacher/tutor/' | rowmill functions publish -`,
		Args: cobra.ExactArgs(1),
	}
	cmd.Flags().BoolVar(&draft, "draft", false, "store the revision without publishing it")
	return c.AddAccountFlag(c.SetBody(cmd, func(ctx context.Context, api *client.Client, args []string) error {
		text, err := c.readFile(args[0])
		if err != nil {
			return exit.WithCode(exit.Usage, err)
		}
		body, err := definitionToJSON(text, draft)
		if err != nil {
			return exit.WithCode(exit.Usage, fmt.Errorf("read %s: %w", args[0], err))
		}
		f, _, err := api.PublishFunction(ctx, c.Account, body)
		if err != nil {
			return fmt.Errorf("publish %s: %w", args[0], err)
		}
		state := "is published"
		if draft {
			state = "is a draft; `rowmill functions rollback " + f.Name + " " + strconv.Itoa(f.Revision) + "` publishes it"
		}
		fmt.Fprintf(c.Term.Out, "revision %d of %s %s\n", f.Revision, f.Name, state)
		return nil
	}))
}

// readFile returns the content of a file, or of standard input if the name is -.
func (c *functionCommands) readFile(name string) ([]byte, error) {
	src, err := c.Term.Open(name)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	text, err := io.ReadAll(io.LimitReader(src, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("%s is larger than %d MiB", name, maxFile>>20)
	}
	return text, err
}

func (c *functionCommands) list() *cobra.Command {
	return c.AddAccountFlag(c.SetPrintingBody(&cobra.Command{
		Use:   "list",
		Short: "List the published Functions",
		Args:  cobra.NoArgs,
	}, func(ctx context.Context, api *client.Client, _ []string) error {
		found, _, err := api.ListFunctions(ctx, c.Account)
		if err != nil {
			return fmt.Errorf("list Functions: %w", err)
		}
		return c.printFunctions(found.Functions, "functions")
	}))
}

func (c *functionCommands) revisions() *cobra.Command {
	return c.AddAccountFlag(c.SetPrintingBody(&cobra.Command{
		Use:   "revisions NAME",
		Short: "List the revisions of a Function, newest first",
		Args:  cobra.ExactArgs(1),
	}, func(ctx context.Context, api *client.Client, args []string) error {
		found, _, err := api.ListRevisions(ctx, args[0], c.Account)
		if err != nil {
			return fmt.Errorf("list revisions: %w", err)
		}
		return c.printFunctions(found.Revisions, "revisions")
	}))
}

// printFunctions prints a table of Functions or revisions. listName is the name of the list in JSON.
func (c *functionCommands) printFunctions(found []client.Function, listName string) error {
	if found == nil {
		found = []client.Function{} // JSON needs a list, not null
	}
	return c.PrintTable(map[string][]client.Function{listName: found}, func(row terminal.RowWriter) {
		row("NAME", "REVISION", "MODEL", "INPUTS", "CREATED", "PUBLISHED", "DESCRIPTION")
		for _, f := range found {
			var names []string
			for _, in := range f.Inputs {
				name := in.Name
				if !in.Required {
					name += "?"
				}
				names = append(names, name)
			}
			row(terminal.FillEmptyCells(f.Name, strconv.Itoa(f.Revision), f.Model, terminal.AbbreviateList(names),
				terminal.FormatTime(&f.Created), terminal.FormatTime(f.Published), f.Description)...)
		}
	}, "CREATED", "INPUTS")
}

func (c *functionCommands) get() *cobra.Command {
	var revision int
	cmd := &cobra.Command{
		Use:   "get NAME",
		Short: "Print a definition, as a file that can be published",
		Args:  cobra.ExactArgs(1),
	}
	cmd.Flags().IntVar(&revision, "revision", 0, "which revision (default: the published one)")
	return c.AddAccountFlag(c.SetPrintingBody(cmd, func(ctx context.Context, api *client.Client, args []string) error {
		f, err := c.fetchRevision(ctx, api, args[0], revision)
		if err != nil {
			return fmt.Errorf("get %s: %w", args[0], err)
		}
		return c.Print(f, func(w io.Writer) error { return writeYAML(w, f) })
	}, "yaml", "json"))
}

// fetchRevision fetches a revision of a Function; revision 0 means the published one.
func (c *functionCommands) fetchRevision(ctx context.Context, api *client.Client, name string, revision int) (client.Function, error) {
	if revision == 0 {
		f, _, err := api.GetFunction(ctx, name, c.Account)
		return f, err
	}
	all, _, err := api.ListRevisions(ctx, name, c.Account)
	if err != nil {
		return client.Function{}, err
	}
	return findRevision(all.Revisions, name, revision)
}

// findRevision returns a revision from a list; revision 0 means the published one.
func findRevision(all []client.Function, name string, revision int) (client.Function, error) {
	for _, f := range all {
		if f.Revision == revision || revision == 0 && f.Published != nil {
			return f, nil
		}
	}
	what := fmt.Sprintf("revision %d", revision)
	if revision == 0 {
		what = "published revision"
	}
	return client.Function{}, exit.WithCode(exit.NotFound, fmt.Errorf("there is no %s of %s; `rowmill functions revisions %s` lists the revisions", what, name, name))
}

func (c *functionCommands) diff() *cobra.Command {
	return c.AddAccountFlag(c.SetBody(&cobra.Command{
		Use:   "diff NAME [REVISION [REVISION]]",
		Short: "Compare two revisions line by line",
		Long: `Compare two revisions line by line. Without revisions it compares the newest with
the one before; with one revision, it compares that one with the published one.`,
		Example: `  rowmill functions diff grade
  rowmill functions diff grade 3 5`,
		Args: cobra.RangeArgs(1, 3),
	}, func(ctx context.Context, api *client.Client, args []string) error {
		var numbers []int
		for _, arg := range args[1:] {
			n, err := parseRevision(arg)
			if err != nil {
				return err
			}
			numbers = append(numbers, n)
		}
		found, _, err := api.ListRevisions(ctx, args[0], c.Account)
		if err != nil {
			return fmt.Errorf("diff %s: %w", args[0], err)
		}
		all := found.Revisions
		switch len(numbers) {
		case 0:
			if len(all) < 2 {
				return exit.WithCode(exit.NotFound, fmt.Errorf("%s has one revision only; there is nothing to compare", args[0]))
			}
			numbers = []int{all[1].Revision, all[0].Revision}
		case 1:
			numbers = append(numbers, 0)
		}
		return c.printDiff(all, args[0], numbers[0], numbers[1])
	}))
}

func (c *functionCommands) printDiff(all []client.Function, name string, before, after int) error {
	var texts [2]bytes.Buffer
	var shown [2]int
	for i, n := range []int{before, after} {
		f, err := findRevision(all, name, n)
		if err == nil {
			err = writeYAML(&texts[i], f)
		}
		if err != nil {
			return err
		}
		shown[i] = f.Revision
	}
	fmt.Fprintf(c.Term.Out, "--- %s revision %d\n+++ %s revision %d\n", name, shown[0], name, shown[1])
	for _, line := range diffLines(texts[0].String(), texts[1].String()) {
		fmt.Fprintln(c.Term.Out, terminal.SanitizeLine(line))
	}
	return nil
}

// parseRevision parses an argument that is the number of a revision.
func parseRevision(arg string) (int, error) {
	n, err := strconv.Atoi(arg)
	if err != nil || n < 1 {
		return 0, exit.WithCode(exit.Usage, fmt.Errorf("a revision is a whole number of at least 1, is %q", arg))
	}
	return n, nil
}

func (c *functionCommands) rollback() *cobra.Command {
	return c.AddAccountFlag(c.SetBody(&cobra.Command{
		Use:   "rollback NAME REVISION",
		Short: "Publish an earlier revision, or a draft",
		Args:  cobra.ExactArgs(2),
	}, func(ctx context.Context, api *client.Client, args []string) error {
		n, err := parseRevision(args[1])
		if err != nil {
			return err
		}
		f, _, err := api.RollbackFunction(ctx, args[0], c.Account, client.Rollback{Revision: int64(n)})
		if err != nil {
			return fmt.Errorf("roll back %s: %w", args[0], err)
		}
		fmt.Fprintf(c.Term.Out, "revision %d of %s is published\n", f.Revision, f.Name)
		return nil
	}))
}

func (c *functionCommands) unpublish() *cobra.Command {
	return c.AddAccountFlag(c.SetBody(&cobra.Command{
		Use:   "unpublish NAME",
		Short: "Unpublish a Function; its revisions stay and its jobs continue",
		Args:  cobra.ExactArgs(1),
	}, func(ctx context.Context, api *client.Client, args []string) error {
		if _, _, err := api.UnpublishFunction(ctx, args[0], c.Account); err != nil {
			return fmt.Errorf("unpublish %s: %w", args[0], err)
		}
		fmt.Fprintf(c.Term.Out, "%s is not published any more\n", args[0])
		return nil
	}))
}

func (c *functionCommands) run() *cobra.Command {
	var (
		file     string
		revision int
	)
	cmd := &cobra.Command{
		Use:   "run NAME [FIELD=VALUE ...]",
		Short: "Run a Function for one input and print the answer",
		Long: `Run a Function for one input and print the answer. The input is given as fields
with text values, or as a file with a JSON object of fields or a JSON string, which
is a finished prompt. The run is a job of priority 0 with one row; after 90 seconds
the job is cancelled.`,
		Example: `  rowmill functions run grade level=5 essay="My holiday was fun."
  echo '{"essay": "My holiday was fun."}' | rowmill functions run grade --input -`,
		Args: cobra.MinimumNArgs(1),
	}
	cmd.Flags().StringVar(&file, "input", "", "file that holds the input as JSON; - is standard input")
	cmd.Flags().IntVar(&revision, "revision", 0, "revision to run, a draft too (default: the published one)")
	return c.SetPrintingBody(cmd, func(ctx context.Context, api *client.Client, args []string) error {
		input, err := c.buildRunInput(args[1:], file)
		if err != nil {
			return exit.WithCode(exit.Usage, err)
		}
		run, answer, err := api.RunFunction(ctx, args[0], client.RunInput{Input: input, Revision: int64(revision)})
		if err != nil {
			return fmt.Errorf("run %s: %w", args[0], err)
		}
		return c.Print(answer.Raw, func(w io.Writer) error {
			var text string
			if json.Unmarshal(run.Output, &text) != nil { // the output is a vector and not a text
				text = string(run.Output)
			}
			_, err := fmt.Fprintln(w, text)
			return err
		})
	}, "text", "json")
}

// buildRunInput returns the input of a run as JSON, from the fields or from the file.
func (c *functionCommands) buildRunInput(fields []string, file string) (json.RawMessage, error) {
	if file != "" {
		if len(fields) > 0 {
			return nil, fmt.Errorf("fields and --input exclude each other")
		}
		text, err := c.readFile(file)
		if err == nil && !json.Valid(text) {
			err = fmt.Errorf("%s is not JSON; it must hold an object of fields, or a string", file)
		}
		return text, err
	}
	values := map[string]string{}
	for _, field := range fields {
		name, value, found := strings.Cut(field, "=")
		if !found {
			return nil, fmt.Errorf("%q must be FIELD=VALUE", field)
		}
		if _, twice := values[name]; twice {
			return nil, fmt.Errorf("the field %q is given twice", name)
		}
		values[name] = value
	}
	return json.Marshal(values)
}
