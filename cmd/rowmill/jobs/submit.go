package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/cmd/rowmill/command"
	"github.com/rowmill/rowmill/cmd/rowmill/exit"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
	"github.com/rowmill/rowmill/input"
	"github.com/rowmill/rowmill/input/function"
	"github.com/rowmill/rowmill/input/sources"
)

const (
	// manyRows is the largest number of rows of a job that gets priority 0 by default.
	manyRows = 1000
	// bySize is the priority of a submission without --priority: the number of rows
	// decides.
	bySize rowmill.Priority = -1
	// maxSchema is the service's limit on a schema, in bytes.
	maxSchema = 256 << 10
)

// submitFlags holds the values of the flags of `rowmill jobs submit`.
type submitFlags struct {
	client.Submission
	models    []string // more than one: a set of jobs on one input
	prompt    string
	run       string // file with the definition of a Function
	system    string
	schema    string
	params    []string
	dedup     bool
	reuse     client.Reuse
	kind      string
	detach    bool
	onlyIfMet bool
	timeout   time.Duration
	save      resultFlags
}

func (c *jobCommands) submit() *cobra.Command {
	var s submitFlags
	cmd := &cobra.Command{
		Use:   "submit FILE|URL|SOURCE:PATTERN|job:JOB|-",
		Short: "Run a model over every row of a file",
		Long: `Run a model over every row of a file and write the results in its order.

FILE may be a table (CSV, tab-separated values, Parquet, JSON Lines of objects:
choose the column with --column, else the first is run), JSON Lines of strings,
or plain text with a row on each line; gzip and zstd files are unpacked. For objects,
--column names a member, or a path to a member: messages.0.content. Parquet and JSON
are recognized by their content, other formats by the ending of the name (.csv, .tsv,
.jsonl, .ndjson, .json, .txt). Any other file, or standard input (-), is a table if you
give --column, else plain text. --input-format overrides this. The rows of a file are
checked and counted first and then sent with the submission.

With --prompt the prompt of each row is made from columns of a table.

With several --model the same rows run with each model, one job for each. The result
file then has one column of answers for each model; rowmill jobs compare counts how often
the answers are equal.

A table is uploaded in parts if it is larger than 8 MiB, or if more than one of
its columns may be needed: with --prompt, for a Function, with --keep, which copies
columns into the results, or with --id-column, which copies IDs. To continue an interrupted
upload, run the same command again. The uploaded copy is removed from the service
after the job is created.

A URL (http or https, of a file in one of these formats) is downloaded by the
service, once.

SOURCE:PATTERN names files of a source that the operator has set up: a bucket or a folder.
The service reads all files as one input, and a folder day=2026-11-01 gives its rows a
column. Write the pattern in quotes: * and ? match characters, ** matches folders. A local
file with such a name comes first.

job:JOB runs the stored input of a job again, with other settings: its rows have their IDs
and the columns of their prompt. A prompt with {{answer}}, or with {{answer.score}} for a
value in an answer that is JSON, also gets the answers of that job; --where chooses rows
by their answers. The new job then waits until that job has succeeded.

The command follows the job, and writes the results when the job has succeeded.
Ctrl-C detaches; the job goes on. With --detach the command prints the job's ID
and returns at once.

With --limit the job runs a few rows, to look at their answers first. rowmill jobs
resume JOB --rows rest then runs the other rows, and reuses the answers.

With --reuse NAME the job reuses the answers to equal rows of finished jobs with this
name and the same settings, and runs only the other rows. Give --name NAME too, so that
the next job can reuse this one. --reuse JOB reuses the answers of one job.

With --deadline the service runs a sample of up to 100 rows first, and the command prints
when the job would end. A late job still runs; with --only-if-met the service refuses a
job that would be late, and the exit code is 1.

With --estimate the service runs a sample of up to 100 rows, and the command
prints the cost of all rows with bounds. An estimate costs nothing. rowmill jobs
resume JOB --rows rest then runs all rows, and keeps the answers of the sample.
Estimates have the same quotas as jobs; see rowmill quotas.

` + exit.Help,
		Example: `  rowmill jobs submit reviews.csv --column text --system-prompt 'Positive or negative?'
  rowmill jobs submit reviews.csv --prompt 'Positive or negative? {{title}}: {{body}}'
  rowmill jobs submit docs.jsonl --column body --schema card.json --param temperature=0
  rowmill jobs submit reviews.csv --column text --model llama-3.1-8b --model qwen-3-4b
  rowmill jobs submit https://example.org/big.parquet --column text --id-column id --detach
  rowmill jobs submit 'lake:reviews/day=2026-11-*/*.parquet' --prompt 'On {{day}}: {{body}}'
  rowmill jobs submit reviews.csv --column text --estimate
  rowmill jobs submit job:job-… --model llama-3.1-8b --system-prompt 'One word: positive or negative?'
  rowmill jobs submit job:job-… --where 'answer.score < 4' --prompt 'Write it better: {{answer.text}}'
  rowmill jobs submit reviews.csv --column text --name nightly --reuse nightly
  printf 'one\ntwo\n' | rowmill jobs submit - --format json --output -`,
		Args: cobra.ExactArgs(1),
	}
	flags := cmd.Flags()
	s.addRowFlags(cmd)
	flags.StringVar(&s.Where, "where", "", "with the input job:JOB, run only rows whose answer in JOB matches this condition, such as 'answer.score < 4'")
	flags.StringVar(&s.Sink, "sink", "", "folder of a source of the service, NAME:FOLDER/: the service writes the results there, a file for each file of the input")
	flags.StringVar(&s.reuse.From, "reuse", "", "name of finished jobs, or ID of one job: rows that are equal to rows of these jobs get the same answers, and cost nothing")
	flags.StringVar((*string)(&s.reuse.By), "reuse-by", string(rowmill.ReuseByText), "with --reuse: rows are equal if their text or their id is equal")
	flags.StringVarP(&s.Name, "name", "n", "", "name of the job, at most 45 characters")
	flags.StringVar(&s.Description, "description", "", "description of the job, at most 512 characters")
	flags.IntVar((*int)(&s.Priority), "priority", 0, rowmill.PriorityValues+"; default: 1 above 1,000 rows, for URLs and for sources, else 0")
	flags.StringVar(&s.IdempotencyKey, "idempotency-key", "", "repeating a submission with the same key creates no second job (default: a new key)")
	flags.StringVar(&s.Deadline, "deadline", "", "time by which the job must end, such as 2026-11-27T06:00Z: print a forecast first")
	flags.BoolVar(&s.onlyIfMet, "only-if-met", false, "with --deadline: create the job only if its forecast meets the deadline")
	flags.BoolVar(&s.Estimate, "estimate", false, "print what the job would cost instead of running it")
	flags.BoolVarP(&s.detach, "detach", "d", false, "print the job's ID and return at once")
	s.save.addFlags(cmd, "")
	addTimeoutFlag(cmd, &s.timeout)
	command.CompleteFlagValues(cmd, "reuse-by", string(rowmill.ReuseByText), string(rowmill.ReuseByID))
	return c.SetBody(cmd, func(ctx context.Context, api *client.Client, args []string) error {
		if !flags.Changed("priority") {
			s.Priority = bySize
		}
		if flags.Changed("dedup") {
			s.Dedup = &s.dedup
		}
		if s.reuse.From != "" {
			s.Reuse = &s.reuse
		} else if flags.Changed("reuse-by") {
			return exit.WithCode(exit.Usage, errors.New("--reuse-by needs --reuse"))
		}
		if s.onlyIfMet && s.Deadline == "" {
			return exit.WithCode(exit.Usage, errors.New("--only-if-met needs --deadline"))
		} else if s.onlyIfMet {
			s.Admit = "only_if_met"
		}
		if s.Estimate {
			if err := s.checkEstimateFlags(); err != nil {
				return err
			}
		}
		return c.runSubmit(ctx, api, args[0], &s)
	})
}

