// Package submission turns what a client sends into a job: bytes into a
// specification, rows and a list of all that is wrong. It owns every rule of
// the table of fields, for submissions, for runs of a Function and, since they
// obey the same rules, for definitions of Functions. It refuses to know HTTP,
// who may submit, what an account may spend, and how records are stored.
//
//	body ──► Read ──► Submission ──► Check ──► Job ──► Keep ──► Record
//	            rows │ while it arrives                  ▲
//	                 └──► memory, or an object ──────────┘
package submission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/engine/offer"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/input/function"
	"github.com/rowmill/rowmill/internal/spelling"
	"github.com/rowmill/rowmill/store"
)

// Intake takes submissions.
type Intake struct {
	Models    *offer.Models
	Functions function.Library
	Bucket    blob.Bucket // takes rows that are too many for a record, and has files
	Files     Files
	Now       func() time.Time
	MaxRow    int  // bytes of one row, decoded
	MaxInline int  // bytes of rows, as JSON, that ride in the record
	Dedup     bool // equal rows run once where a submission says nothing
}

// Files are those that accounts have uploaded.
type Files interface {
	// GetFile returns a file, expired or not, or rowmill.ErrNotFound.
	GetFile(ctx context.Context, id string) (store.File, error)
}

// Waiting is what the record of a job says that no node has taken yet.
const Waiting = "Waiting for a place on a node."

// A Submission is a decoded body. Close ends it.
type Submission struct {
	*Intake
	jobID    string
	problems request.Problems
	notNow   error // what is wrong with it may pass, and nothing else is

	fields  map[string]json.RawMessage // known fields but inputs; nulls are left out
	unknown []string                   // names of unknown fields, at most maxReported
	more    int                        // further ones

	schemaField string // where the job's JSON Schema stands

	url    string   // inputs is a string
	file   string   // inputs is a string that names this file
	inline bool     // inputs is an array
	seen   rowsSeen // what its rows are like
	rows   *spool   // where they are
}

func (in *Intake) submission(ctx context.Context) *Submission {
	id := rowmill.NewJobID()
	return &Submission{
		Intake: in, jobID: id, fields: map[string]json.RawMessage{},
		rows: &spool{ctx: ctx, bucket: in.Bucket, job: id, maxRow: in.MaxRow, maxInline: in.MaxInline},
	}
}

// Read decodes a body with its fields in any order, keeping rows as they
// come. Broken rules of single fields are told by Check; an error means that
// the body could not be read on: it is not JSON, a known field stands in it
// twice, or a row could not be stored.
func (in *Intake) Read(ctx context.Context, body io.Reader) (*Submission, error) {
	sub := in.submission(ctx)
	text := newScanner(body)
	defer text.free()
	if err := sub.decode(text); err != nil {
		sub.Close()
		return nil, err
	}
	return sub, nil
}

// Close removes what was written of the rows and not kept.
func (sub *Submission) Close() { sub.rows.abort() }

// Check looks up the Function that the submission names, checks every rule and
// returns the job, or all that is wrong as a *rowmill.InvalidError.
func (sub *Submission) Check(ctx context.Context, account string) (*Job, error) {
	var model string
	if wrong := json.Unmarshal(sub.fields[fieldModel], &model); wrong != nil {
		model = "" // the default model, or a problem that validate names
	}
	call, err := sub.Call(ctx, account, model)
	if err != nil {
		return nil, err
	}
	file, err := sub.uploaded(ctx, account)
	if err != nil {
		return nil, err
	}
	job, err := sub.check(call)
	if err == nil {
		job.file, job.Spec.File, job.Spec.FileName = file, file.ID, file.Name
	}
	return job, err
}

// uploaded is the file that the submission names, which must be one of the
// account's.
func (sub *Submission) uploaded(ctx context.Context, account string) (store.File, error) {
	if sub.file == "" {
		return store.File{}, nil
	}
	f, err := sub.Files.GetFile(ctx, sub.file)
	switch {
	case errors.Is(err, rowmill.ErrNotFound), err == nil && (f.Account != account || f.Expires != nil && !sub.Now().Before(*f.Expires)):
		sub.noFile()
	case err != nil:
		return f, fmt.Errorf("look up a file: %w", err)
	}
	return f, nil
}

