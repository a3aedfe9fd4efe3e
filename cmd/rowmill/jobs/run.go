package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/cmd/rowmill/exit"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
	"github.com/rowmill/rowmill/input"
)

// A LocalNode is a node within this process, for `rowmill run`.
type LocalNode struct {
	URL    string       // of the API
	Key    string       // an administrator's key
	Failed <-chan error // gets the error of a node that stops by itself
	Stop   func(ctx context.Context) error
}

// LocalNodeOptions holds the settings of a LocalNode that `rowmill run` has flags for.
type LocalNodeOptions struct {
	Dir      string // data directory of the node; its log is the file node.log
	Engines  []string
	Simulate bool
	Set      []string // further settings, KEY=VALUE
	Input    string   // URL of the source that has the input, and Output of the source for the results:
	Output   string   // s3://BUCKET or file:///FOLDER; empty for none
}

// defaultOutputColumn is the name of the output column of `rowmill run`: the results of all
// runs then have the same columns.
const defaultOutputColumn = "answer"

// A runCommand holds the values of the flags of `rowmill run`.
type runCommand struct {
	*jobCommands
	submitFlags
	node    LocalNodeOptions
	pattern string // the input, as a pattern of node.Input; empty if the input is in other places
	start   func(context.Context, LocalNodeOptions) (LocalNode, error)
}

// RunCommand returns `rowmill run`. start starts a node within this process.
func RunCommand(cfg Config, start func(context.Context, LocalNodeOptions) (LocalNode, error)) *cobra.Command {
	r := &runCommand{jobCommands: newJobCommands(cfg), start: start}
	cmd := &cobra.Command{
		Use:   "run FILE...|URL|-",
		Short: "Run a model over every row of files, without a service",
		Long: `Run a model over every row of a file and write the results in its order. Nothing
else needs to run except an inference server: the command starts a node within its
own process, for this run alone.

It uses the inference servers at the usual local ports: 8000 (vLLM), 8080
(llama.cpp), 11434 (Ollama), 30000 (SGLang), or those of --engine. With --simulate
the answers are made up.

Ctrl-C stops the run, and the same command continues it, also after a crash or a
restart of the machine. The folder --state has the finished rows. Delete it when
you do not need it any more. If FILE changed, the same command runs the new rows, and
reuses the answers to equal rows. If a flag changed, the run starts again. If the run
failed, the same command runs the rows that are not done.

Try a few rows first with --limit 20. The same command without --limit then runs the
other rows, and keeps the answers of the 20.

With several --model the same rows run with each model, and the result file has one
column of answers for each.

FILE, --column, --prompt and the formats work as in rowmill jobs submit. Several
files are one input: files of one format, tables with the same columns. A pattern in
quotes, such as 'day=*/*.parquet', is one input, too, and gives the prompt the column
{{day}}; ** means any folders. FILE may be s3://BUCKET/PATTERN. The credentials are
those of the programs of AWS: AWS_ACCESS_KEY_ID and so on, or ~/.aws/credentials.
AWS_ENDPOINT_URL names another S3 service.

The ending of --output is the format of the results: .parquet, .csv, .json or .jsonl.
If --output is a folder, answers/ or s3://BUCKET/answers/, it gets a Parquet file for
each file of the pattern.`,
		Example: `  rowmill run reviews.csv --prompt 'Positive or negative? {{title}}: {{body}}' --keep '*' -o answers.parquet
  rowmill run reviews.csv --prompt 'Positive or negative? {{title}}: {{body}}' -o answers.parquet --limit 20
  rowmill run docs.parquet --column body --schema card.json --engine http://gpu1:8000 -o cards.csv
  rowmill run 'reviews/day=*/*.csv' --prompt 'On {{day}}: {{body}}' --id-column id -o answers/
  rowmill run 's3://lake/reviews/**' --column body --id-column id -o s3://lake/answers/
  rowmill run reviews.csv --column body --simulate -o try.json`,
		Args: cobra.MinimumNArgs(1),
	}
	r.addRowFlags(cmd)
	flags := cmd.Flags()
	r.save.addFlags(cmd, "o")
	flags.Lookup("output").Usage = "file for the results, - for standard output, or a folder (default: NAME.results.parquet in this folder)"
	flags.Lookup("output-column").DefValue = defaultOutputColumn
	r.Output = defaultOutputColumn
	flags.StringVar(&r.node.Dir, "state", "", "folder for the state of the run (default: OUTPUT.state)")
	flags.StringArrayVar(&r.node.Engines, "engine", nil, "URL of an OpenAI-compatible server; repeatable (default: servers found at the usual local ports)")
	flags.BoolVar(&r.node.Simulate, "simulate", false, "make up the answers, without an inference server")
	flags.StringArrayVar(&r.node.Set, "set", nil, "setting of the node as KEY=VALUE, such as jobs.part_interval=1s; repeatable")
	flags.BoolVarP(&r.Term.Quiet, "quiet", "q", r.Term.Quiet, "no progress, and no messages except errors")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if flags.Changed("dedup") {
			r.Dedup = &r.dedup
		}
		if err := r.findInput(args); err != nil {
			return exit.WithCode(exit.Usage, err)
		}
		return r.run(cmd.Context(), args)
	}
	return cmd
}