func (c *jobCommands) runSubmit(ctx context.Context, api *client.Client, source string, s *submitFlags) error {
	if err := s.readFlags(); err != nil {
		return exit.WithCode(exit.Usage, err)
	}
	s.save.skip = s.Sink != "" && s.save.path == ""
	if !s.detach && !s.Estimate && !s.save.skip {
		if err := s.save.resolvePath(defaultResultName(source)); err != nil {
			return err
		}
	}
	if err := s.checkSetOutput(); err != nil {
		return err
	}
	if err := c.chooseModel(ctx, api, s); err != nil {
		return err
	}
	created := func() {} // called after the job was created
	if isURL(source) || strings.HasPrefix(source, "job:") || namesSource(source) {
		if err := s.setURL(source); err != nil {
			return exit.WithCode(exit.Usage, err)
		}
		if s.Priority == bySize {
			s.Priority = rowmill.Production
			c.Term.Say("using priority %d, because the number of rows is not known yet; --priority overrides", s.Priority)
		}
	} else {
		in, sent, err := c.prepareLocalInput(ctx, api, source, s)
		if err != nil {
			return err
		}
		defer in.Close()
		created = sent
	}
	if s.IdempotencyKey == "" {
		s.IdempotencyKey = uuid.NewString()
	}
	if s.Deadline != "" {
		c.Term.Say("the service runs a sample of the rows for the forecast, for at most 90 seconds")
	}
	ids, warnings, forecast, err := s.send(ctx, api)
	if err != nil {
		if ctx.Err() != nil || client.Temporary(err) {
			fmt.Fprintf(c.Term.Err, "the job may have been created; to make sure, repeat the command with --idempotency-key %s, or look: rowmill jobs list\n", shellQuote(s.IdempotencyKey))
		}
		return fmt.Errorf("submit: %w", err)
	}
	created()
	c.printAnswer(forecast, warnings)
	for _, id := range ids {
		c.Term.Say("created %s, see %s", id, consoleAddress(api, id))
	}
	if s.detach {
		_, err := fmt.Fprintln(c.Term.Out, strings.Join(ids, "\n"))
		return err
	}
	return c.followAndSave(ctx, api, ids, &s.save, s.timeout)
}

