package submission

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/rowmill/rowmill/function"
	"github.com/rowmill/rowmill/http/request"
)

// Run makes a job of one input of a Function: an object with its inputs, or a
// prompt that is rendered already. An input that breaks its rules is a 422. Of
// other fields of the request the job's warnings tell that they were ignored.
// Close ends what Run returns.
func (in *Intake) Run(ctx context.Context, call *Call, input json.RawMessage, others []string) (*Submission, *Job, error) {
	sub := in.submission(ctx)
	sub.inline, sub.rows.run = true, true
	for _, name := range others {
		sub.ignore(name)
	}
	if err := sub.addInput(call.prompt, input); err != nil {
		sub.Close()
		return nil, nil, err
	}
	job, err := sub.check(call)
	if err != nil {
		sub.Close()
		return nil, nil, err
	}
	job.Spec.TruncateRows = false // whoever waits for one answer is told that the input is too long
	return sub, job, nil
}

// addInput checks the input of a run and makes it the only row.
func (sub *Submission) addInput(prompt *function.Prompt, input json.RawMessage) error {
	var wrong request.Problems
	switch {
	case len(input) == 0:
		wrong.Add("input", "is missing; send an object with the Function's inputs, or a prompt as a string")
	case input[0] == '"':
		if text := function.Text(input); len(text) > sub.MaxRow {
			wrong.Add("input", "has %d bytes, more than %d; shorten it", len(text), sub.MaxRow)
		}
	case input[0] == '{':
		row, err := function.ParseRow(input)
		if err != nil {
			return fmt.Errorf("decode a checked object: %w", err)
		}
		values, missing := prompt.Values(row)
		for _, name := range missing {
			wrong.Add("input."+name, "is missing, and the Function requires it")
		}
		if size := prompt.Size(values); size > int64(sub.MaxRow) {
			wrong.Add("input", "makes a prompt of %d bytes, more than %d; shorten its values", size, sub.MaxRow)
		}
		if err := sub.seen.sawObject(0, input); err != nil {
			return err
		}
	default:
		wrong.Add("input", "must be an object with the Function's inputs, or a prompt as a string")
	}
	if err := wrong.ErrAs(http.StatusUnprocessableEntity, "invalid_input"); err != nil {
		return err
	}
	var line bytes.Buffer
	if err := json.Compact(&line, input); err != nil {
		return fmt.Errorf("compact a checked value: %w", err)
	}
	return sub.rows.addLine(line.Bytes())
}
