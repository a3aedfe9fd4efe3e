package submission

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/input/function"
	"github.com/rowmill/rowmill/internal/textfmt"
)

// NewRunJob returns a job for one input of a Function. input is an object with the Function's
// inputs, or a finished prompt as a string. The job of a draft (see NewDraftCall) names no
// Function. For an invalid input NewRunJob returns an error with status 422. unknownFields
// are the unknown fields of the request, which become a warning of the job. The caller must
// call Close on the returned Submission.
func (in *Parser) NewRunJob(ctx context.Context, call *FunctionCall, input json.RawMessage, unknownFields []string) (*Submission, *CheckedJob, error) {
	sub := in.newSubmission(ctx)
	sub.inline, sub.rows.run = true, true
	for _, name := range unknownFields {
		sub.addUnknown(name)
	}
	if err := sub.addInput(call.prompt, input); err != nil {
		sub.Close()
		return nil, nil, err
	}
	job, err := sub.buildJob(call)
	if err != nil {
		sub.Close()
		return nil, nil, err
	}
	if !call.isStored() {
		name := "draft of " + call.Name
		job.labels.Name = &name
	}
	job.Spec.Dedup = false        // there is only one row
	job.Spec.TruncateRows = false // the client waits for the answer and must learn if the input is too long
	return sub, job, nil
}

// NewDraftCall returns a FunctionCall for a draft: a definition in the request that is not
// stored. field is the name of the field with the definition, and name is the Function's
// name in the path. If the definition has problems, NewDraftCall adds them to problems and
// returns nil.
func (in *Parser) NewDraftCall(problems *request.Problems, field, name string, definition json.RawMessage) (*FunctionCall, error) {
	return in.readDraft(problems, field, definition, func(f rowmill.Function, body *request.JSONObject) {
		if f.Name != name && !body.Problems.Has("name") {
			body.AddProblem("name", "is %q in the body and %q in the path; send one name", textfmt.Shorten(f.Name, 64), textfmt.Shorten(name, 64))
		}
	})
}

// readDraft returns a FunctionCall for a definition in the field of a request, or nil if the
// definition has problems. check may add further problems.
func (in *Parser) readDraft(problems *request.Problems, field string, definition json.RawMessage, check func(rowmill.Function, *request.JSONObject)) (*FunctionCall, error) {
	body, err := request.ReadObject(definition)
	if err != nil {
		return nil, rowmill.Invalid(field, "must be an object: a definition as in POST /v1/functions")
	}
	f := ReadDefinition(&body, in.Models, "")
	check(f, &body)
	if problems.AddNested(field, body.Problems); body.Problems.Len() > 0 {
		return nil, nil //nolint:nilnil // the problems say why there is no call
	}
	return newCall(f)
}

// NewRevisionCall returns a FunctionCall for one revision of an account's Function,
// published or not. It returns rowmill.ErrNotFound if there is no such revision.
func (in *Parser) NewRevisionCall(ctx context.Context, account, name string, revision int) (*FunctionCall, error) {
	f, err := in.Functions.Revision(ctx, account, name, revision)
	if err != nil {
		return nil, err
	}
	return newCall(f)
}

// addInput checks the input of a Function's run and adds it as the only row.
func (sub *Submission) addInput(prompt *function.Prompt, input json.RawMessage) error {
	var wrong request.Problems
	switch {
	case len(input) == 0:
		wrong.Add("input", "is missing; send an object with the Function's inputs, or a prompt as a string")
	case input[0] == '"':
		if text := function.FormatValue(input); len(text) > sub.MaxRow {
			wrong.Add("input", "has %d bytes; it may have at most %d, so shorten it", len(text), sub.MaxRow)
		}
	case input[0] == '{':
		row, err := function.ParseRow(input)
		if err != nil {
			return fmt.Errorf("decode an object that was checked before: %w", err)
		}
		values, missing := prompt.Values(row)
		for _, name := range missing {
			wrong.Add("input."+name, "is missing, and the Function requires it")
		}
		if size := prompt.Size(values); size > int64(sub.MaxRow) {
			wrong.Add("input", "makes a prompt of %d bytes; a prompt may have at most %d, so shorten the values", size, sub.MaxRow)
		}
		if err := sub.seen.addObject(0, input); err != nil {
			return err
		}
	default:
		wrong.Add("input", "must be an object with the Function's inputs, or a prompt as a string")
	}
	if err := wrong.ErrWithStatus(http.StatusUnprocessableEntity, "invalid_input"); err != nil {
		return err
	}
	var line bytes.Buffer
	if err := json.Compact(&line, input); err != nil {
		return fmt.Errorf("remove white space from a value that was checked before: %w", err)
	}
	return sub.rows.addJSONRow(line.Bytes())
}