// readFlags checks the flags, reads the files that they name, and fills in the submission.
func (s *submitFlags) readFlags() error {
	if err := s.readModels(); err != nil {
		return fmt.Errorf("--model: %w", err)
	}
	if s.Format = s.kind; s.Format == kindAuto {
		s.Format = ""
	}
	if err := input.ValidateFormat(s.Format); err != nil {
		return fmt.Errorf("--input-format %w", err)
	}
	if len(s.Keep) > 0 && s.save.want.Columns == "" {
		s.save.want.Columns = rowmill.KeepAll
	}
	switch {
	case s.Limit < 0:
		return errors.New("--limit: must be at least 1; leave it out to run all rows")
	case s.Sample != "" && s.Sample != rowmill.SampleFirst && s.Sample != rowmill.SampleRandom:
		return fmt.Errorf("--sample %q: must be first or random", s.Sample)
	case s.Sample != "" && s.Limit == 0:
		return errors.New("--sample: needs --limit, the number of rows")
	case s.Limit > 0 && s.Estimate:
		return errors.New("--limit: cannot be used with --estimate, which estimates the cost of all rows")
	}
	if err := s.Priority.Validate(); err != nil && s.Priority != bySize {
		return fmt.Errorf("--priority %w", err)
	}
	for flag, text := range map[string]struct{ given, into *string }{"prompt": {&s.prompt, &s.Prompt}, "system-prompt": {&s.system, &s.System}} {
		*text.into = *text.given
		if name, isFile := strings.CutPrefix(*text.given, "@"); isFile {
			content, err := os.ReadFile(name)
			if err != nil {
				return fmt.Errorf("--%s: %w", flag, err)
			}
			*text.into = string(content)
		}
	}
	if s.run != "" {
		content, err := os.ReadFile(s.run)
		if err != nil {
			return fmt.Errorf("--function: %w", err)
		}
		if !json.Valid(content) {
			return fmt.Errorf("--function %s: must hold JSON", s.run)
		}
		s.Function = content
	}
	if s.save.want.Unpack && s.schema == "" && s.Model == "" && s.Function == nil {
		return errors.New("--unpack: needs --schema, which names the properties, or a Function with a schema")
	}
	if s.Prompt != "" && s.Column != "" {
		return errors.New("--column: cannot be used with --prompt, which names its columns")
	}
	if s.schema != "" {
		content, err := os.ReadFile(s.schema)
		if err != nil {
			return fmt.Errorf("--schema: %w", err)
		}
		var object map[string]any
		if err := json.Unmarshal(content, &object); err != nil {
			return fmt.Errorf("--schema %s: must hold a JSON object: %w", s.schema, err)
		}
		if object == nil {
			return fmt.Errorf("--schema %s: must hold a JSON object, not null", s.schema)
		}
		if len(content) > maxSchema {
			return fmt.Errorf("--schema %s: larger than %d KiB", s.schema, maxSchema>>10)
		}
		s.Schema = content
	}
	s.Sampling = map[string]any{}
	for _, param := range s.params {
		name, value, found := strings.Cut(param, "=")
		if !found || name == "" {
			return fmt.Errorf("--param %q must be NAME=VALUE, such as temperature=0.2", param)
		}
		if _, twice := s.Sampling[name]; twice {
			return fmt.Errorf("--param %s is given twice", name)
		}
		s.Sampling[name] = parseParamValue(value)
	}
	return nil
}

