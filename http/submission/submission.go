// Package submission turns the body of a request into a job: a specification and rows, or a
// list of all problems. It has all rules for the fields of submissions and of runs of a
// Function. Definitions of Functions have the same rules, so the package reads them too.
// The package does not know HTTP, permissions, quotas, or how records are stored.
//
//	body ──► Read ──► Submission ──► Check ──► CheckedJob ──► StoreRows ──► Record
//	            rows │ while it arrives                         ▲
//	                 └──► memory, or an object ─────────────────┘
package submission

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/engine/served"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/input"
	"github.com/rowmill/rowmill/input/function"
	"github.com/rowmill/rowmill/input/sources"
	"github.com/rowmill/rowmill/internal/textfmt"
	"github.com/rowmill/rowmill/store"
)

// Parser reads and checks submissions.
type Parser struct {
	Models    *served.Models
	Functions function.Library
	Bucket    blob.Bucket // has the rows that are too large for a record, and the uploaded files
	Files     FileFinder
	Jobs      JobFinder
	Sources   *sources.Sources // nil if the node has none
	Now       func() time.Time
	MaxRow    int  // limit of a decoded row, in bytes
	MaxInline int  // limit of the rows in the record, in bytes of JSON
	Dedup     bool // value of dedup for submissions that do not set it: true means that equal rows run once
}

// FileFinder reads the records of uploaded files.
type FileFinder interface {
	// GetFile returns the record of a file, even if the file has expired, or
	// rowmill.ErrNotFound.
	GetFile(ctx context.Context, id string) (store.File, error)
}

// JobFinder reads the records of jobs.
type JobFinder interface {
	// Get returns the record of a job, or rowmill.ErrNotFound.
	Get(ctx context.Context, id string) (store.Record, error)
	// List returns a page of an account's jobs, newest first, see store.Jobs.
	List(ctx context.Context, account string, limit int, cursor string) (jobs []*rowmill.Job, next string, err error)
}

// A Submission is a decoded request body with its stored rows. The caller must call
// Close.
type Submission struct {
	*Parser
	jobID      string
	problems   request.Problems
	retryLater error // set if the request may succeed later, for example when the state of the model is known

	fields  map[string]json.RawMessage // known fields except inputs, without nulls
	unknown []string                   // names of unknown fields, at most maxReported
	more    int                        // number of further unknown fields

	schemaField string // name of the field that has the job's JSON Schema

	url    string    // the URL in inputs; empty if there is none
	file   string    // the file id in inputs; empty if there is none
	files  string    // the source and the pattern in inputs; empty if there are none
	base   string    // the folder of all these files
	inline bool      // true if inputs is an array of rows
	seen   rowFacts  // facts about the rows
	rows   *rowSpool // storage of the rows

	fromJob string       // the job id in inputs; empty if there is none
	source  store.Record // the record of this job; empty if it cannot be used
	inSet   bool         // true if source is the first job of a set, and this is another job of the set
	ofSet   bool         // true for every job of a set
	account string       // account of the job
}

// newSubmission returns an empty submission with a new job id.
func (in *Parser) newSubmission(ctx context.Context) *Submission {
	id := rowmill.NewJobID()
	return &Submission{
		Parser: in, jobID: id, fields: map[string]json.RawMessage{},
		rows: &rowSpool{ctx: ctx, bucket: in.Bucket, job: id, maxRow: in.MaxRow, maxInline: in.MaxInline},
	}
}

// Read decodes a body with fields in any order and stores the rows while they arrive. It
// returns an error if the body is not JSON, if a known field occurs twice, or if a row
// cannot be stored. Check reports the broken rules of fields.
func (in *Parser) Read(ctx context.Context, body io.Reader) (*Submission, error) {
	sub := in.newSubmission(ctx)
	text := newScanner(body)
	defer text.free()
	if err := sub.decode(text); err != nil {
		sub.Close()
		return nil, err
	}
	return sub, nil
}

// Close removes the stored rows unless a job uses them.
func (sub *Submission) Close() { sub.rows.abort() }

// Check looks up the named Function and checks every rule. It returns the job, or all
// problems as a *rowmill.InvalidError.
func (sub *Submission) Check(ctx context.Context, account string) (*CheckedJob, error) {
	call, err := sub.readCall(ctx, account)
	if err != nil {
		return nil, err
	}
	sub.account = account
	sub.findSourceFiles(account)
	file, err := sub.findFile(ctx, account)
	if err != nil {
		return nil, err
	}
	if err := sub.findSource(ctx, account); err != nil {
		return nil, err
	}
	job, err := sub.buildJob(call)
	if err == nil {
		job.file, job.Spec.File, job.Spec.FileName = file, file.ID, file.Name
	}
	if err == nil && job.Spec.Reuse != nil {
		err = job.findReusedJobs(ctx, account)
	}
	return job, err
}