func (sub *Submission) noFile() {
	sub.problems.Add(fieldInputs, "names the file %q, which there is not; upload it with POST /v1/files, and send file: and its id", spelling.Shorten(sub.file, 64))
}

func (sub *Submission) check(call *Call) (*Job, error) {
	job := &Job{ID: sub.jobID, sub: sub, call: call}
	sub.validate(job)
	if err := sub.problems.Err(); err != nil {
		return nil, err
	}
	if sub.notNow != nil {
		return nil, sub.notNow
	}
	return job, nil
}

// A Job is a submission that keeps all rules.
type Job struct {
	ID   string
	Spec rowmill.Spec // without rows, account and quotas

	sub         *Submission
	call        *Call      // nil where a standalone model runs
	file        store.File // what inputs names
	name        *string
	description *string
	warnings    []string
}

func (job *Job) warn(text string) { job.warnings = append(job.warnings, text) }

// Keep makes inline rows durable and adds them to the job. A row too long is a
// *rowmill.InvalidError; those that make prompts of an object's rows are found
// out when the object is read. A file is copied, so that it may be deleted before
// the job has read it.
func (job *Job) Keep() (err error) {
	if job.file.ID != "" {
		job.Spec.Spooled, err = job.sub.rows.copied(job.file.Key)
		if errors.Is(err, rowmill.ErrNotFound) { // deleted just now
			job.sub.noFile()
			return job.sub.problems.Err()
		}
		return err
	}
	if !job.sub.inline {
		return nil
	}
	var prompt *function.Prompt
	if job.call != nil {
		prompt = job.call.prompt
	}
	job.Spec.Inline, job.Spec.Spooled, err = job.sub.rows.commit(prompt)
	if job.Spec.Spooled == "" || job.sub.seen.objects == 0 {
		job.Spec.Function = nil // every row is a prompt already
	}
	return err
}

// Record is the pending job, created now.
func (job *Job) Record(now time.Time) store.Record {
	spec := job.Spec
	made := rowmill.Job{
		ID: job.ID, Status: rowmill.StatusPending, RunType: rowmill.RunFull,
		Model: spec.Model.ID, Priority: spec.Priority,
		Name: job.name, Description: job.description,
		Schema: spec.Schema, Sampling: spec.Sampling,
		Created:  now.UTC().Truncate(time.Microsecond),
		Warnings: job.warnings, Message: Waiting,
	}
	if job.sub.inline {
		rows := job.sub.rows.count
		made.NumRows = &rows
	}
	if made.Warnings == nil {
		made.Warnings = []string{}
	}
	if spec.Estimate {
		made.RunType = rowmill.RunEstimate
	}
	if spec.System != "" {
		made.System = &spec.System
	}
	if f := job.call; f != nil && f.stored() {
		made.Model, made.Function = f.Name, &rowmill.FunctionRef{Name: f.Name, Revision: f.Revision, Model: f.Model}
	}
	return store.Record{SchemaVersion: store.SchemaVersion, Job: made, Spec: spec}
}

// A Call is what a request runs of a Function: its published revision, or the one
// that it asks for, or a definition that it brings.
type Call struct {
	rowmill.Function
	prompt *function.Prompt
}

// Call returns the Function of the account that model names; nil where it names a
// model, or nothing.
func (in *Intake) Call(ctx context.Context, account, model string) (*Call, error) {
	if in.Models.Known(model) {
		return nil, nil
	}
	f, err := in.Functions.Published(ctx, account, model)
	if errors.Is(err, rowmill.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return newCall(f)
}

// newCall is a call of a definition that was checked.
func newCall(f rowmill.Function) (*Call, error) {
	prompt, err := function.NewPrompt(rowmill.FunctionRun{Inputs: f.Inputs, Prompt: f.Prompt})
	if err != nil {
		return nil, err
	}
	return &Call{f, prompt}, nil
}

// stored reports whether the call is of a revision, and not of a draft that is
// stored nowhere.
func (f *Call) stored() bool { return f.Function.Revision > 0 }

// sampling lays a caller's parameters over those of the Function. A null is
// absent.
func (f *Call) sampling(given map[string]any) map[string]any {
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