// parseParamValue returns the value of a sampling parameter: decoded from JSON if it is valid
// JSON, otherwise as text. Numbers keep every digit.
func parseParamValue(value string) any {
	dec := json.NewDecoder(strings.NewReader(value))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return value
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return value
	}
	return v
}

func (s *submitFlags) setURL(address string) error {
	if _, err := url.Parse(address); err != nil {
		return errors.New("the URL is malformed") // do not show the URL: it may hold a signature
	}
	s.URL = address
	return nil
}

// prepareLocalInput opens a local input, then checks and counts its rows. It uploads a table
// that is large or needs more than one column; other inputs are sent with the
// submission. The caller closes the input after it is sent, and calls onCreated after the
// job was created.
func (c *jobCommands) prepareLocalInput(ctx context.Context, api *client.Client, path string, s *submitFlags) (in *localInput, onCreated func(), err error) {
	if strings.HasPrefix(path, "s3://") {
		return nil, nil, exit.WithCode(exit.Usage, errors.New("s3:// addresses are not accepted; make a presigned https URL"))
	}
	in, err = openLocalInput(path, input.Options{Format: input.Format(s.Format), Column: s.Column, IDColumn: s.IDColumn}, c.Term.In)
	if err != nil {
		return nil, nil, exit.WithCode(exit.Usage, err)
	}
	opened := in
	defer func() {
		if err != nil {
			opened.Close()
		}
	}()
	prompt, err := c.findPrompt(ctx, api, in, s)
	if err != nil {
		return nil, nil, err
	}
	if prompt != nil {
		in.opts.Fields = prompt.InputFields(func([]string) string { return "" })
	}
	if len(s.Keep) > 0 && !in.kind.Table {
		return nil, nil, exit.WithCode(exit.Usage, fmt.Errorf("--keep: %s is %s and has no columns; leave --keep out, or give a table", in.name, in.describeFormat(true)))
	}
	size, err := in.measureInput(ctx, newTokenEstimator(s))
	if err != nil {
		return nil, nil, err
	}
	c.Term.Say("%s: %s rows of %s", in.name, terminal.FormatCount(size.rows), in.describeFormat(prompt != nil))
	if s.Limit > 0 && s.Limit < size.rows {
		size = inputSize{rows: s.Limit, tokens: size.tokens * s.Limit / size.rows}
		c.Term.Say("running %s of these rows", terminal.FormatCount(s.Limit))
	}
	if s.Priority == bySize && size.rows <= manyRows {
		s.Priority = rowmill.Prototyping
	}
	if s.Priority == bySize {
		s.Priority = rowmill.Production
		c.Term.Say("using priority %d, because there are, or may be, more than %s rows; --priority overrides", s.Priority, terminal.FormatCount(manyRows))
	}
	if err := c.checkQuotas(ctx, api, in.name, s.Priority, size); err != nil {
		return nil, nil, err
	}
	if in.kind.Table && (in.size > uploadAbove || s.IDColumn != "" || prompt != nil || len(s.Keep) > 0) {
		file, done, err := c.uploadInput(ctx, api, in)
		if err != nil {
			return nil, nil, err
		}
		s.URL, s.Format = "file:"+file, string(in.kind.Format)
		return in, done, nil
	}
	s.Rows, s.Column, s.Format = in.rows(), "", "" // the service gets the rows as texts, so it needs no column or format
	return in, func() {}, nil
}