// readCall returns the Function that the submission names or defines, or nil.
func (sub *Submission) readCall(ctx context.Context, account string) (*FunctionCall, error) {
	if definition, given := sub.fields[fieldFunction]; given {
		call, err := sub.readDraft(&sub.problems, fieldFunction, definition, func(rowmill.Function, *request.JSONObject) {})
		if err == nil && call == nil {
			err = sub.problems.Err()
		}
		return call, err
	}
	var model string
	_ = json.Unmarshal(sub.fields[fieldModel], &model) // after an error, findModel takes the default or adds a problem
	return sub.FindCall(ctx, account, model)
}

// findFile returns the uploaded file that the submission names. If the file does not
// exist, has expired or belongs to another account, findFile adds a problem.
func (sub *Submission) findFile(ctx context.Context, account string) (store.File, error) {
	if sub.file == "" {
		return store.File{}, nil
	}
	f, err := sub.Files.GetFile(ctx, sub.file)
	switch {
	case errors.Is(err, rowmill.ErrNotFound), err == nil && (f.Account != account || f.Expires != nil && !sub.Now().Before(*f.Expires)):
		sub.addFileNotFound()
	case err != nil:
		return f, fmt.Errorf("look up a file: %w", err)
	}
	return f, nil
}

// addFileNotFound adds the problem that the named file does not exist.
func (sub *Submission) addFileNotFound() {
	sub.problems.Add(fieldInputs, "names the file %q, which does not exist; upload it with POST /v1/files, and send file:ID", textfmt.Shorten(sub.file, 64))
}

// buildJob checks every rule and returns the job, or an error with all problems. call is
// the Function to run, or nil.
func (sub *Submission) buildJob(call *FunctionCall) (*CheckedJob, error) {
	job := &CheckedJob{ID: sub.jobID, sub: sub, call: call}
	sub.validate(job)
	if err := sub.problems.Err(); err != nil {
		return nil, err
	}
	if sub.retryLater != nil {
		return nil, sub.retryLater
	}
	return job, nil
}

// A CheckedJob is a submission that passed all checks. Record turns it into the record of a
// new job.
type CheckedJob struct {
	ID   string
	Spec rowmill.Spec // without rows, account and quotas

	sub      *Submission
	call     *FunctionCall    // nil for a model without a Function
	prompt   *function.Prompt // makes prompts from rows with fields; nil if rows are prompts
	file     store.File       // the file that inputs names
	labels   rowmill.Labels
	set      []string // ids of all jobs of the set; nil if the job is in no set
	warnings []string

	Deadline  *time.Time    // time by which the client wants the job to end; nil for none
	OnlyIfMet bool          // create the job only if the forecast meets the deadline
	estimate  *store.Record // the estimate that made the forecast; nil before it, and without a deadline
	forecast  *rowmill.Forecast
}

func (job *CheckedJob) warn(text string) { job.warnings = append(job.warnings, text) }

// StoreRows stores the inline rows and adds them to the job. It copies an uploaded file, so that
// clients may delete the file before the job reads it. If an inline row is too long, the
// error is a *rowmill.InvalidError. Rows in an object of the bucket are checked when the
// job reads them.
func (job *CheckedJob) StoreRows() (err error) {
	if job.estimate != nil {
		return job.takeRowsOfEstimate()
	}
	if job.file.ID != "" {
		job.Spec.Spooled, err = job.sub.rows.copyObject(job.file.Key)
		if errors.Is(err, rowmill.ErrNotFound) { // the file was deleted after findFile
			job.sub.addFileNotFound()
			return job.sub.problems.Err()
		}
		return err
	}
	if !job.sub.inline {
		return nil
	}
	job.sub.rows.objectOnly = job.Spec.Limit > 0 || job.Spec.Estimate || job.Spec.Reuse != nil || job.Spec.Messages || len(job.Spec.Keep) > 0 || job.set != nil // a later job can run the other rows, and ingest and the jobs of a set read the columns
	job.Spec.Inline, job.Spec.Spooled, err = job.sub.rows.finishRows(job.prompt)
	if job.Spec.Spooled == "" || job.sub.seen.objects == 0 {
		job.Spec.Function = nil // every row is a finished prompt
	}
	return err
}