func (r *runCommand) run(ctx context.Context, sources []string) (err error) {
	r.Priority, r.save.plainCSV = rowmill.Production, true
	if err := r.readFlags(); err != nil {
		return exit.WithCode(exit.Usage, err)
	}
	if err := cmp.Or(r.findOutput(), r.checkFormat()); err != nil {
		return exit.WithCode(exit.Usage, err)
	}
	name := defaultResultName(sources[0])
	if err := r.save.setPath(name); err != nil {
		return err
	}
	if err := r.checkSetOutput(); err != nil {
		return err
	}
	if r.node.Dir == "" {
		r.node.Dir = cmp.Or(strings.TrimRight(strings.TrimPrefix(r.save.path, stdout), "/"), name) + ".state"
		if isBucket(r.save.path) {
			r.node.Dir = name + ".state"
		}
	}
	state, err := r.openState(ctx, sources)
	if err != nil {
		return exit.WithCode(exit.Usage, err)
	}
	if _, err := os.Stat(r.save.path); (err == nil || isBucket(r.save.path)) && state.Written && !state.changed && state.RowChoice == r.RowChoice && !r.save.force {
		if r.save.skip {
			r.Term.Say("%s is complete; to run again, delete the folder %s", r.save.path, r.node.Dir)
		} else {
			r.Term.Say("%s is complete; --force writes it again", r.save.path)
		}
		return nil
	}
	r.save.force = r.save.force || state.Key != "" && (!state.changed || state.again) // an earlier start of the run has checked the path
	if !r.save.skip {
		if err := r.save.checkPath(); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(r.node.Dir, 0o700); err != nil {
		return exit.WithCode(exit.Usage, fmt.Errorf("--state: %w", err))
	}
	if r.node.Simulate {
		r.Term.Say("warning: the answers are simulated")
	}
	node, err := r.start(ctx, r.node)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, node.Stop(context.WithoutCancel(ctx))) }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case err := <-node.Failed:
			cancel(err)
		case <-ctx.Done():
		}
	}()
	api, err := client.New(client.Config{Server: node.URL, Key: node.Key, UserAgent: r.UserAgent})
	if err != nil {
		return err
	}
	defer api.Close()
	if err := r.finish(ctx, api, sources, state); err != nil {
		var signal exit.Signal
		if errors.As(err, &signal) {
			fmt.Fprintln(r.Term.Err, "stopping: rows in flight finish; the same command continues the run")
		}
		return err
	}
	return nil
}