// findPrompt returns the prompt that the columns of a table fill: that of --prompt, or of the
// Function that --model names. It returns nil if a column has the prompts.
func (c *jobCommands) findPrompt(ctx context.Context, api *client.Client, in *localInput, s *submitFlags) (*function.Prompt, error) {
	if s.Prompt != "" {
		if !in.kind.Table {
			return nil, exit.WithCode(exit.Usage, fmt.Errorf("--prompt: %s is %s and has no columns; use --system-prompt, or give a table", in.name, in.describeFormat(true)))
		}
		run, err := function.FromText(s.Prompt)
		if err != nil {
			return nil, exit.WithCode(exit.Usage, fmt.Errorf("--prompt: %w", err))
		}
		return function.NewPrompt(run)
	}
	if s.Function != nil {
		run, err := definedPrompt(s.Function)
		if err != nil {
			return nil, exit.WithCode(exit.Usage, fmt.Errorf("--function %s: must hold the definition of a Function: %w", s.run, err))
		}
		return run, nil
	}
	if !in.kind.Table || s.Column != "" || s.Model == "" {
		return nil, nil
	}
	f, _, err := api.GetFunction(ctx, s.Model, "")
	if err != nil {
		return nil, nil //nolint:nilerr // the submission reports a missing model or a service that does not answer
	}
	c.Term.Say("%s is a Function: its inputs are the columns of %s", s.Model, in.name)
	return function.NewPrompt(rowmill.FunctionPrompt{Inputs: f.Inputs, Prompt: f.Prompt})
}

// definedPrompt returns the prompt in the definition of a Function.
func definedPrompt(definition json.RawMessage) (*function.Prompt, error) {
	var defined struct {
		Prompt string
		Inputs []struct {
			Name     string
			Required *bool // default true
		}
	}
	if err := json.Unmarshal(definition, &defined); err != nil {
		return nil, err
	}
	run := rowmill.FunctionPrompt{Prompt: defined.Prompt}
	for _, in := range defined.Inputs {
		run.Inputs = append(run.Inputs, rowmill.FunctionInput{Name: in.Name, Required: in.Required == nil || *in.Required})
	}
	return function.NewPrompt(run)
}

// describeFormat names the format of the input and, unless isPrompt is set, the column to run.
func (s *localInput) describeFormat(isPrompt bool) string {
	kind := map[input.Format]string{
		input.FormatCSV: "CSV", input.FormatTSV: "tab-separated values", input.FormatParquet: "Parquet", input.FormatJSONL: "JSON lines", input.FormatLines: "plain text",
	}[s.kind.Format]
	switch {
	case isPrompt:
	case s.opts.Column != "":
		kind += ", column " + s.opts.Column
	case s.kind.Table && s.kind.Format != input.FormatJSONL:
		kind += ", first column"
	}
	return kind
}

func isURL(address string) bool {
	lower := strings.ToLower(address)
	return strings.HasPrefix(lower, "http://") || strings.HasPrefix(lower, "https://")
}

// namesSource reports whether an input names files of a source: it has the form NAME:PATTERN, and
// no local file has this name.
func namesSource(address string) bool {
	_, _, ok := sources.SplitName(address)
	if ok {
		_, err := os.Stat(address)
		ok = err != nil
	}
	return ok
}

// defaultResultName returns the default name for the results of an input: its file name without
// endings. For files of a source it is the name of the source.
func defaultResultName(address string) string {
	if u, err := url.Parse(address); err == nil && isURL(address) {
		address = u.Path
	}
	if source, _, _ := strings.Cut(address, ":"); namesSource(address) {
		address = source
	}
	name := filepath.Base(filepath.Clean(address))
	name = strings.TrimSuffix(strings.TrimSuffix(name, ".gz"), ".zst")
	name = strings.TrimSuffix(name, filepath.Ext(name))
	if name == "" || name == stdout || name == "/" || name == "." {
		return "rowmill"
	}
	return name
}
