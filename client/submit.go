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
	"github.com/rowmill/rowmill/internal/spelling"
)

// Submission is a job to create. Set exactly one of URL and Rows. Empty fields are not
// sent; the service uses its defaults.
type Submission struct {
	URL      string                   // where the service downloads the rows; or "file:" and the id of an uploaded file
	Rows     iter.Seq2[string, error] // inline rows in UTF-8, read once, while they are sent
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
	Dedup       *bool // run equal rows once; nil: the service's default
	Repair      bool  // with a Schema: accept JSON with text around it
	Estimate    bool
	Name        string
	Description string

	// IdempotencyKey makes a repeated submission harmless.
	IdempotencyKey string
}

// head returns all fields of a submission except inline rows. Fields that are not set
// are absent.
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

// Submit creates a job. It sends rows while it reads them.
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
	var made Submitted
	if err := c.decode(ctx, resp, &made); err != nil {
		return Submitted{}, err
	}
	if made.JobID == "" {
		return Submitted{}, &UnreachableError{Server: c.base, Err: fmt.Errorf("its answer has no job id")}
	}
	return made, nil
}

// writeBody writes head, with the rows as its last field. An error ends the request.
func writeBody(w io.Writer, head []byte, rows iter.Seq2[string, error]) error {
	if rows == nil {
		_, err := w.Write(head)
		return err
	}
	out := bufio.NewWriterSize(w, 256<<10)
	out.Write(head[:len(head)-1]) // Flush returns the writer's first error
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