// checkFormat returns an error for results that the command cannot write.
func (r *runCommand) checkFormat() error {
	ending := strings.ToLower(filepath.Ext(r.save.path))
	switch {
	case r.save.skip:
	case r.save.path == stdout:
		if r.save.want.Format == "csv" {
			return errors.New("--output -: CSV cannot go to standard output; name a file")
		}
	case r.save.want.Format == "" && ending != "" && !slices.Contains([]string{".parquet", ".csv", ".json", ".jsonl"}, ending):
		return fmt.Errorf("--output %s: the ending must be .parquet, .csv, .json or .jsonl; else choose a format with --format", r.save.path)
	}
	return nil
}

// finish begins or continues the jobs of the run, follows them, and writes their results.
func (r *runCommand) finish(ctx context.Context, api *client.Client, sources []string, state *runState) error {
	ids, err := r.findOrSubmit(ctx, api, sources, state)
	if err != nil {
		return err
	}
	for _, id := range ids {
		job, err := r.followJob(ctx, api, id)
		if err == nil {
			err = r.reportEnd(ctx, api, job)
		}
		if err != nil {
			return err
		}
	}
	if r.save.skip {
		r.Term.Say("wrote the results to %s", r.save.path)
	} else if err := r.saveResults(ctx, api, ids, &r.save); err != nil {
		return err
	}
	state.Written = true
	return state.save()
}