// NewRecord returns the record of a new job with a specification. The job's status is
// pending.
func NewRecord(id string, spec rowmill.Spec, now time.Time) store.Record {
	return store.Record{SchemaVersion: store.SchemaVersion, Spec: spec, Job: rowmill.Job{
		ID: id, Status: rowmill.StatusPending, RunType: rowmill.RunFull, Model: spec.Model.ID, Priority: spec.Priority, RowChoice: spec.RowChoice, InputColumns: rowmill.InputColumns{Column: spec.Column, IDColumn: spec.IDColumn, Keep: spec.Keep},
		Instructions: rowmill.Instructions{Schema: spec.Schema, Sampling: spec.Sampling}, JobTimes: rowmill.JobTimes{Created: now.UTC().Truncate(time.Microsecond)}, Warnings: []string{}, Message: "Waiting for a place on a node.",
	}}
}

// ToRecord returns the record of the job. The job's status is pending.
func (job *CheckedJob) ToRecord(now time.Time) store.Record {
	spec, record := job.Spec, NewRecord(job.ID, job.Spec, now)
	made := &record.Job
	made.Labels, made.Set, made.Reuse = job.labels, job.set, spec.Reuse
	made.Input, made.InputFile = cmp.Or(spec.Source, spec.FileName, input.DescribeURL(spec.URL)), spec.File
	if spec.Sink != nil {
		made.Output = spec.Sink.Folder
	}
	if spec.FromJob != "" {
		made.InputOf = &spec.FromJob
	}
	if spec.FromAnswers {
		made.AnswersOf, made.Where = &spec.FromJob, spec.Where
	}
	if !spec.TruncateRows {
		made.Truncate = &spec.TruncateRows
	}
	made.Warnings = append(made.Warnings, job.warnings...)
	if job.sub.inline {
		rows := job.sub.rows.count
		made.NumRows = &rows
		if spec.Limit > 0 {
			made.NumRows, made.InputRows = new(min(rows, spec.Limit)), &rows
		}
	}
	if spec.Estimate {
		made.RunType = rowmill.RunEstimate
	}
	if spec.System != "" {
		made.System = &spec.System
	}
	if spec.Function != nil && (job.call == nil || !job.call.isStored()) {
		made.Prompt = &spec.Function.Prompt
	}
	if f := job.call; f != nil && f.isStored() {
		made.Model, made.Function = f.Name, &rowmill.FunctionRef{Name: f.Name, Revision: f.Revision, Model: f.Model}
	}
	if made.Deadline, made.Forecast = job.Deadline, job.forecast; job.continuesEstimate() {
		ContinueJob(&record.Spec, rowmill.Continuation{Job: job.estimate.Job.ID, Failed: true, Rest: true})
		made.Continues = &job.estimate.Job.ID
	}
	return record
}

// ContinueJob makes a specification take the input and the committed rows of another job.
func ContinueJob(spec *rowmill.Spec, c rowmill.Continuation) {
	spec.URL, spec.Inline, spec.Spooled, spec.File, spec.FileName, spec.FromJob, spec.Source = "", nil, "", "", "", "", ""
	spec.Continue = &c
}

// A FunctionCall is the Function that a request runs: the published revision, a requested
// revision, or a definition in the request.
type FunctionCall struct {
	rowmill.Function
	prompt *function.Prompt
}

// FindCall returns a FunctionCall for the account's published Function with the name model.
// It returns nil if model is the name of a model, or if there is no such Function.
func (in *Parser) FindCall(ctx context.Context, account, model string) (*FunctionCall, error) {
	if in.Models.HasModel(model) {
		return nil, nil
	}
	f, err := in.Functions.GetPublished(ctx, account, model)
	if errors.Is(err, rowmill.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return newCall(f)
}

// newCall returns a FunctionCall for a definition that has no problems.
func newCall(f rowmill.Function) (*FunctionCall, error) {
	prompt, err := function.NewPrompt(rowmill.FunctionPrompt{Inputs: f.Inputs, Prompt: f.Prompt})
	if err != nil {
		return nil, err
	}
	return &FunctionCall{f, prompt}, nil
}

// isStored reports whether the FunctionCall runs a stored revision and not a draft.
func (f *FunctionCall) isStored() bool { return f.Function.Revision > 0 }

// mergeSampling returns the Function's sampling parameters together with given, the
// client's. For a name in both, the client's value wins. A null value counts as absent.
func (f *FunctionCall) mergeSampling(given map[string]any) map[string]any {
	merged := map[string]any{}
	for _, params := range []map[string]any{f.Sampling, given} {
		for name, value := range params {
			if value != nil {
				merged[name] = value
			}
		}
	}
	return merged
}
