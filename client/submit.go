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
	"github.com/rowmill/rowmill/spelling"
)

// Submission is a job to create. Exactly one of URL and Rows is set. What is
// empty is not sent, and the service's default holds.
type Submission struct {
	URL      string                   // where the service finds a file of rows; or "file:" and the id of an uploaded file
	Rows     iter.Seq2[string, error] // inline rows, read once while they are sent; UTF-8
	Column   string                   // URL only
	IDColumn string                   // URL only
	Format   string                   // URL only: csv, tsv, parquet, jsonl or lines

	Model       string
	System      string
	Schema      json.RawMessage
	Sampling    map[string]any
	Priority    rowmill.Priority
	SeedPerRow  bool
	NoTruncate  bool
	Dedup       *bool // equal rows run once; nil for what the service does by default
	Repair      bool  // takes JSON out of the words around it, with a Schema
	Estimate    bool
	Name        string
	Description string

	// IdempotencyKey makes repeating the submission harmless.
	IdempotencyKey string
}

// Submitted is the service's answer.
type Submitted struct {
	JobID    string
	Message  string
	Warnings []string
}

// head is every field of a submission but inline rows. A pointer or an
// omitted field tells "not set" from a zero.
func (s Submission) head() map[string]any {
	head := map[string]any{"job_priority": s.Priority}
	for name, value := range map[string]string{
		"model": s.Model, "system_prompt": s.System, "name": s.Name, "description": s.Description,
		"column_name": s.Column, "id_column_name": s.IDColumn, "input_format": s.Format,
	} {
		if value != "" {
			head[name] = value
		}
	}
	if len(s.Schema) > 0 {
		head["json_schema"] = s.Schema
	}
	if len(s.Sampling) > 0 {
		head["sampling_params"] = s.Sampling
	}
	if s.SeedPerRow {
		head["random_seed_per_input"] = true
	}
	if s.Dedup != nil {
		head["dedup"] = *s.Dedup
	}
	if s.NoTruncate {
		head["truncate_rows"] = false
	}
	if s.Repair {
		head["repair"] = true
	}
	if s.Estimate {
		head["cost_estimate"] = true
	}
	if s.Rows == nil {
		head["inputs"] = s.URL
	}
	return head
}

// Submit creates a job. Rows are sent as they are read.
func (c *Client) Submit(ctx context.Context, s Submission) (Submitted, error) {
	head, err := json.Marshal(s.head())
	if err != nil {
		return Submitted{}, fmt.Errorf("encode the submission: %w", err)
	}
	body, pipe := io.Pipe()
	written := make(chan struct{})
	go func() {
		defer close(written)
		pipe.CloseWithError(writeBody(pipe, head, s.Rows))
	}()
	defer func() { _ = body.Close(); <-written }()

	req, err := c.request(ctx, http.MethodPost, "/v1/batch-inference", nil, body)
	if err != nil {
		return Submitted{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Expect", "100-continue")
	if s.IdempotencyKey != "" {
		req.Header.Set("Idempotency-Key", s.IdempotencyKey)
	}
	resp, err := c.do(req)
	if err != nil {
		return Submitted{}, err
	}
	defer resp.Body.Close()
	var answer struct {
		Results  string `json:"results"`
		Metadata struct {
			Message string `json:"message"`
		} `json:"metadata"`
		Warnings []string `json:"warnings"`
	}
	if err := c.decode(ctx, resp, &answer); err != nil {
		return Submitted{}, err
	}
	if answer.Results == "" {
		return Submitted{}, &UnreachableError{Server: c.base, Err: fmt.Errorf("its answer names no job")}
	}
	return Submitted{JobID: answer.Results, Message: answer.Metadata.Message, Warnings: answer.Warnings}, nil
}

// writeBody writes head with the rows as its last field. Its error, if any,
// ends the request.
func writeBody(w io.Writer, head []byte, rows iter.Seq2[string, error]) error {
	if rows == nil {
		_, err := w.Write(head)
		return err
	}
	out := bufio.NewWriterSize(w, 256<<10)
	out.Write(head[:len(head)-1]) // errors stay in the writer until Flush
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
		quoted = spelling.AppendString(quoted, []byte(row))
		if _, err := out.Write(quoted); err != nil {
			return err
		}
		n++
	}
	out.WriteString("]}")
	return out.Flush()
}