// findOrSubmit returns the ids of the jobs of the run, one for each model: the unfinished or succeeded
// jobs of an earlier start of the command, jobs that run the rest of them, or new jobs.
func (r *runCommand) findOrSubmit(ctx context.Context, api *client.Client, sources []string, state *runState) (ids []string, err error) {
	if state.Job == "" {
		state.changed = state.changed || state.RowChoice != r.RowChoice // the key belongs to another submission
		return r.submitRun(ctx, api, sources, state)
	}
	var jobs []client.Job
	for _, id := range state.jobs() {
		job, err := api.Job(ctx, id)
		if err != nil {
			return nil, fmt.Errorf("find the job of the earlier run in %s: %w", r.node.Dir, err)
		}
		jobs = append(jobs, job)
	}
	begin, err := r.mustBegin(state, jobs)
	if err != nil {
		return nil, err
	}
	changes := state.RowChoice != r.RowChoice
	if begin || changes {
		if jobs, err = r.endJobs(ctx, api, jobs); err != nil {
			return nil, err
		}
		begin = begin || !slices.ContainsFunc(jobs, func(job client.Job) bool { return job.RowsDone > 0 })
	}
	if begin {
		state.changed = true
		return r.submitRun(ctx, api, sources, state)
	}
	for _, job := range jobs {
		id, err := r.continueJob(ctx, api, job, changes)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	if changes {
		state.RowChoice, state.Written = r.RowChoice, false
	}
	return ids, state.setJobs(ids)
}

// mustBegin reports whether the run must begin again, although an earlier start of the command has
// created its jobs. A run of the whole input is not given up for a few rows.
func (r *runCommand) mustBegin(state *runState, jobs []client.Job) (bool, error) {
	isLost := !slices.ContainsFunc(jobs, func(job client.Job) bool { return job.Status != rowmill.StatusFailed || job.RowsDone > 0 })
	switch {
	case state.again:
		r.Term.Say("reading the list of objects again")
		return true, nil
	case state.changed:
		r.Term.Say("the input or a flag changed, so the run starts again")
		return true, nil
	case state.RowChoice == r.RowChoice:
		return isLost, nil // no row is done, so new jobs are the same as the rest of the old jobs
	case state.Limit == 0 && jobs[0].RowsDone > 0:
		return false, exit.WithCode(exit.Usage, fmt.Errorf("%s rows of the whole input are done in %s: leave out --limit, or try a few rows with another --state", terminal.FormatCount(jobs[0].RowsDone), r.node.Dir))
	case r.Limit > 0:
		r.Term.Say("--limit or --sample changed, so the run starts again")
		return true, nil
	}
	return false, nil
}

// endJobs cancels the jobs that have not ended, and returns all jobs after their end.
func (r *runCommand) endJobs(ctx context.Context, api *client.Client, jobs []client.Job) (ended []client.Job, err error) {
	for _, job := range jobs {
		if !job.Status.IsTerminal() {
			if _, _, err := api.CancelJob(ctx, job.ID); err != nil {
				return nil, fmt.Errorf("cancel the earlier run: %w", err)
			}
			if job, err = r.followJob(ctx, api, job.ID); err != nil {
				return nil, err
			}
		}
		ended = append(ended, job)
	}
	return ended, nil
}

// continueJob returns the id of the job that continues a job of an earlier start: the job itself, or a
// new job that takes over its rows and runs the others. whole means that the earlier start had
// --limit, and this one has not.
func (r *runCommand) continueJob(ctx context.Context, api *client.Client, job client.Job, whole bool) (id string, err error) {
	rest := client.Resumption{}
	switch {
	case !job.Status.IsTerminal():
		r.Term.Say("continuing the run")
		return job.ID, nil
	case whole && (job.HasOtherRows() || job.Status != rowmill.StatusSucceeded):
		rest.Rows = "rest"
	case whole || job.Status == rowmill.StatusSucceeded:
		return job.ID, nil
	}
	made, _, err := api.ResumeJob(ctx, job.ID, client.ResumeJobParams{}, rest)
	if err != nil {
		return "", fmt.Errorf("run the rest of the earlier run: %w", err)
	}
	if whole {
		r.Term.Say("%srunning the other rows: %s are done", r.nameModel(job), terminal.FormatCount(job.RowsDone-job.FailedRows))
	} else {
		r.Term.Say("%srunning the rest of the failed run: %s rows are done", r.nameModel(job), terminal.FormatCount(job.RowsDone-job.FailedRows))
	}
	return made.JobID, nil
}

// reuseEarlier makes the job reuse the answers of the earlier jobs in the same folder --state, if only the
// input has changed. So a run that starts again runs only the new rows.
func (r *runCommand) reuseEarlier(state *runState) {
	if len(r.Variants) > 0 || r.SeedPerRow {
		return
	}
	r.Name = "run"
	if r.node.Simulate {
		r.Name = "simulated run" // simulated answers never count as real answers
	}
	if state.changed && state.Written && state.Flags == state.flags && r.Limit == 0 {
		r.Reuse = &client.Reuse{From: r.Name, By: rowmill.ReuseByText}
	}
}

// submitRun submits the jobs of the run.
func (r *runCommand) submitRun(ctx context.Context, api *client.Client, sources []string, state *runState) (ids []string, err error) {
	r.reuseEarlier(state)
	if state.changed || state.Key == "" {
		*state = runState{path: state.path, Command: state.command, command: state.command, Flags: state.flags, flags: state.flags, RowChoice: r.RowChoice, Key: uuid.NewString()}
		if err := state.save(); err != nil { // first: after a crash, the same key finds the job
			return nil, err
		}
	}
	if err := r.awaitModel(ctx, api); err != nil {
		return nil, err
	}
	if err := r.chooseModel(ctx, api, &r.submitFlags); err != nil {
		return nil, err
	}
	source := sources[0]
	if len(sources) > 1 {
		source = filepath.Join(r.node.Dir, "input")
		format, err := r.combineInputs(ctx, sources, input.Options{Format: input.Format(r.Format), Column: r.Column, IDColumn: r.IDColumn}, source)
		if err != nil {
			return nil, exit.WithCode(exit.Usage, err)
		}
		defer os.Remove(source)
		r.Format = string(format)
		r.Term.Say("reading %d files as one input", len(sources))
	}
	if r.pattern != "" {
		r.URL = inputSource + ":" + r.pattern
	} else if isURL(source) {
		err = r.setURL(source)
	} else {
		var in *localInput
		var created func()
		if in, created, err = r.prepareLocalInput(ctx, api, source, &r.submitFlags); err == nil {
			defer in.Close()
			defer created()
		}
	}
	if err != nil {
		return nil, err
	}
	r.IdempotencyKey = state.Key
	if ids, _, _, err = r.send(ctx, api); err != nil {
		return nil, fmt.Errorf("submit: %w", err)
	}
	return ids, state.setJobs(ids)
}

// serverPatience is how long the command waits for the first answer of an inference server.
// kindPatience is how long it then waits until the node knows whether the server's model
// generates, reasons or embeds: the node sends a short row, and a large server may be slow.
const (
	serverPatience = 5 * time.Second
	kindPatience   = time.Minute
)

// awaitModel waits until a server answers which models it has, and their kinds are known. It
// returns an error if no server answers.
func (r *runCommand) awaitModel(ctx context.Context, api *client.Client) error {
	for began := time.Now(); ; {
		models, _, err := api.ListModels(ctx)
		if err != nil {
			return fmt.Errorf("list the models: %w", err)
		}
		served := slices.DeleteFunc(models.Data, func(m client.Model) bool { return len(m.ServedBy) == 0 })
		isKnown := !slices.ContainsFunc(served, func(m client.Model) bool { return m.Kind == "" })
		switch waited := time.Since(began); {
		case len(served) > 0 && (isKnown || waited > kindPatience):
			return nil
		case len(served) > 0 || waited < serverPatience:
		case len(r.node.Engines) > 0:
			return exit.WithCode(exit.Unreachable, fmt.Errorf("no inference server answers at %s; start it, and run the same command again", strings.Join(r.node.Engines, ", ")))
		default:
			return exit.WithCode(exit.Unreachable, errors.New("no inference server was found at the usual local ports (8000 vLLM, 8080 llama.cpp, 11434 Ollama, 30000 SGLang); start one, name one with --engine URL, or make up the answers with --simulate"))
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// reportEnd prints the numbers of a succeeded job, with the reasons of failed rows. For
// another job it returns an error.
func (r *runCommand) reportEnd(ctx context.Context, api *client.Client, job client.Job) error {
	if job.Status != rowmill.StatusSucceeded {
		reason := describeFailure(job)
		if job.RowsDone > 0 {
			reason += fmt.Sprintf("\n%s rows are done; the same command runs the others", terminal.FormatCount(job.RowsDone-job.FailedRows))
		}
		return exit.WithCode(exit.JobFailed, fmt.Errorf("the run failed: %s%s", reason, r.describeFailedRows(ctx, api, job)))
	}
	var took time.Duration
	if job.Started != nil && job.Completed != nil {
		took = job.Completed.Sub(*job.Started)
	}
	r.Term.Say("%s%s rows in %s, %s tokens in, %s out", r.nameModel(job), terminal.FormatCount(terminal.Deref(job.NumRows)), terminal.FormatDuration(took),
		terminal.FormatCount(terminal.Deref(job.InputTokens)), terminal.FormatCount(terminal.Deref(job.OutputTokens)))
	if r.Reuse != nil {
		r.Term.Say("%s of these rows have the answers of the earlier run", terminal.FormatCount(job.RowsTakenOver))
	}
	if job.FailedRows > 0 {
		r.Term.Say("warning: %s%s rows failed and have no output%s", r.nameModel(job), terminal.FormatCount(job.FailedRows), r.describeFailedRows(ctx, api, job))
	}
	if job.HasOtherRows() {
		r.Term.Say("the input has %s rows; the same command without --limit runs the others", terminal.FormatCount(*job.InputRows))
	}
	r.printCuts(job)
	return nil
}

// describeFailedRows returns a line for each of the first failed rows of a job; empty if
// there are none.
func (r *runCommand) describeFailedRows(ctx context.Context, api *client.Client, job client.Job) string {
	if job.FailedRows == 0 {
		return ""
	}
	failed, _, err := api.ListErrors(ctx, job.ID, client.ListErrorsParams{Limit: 3})
	if err != nil {
		return ""
	}
	var text strings.Builder
	for _, row := range failed.Errors {
		fmt.Fprintf(&text, "\n  row %d: %s", row.Row, row.Message)
	}
	return text.String()
}
