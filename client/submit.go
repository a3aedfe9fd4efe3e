package client

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"unicode/utf8"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/textfmt"
)

// Reuse names finished jobs from which a job takes over the answers to equal rows.
type Reuse struct {
	From string          `json:"from"`         // id of a job, or name of jobs
	By   rowmill.ReuseBy `json:"by,omitempty"` // part of the rows that must be equal; empty: the text
}

// Submission is a job to create. Set exactly one of URL and Rows. Empty fields are not
// sent; the service then uses its defaults.
type Submission struct {
	URL      string                   `json:"inputs,omitempty"`         // URL of the file with the rows; or "file:" and the id of an uploaded file; or "job:" and the id of a job, to read its stored input; or files of a source of the service, such as "lake:reviews/*.csv"
	Rows     iter.Seq2[string, error] `json:"-"`                        // inline rows in UTF-8; they are read once, while they are sent
	Column   string                   `json:"column_name,omitempty"`    // name of the column with the rows; only with URL
	IDColumn string                   `json:"id_column_name,omitempty"` // name of the column with the row ids; only with URL
	Output   string                   `json:"output_name,omitempty"`    // name of the output column in the results; empty: the job's id
	Format   string                   `json:"input_format,omitempty"`   // only with URL: csv, tsv, parquet, jsonl or lines

	Where string `json:"where,omitempty"` // only for inputs of a job: which of its answers to read, such as "answer.score < 4"

	Sink  string `json:"output,omitempty"` // folder of a source for the results: NAME:FOLDER/
	Reuse *Reuse `json:"reuse,omitempty"`  // take over equal rows of finished jobs; nil: run all rows

	JobDeadline

	Keep []string `json:"keep_columns,omitempty"` // columns of a file that results can repeat; rowmill.KeepAll: all
	rowmill.RowChoice

	Function json.RawMessage  `json:"function,omitempty"` // definition of a Function for this job alone: its model, prompt and inputs replace the fields below
	Model    string           `json:"model,omitempty"`
	Prompt   string           `json:"prompt,omitempty"` // makes the prompt of each row of a file: {{column}} is replaced by the value of the column
	System   string           `json:"system_prompt,omitempty"`
	Schema   json.RawMessage  `json:"json_schema,omitempty"`
	Sampling map[string]any   `json:"sampling_params,omitempty"`
	Priority rowmill.Priority `json:"job_priority"`
	RowRules
	Estimate    bool   `json:"cost_estimate,omitempty"`
	Name        string `json:"name,omitempty"`
	Description string `json:"description,omitempty"`

	Variants []Variant `json:"variants,omitempty"` // only for SubmitSet

	// IdempotencyKey makes it safe to repeat a submission: with an equal key and an equal
	// submission the service creates no second job.
	IdempotencyKey string `json:"-"`
}

// JobDeadline says when a job must end.
type JobDeadline struct {
	Deadline string `json:"deadline,omitempty"` // time in RFC 3339; the answer then takes up to 90 s, and has a forecast
	Admit    string `json:"admit,omitempty"`    // only with Deadline: with "only_if_met" the service refuses the job if its forecast is later
}

// RowRules say how the rows of a job run.
type RowRules struct {
	Messages   bool  `json:"messages,omitempty"` // rows are chats: JSON lists of messages with role and content
	SeedPerRow bool  `json:"random_seed_per_input,omitempty"`
	NoTruncate bool  `json:"-"`                // do not cut rows that are too long: such a row fails the job; sent as truncate_rows: false
	Dedup      *bool `json:"dedup,omitempty"`  // run equal rows once; nil: the service's default
	Repair     bool  `json:"repair,omitempty"` // with Schema: accept an answer that has other text around the JSON
}

// A Variant has the fields in which a job of a set differs from the submission. Empty fields are the
// same as in the submission.
type Variant struct {
	Model    string          `json:"model,omitempty"`
	Output   string          `json:"output_name,omitempty"`
	Prompt   string          `json:"prompt,omitempty"`
	System   string          `json:"system_prompt,omitempty"`
	Schema   json.RawMessage `json:"json_schema,omitempty"`
	Sampling map[string]any  `json:"sampling_params,omitempty"`
	Name     string          `json:"name,omitempty"`
}

// RowsOf returns rows that are in memory in the form of Submission.Rows.
func RowsOf(rows ...string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for _, row := range rows {
			if !yield(row, nil) {
				return
			}
		}
	}
}

// marshalHead returns the JSON of a submission without the inline rows.
func (s Submission) marshalHead() ([]byte, error) {
	head := struct {
		Submission
		Truncate *bool `json:"truncate_rows,omitempty"`
	}{Submission: s}
	if s.NoTruncate {
		head.Truncate = new(false)
	}
	if s.Rows != nil {
		head.URL = ""
	}
	return json.Marshal(head)
}

// Submit creates a job. It reads the rows while it sends them.
func (c *Client) Submit(ctx context.Context, s Submission) (made Submitted, err error) {
	if err := c.sendSubmission(ctx, "/v1/batch-inference", s, &made); err != nil {
		return Submitted{}, err
	}
	if made.JobID == "" {
		return Submitted{}, &UnreachableError{Server: c.base, Err: fmt.Errorf("the answer has no job id")}
	}
	return made, nil
}

// SubmittedSet is the answer to a submission of a set.
type SubmittedSet struct {
	Jobs     []string `json:"results"` // ids of the jobs, in the order of the variants
	Warnings []string `json:"warnings"`
}

// SubmitSet creates two to four jobs on one input, one for each element of Variants. It reads the rows
// while it sends them.
func (c *Client) SubmitSet(ctx context.Context, s Submission) (made SubmittedSet, err error) {
	if err := c.sendSubmission(ctx, "/v1/sets", s, &made); err != nil {
		return SubmittedSet{}, err
	}
	if len(made.Jobs) != len(s.Variants) {
		return SubmittedSet{}, &UnreachableError{Server: c.base, Err: fmt.Errorf("the answer has %d job ids, want %d", len(made.Jobs), len(s.Variants))}
	}
	return made, nil
}

// sendSubmission posts a submission to path and decodes the answer into out.
func (c *Client) sendSubmission(ctx context.Context, path string, s Submission, out any) error {
	head, err := s.marshalHead()
	if err != nil {
		return fmt.Errorf("encode the submission: %w", err)
	}
	body, pipe := io.Pipe()
	written := make(chan struct{})
	go func() {
		defer close(written)
		pipe.CloseWithError(writeBody(pipe, head, s.Rows))
	}()
	defer func() { _ = body.Close(); <-written }()

	req, err := c.newRequest(ctx, http.MethodPost, path, nil, body)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Expect", "100-continue")
	if s.IdempotencyKey != "" {
		req.Header.Set("Idempotency-Key", s.IdempotencyKey)
	}
	resp, err := c.sendRequest(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return c.decodeAnswer(ctx, resp, out)
}

// writeBody writes the body of a submission: head, with the rows as its last field. If
// writeBody returns an error, the request ends with this error.
func writeBody(w io.Writer, head []byte, rows iter.Seq2[string, error]) error {
	if rows == nil {
		_, err := w.Write(head)
		return err
	}
	out := bufio.NewWriterSize(w, 256<<10)
	out.Write(head[:len(head)-1]) // without the closing brace; Flush returns the first error of out
	out.WriteString(`,"inputs":[`)
	var quoted []byte
	n := 0
	for row, err := range rows {
		if err != nil {
			return &RowsError{err}
		}
		if !utf8.ValidString(row) {
			return &RowsError{fmt.Errorf("row %d is not valid UTF-8; convert the input to UTF-8", n)}
		}
		quoted = quoted[:0]
		if n > 0 {
			quoted = append(quoted, ',')
		}
		quoted = textfmt.AppendString(quoted, []byte(row))
		if _, err := out.Write(quoted); err != nil {
			return err
		}
		n++
	}
	out.WriteString("]}")
	return out.Flush()
}
