package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/rowmill/rowmill"
)

// Job is a job's record, with its original JSON in Raw.
type Job struct {
	rowmill.Job
	Raw json.RawMessage
}

// UnmarshalJSON stores the JSON in Raw. It accepts statuses in capitals, which keys of
// the sdk dialect get.
func (j *Job) UnmarshalJSON(text []byte) error {
	if err := json.Unmarshal(text, &j.Job); err != nil {
		return err
	}
	j.Status = rowmill.Status(strings.ToLower(string(j.Status)))
	j.Raw = append(json.RawMessage(nil), text...)
	return nil
}

// MarshalJSON returns Raw.
func (j Job) MarshalJSON() ([]byte, error) { return j.Raw, nil }

// Job fetches a job's record.
func (c *Client) Job(ctx context.Context, id string) (Job, error) {
	var answer struct {
		Job Job `json:"job"`
	}
	err := c.get(ctx, "/v1/jobs/"+url.PathEscape(id), nil, &answer)
	if err == nil && answer.Job.ID == "" {
		err = &UnreachableError{Server: c.base, Err: errors.New("its answer has no job")}
	}
	return answer.Job, err
}

// Status is the answer of the status endpoint for a job.
type Status struct {
	Status   rowmill.Status
	Message  string
	Metadata map[string]any
	Raw      json.RawMessage
}

// Status fetches a job's status.
func (c *Client) Status(ctx context.Context, id string) (Status, error) {
	var raw json.RawMessage
	if err := c.get(ctx, "/v1/job-status/"+url.PathEscape(id), nil, &raw); err != nil {
		return Status{}, err
	}
	var answer struct {
		Message  string          `json:"message"`
		Status   json.RawMessage `json:"job_status"`
		Metadata map[string]any  `json:"metadata"`
	}
	if err := json.Unmarshal(raw, &answer); err != nil {
		return Status{}, &UnreachableError{Server: c.base, Err: fmt.Errorf("its answer has no status: %w", err)}
	}
	var word string
	var byID map[string]string // form of the sdk dialect
	if json.Unmarshal(answer.Status, &word) != nil && json.Unmarshal(answer.Status, &byID) == nil {
		word = byID[id]
	}
	return Status{
		Status: rowmill.Status(strings.ToLower(word)), Message: answer.Message, Metadata: answer.Metadata, Raw: raw,
	}, nil
}

// Progress holds the progress of a job, its speed and the nodes with its rows. Unknown
// values are nil.
type Progress struct {
	Status   rowmill.Status `json:"status"`
	Rows     *float64       `json:"rows_per_second"`
	Tokens   *float64       `json:"tokens_per_second"` // input and output tokens
	ETA      *float64       `json:"eta_seconds"`
	Elapsed  float64        `json:"elapsed_seconds"`
	WaitsFor *string        `json:"waits_for"`
	Shards   *struct {
		Total    int `json:"total"`
		Complete int `json:"complete"`
	} `json:"shards"`
	Nodes []NodeRows `json:"nodes"` // nodes that work on the job; nil if unknown
}

// NodeRows counts the rows of a job on one node.
type NodeRows struct {
	Node     string   `json:"node"`
	Assigned int64    `json:"rows_assigned"` // not yet committed
	Done     int64    `json:"rows_done"`     // committed since the current owner took the job
	Rate     *float64 `json:"rows_per_second"`
}

// Progress fetches the progress of a job.
func (c *Client) Progress(ctx context.Context, id string) (Progress, error) {
	var p Progress
	err := c.get(ctx, "/v1/jobs/"+url.PathEscape(id)+"/progress", nil, &p)
	p.Status = rowmill.Status(strings.ToLower(string(p.Status)))
	return p, err
}

// Page is one page of jobs, newest first.
type Page struct {
	Jobs []Job  `json:"jobs"`
	Next string `json:"next_cursor"` // empty when nothing is left
}

// List fetches one page of at most limit jobs, 1 to 100, after cursor (empty: from the
// newest job).
func (c *Client) List(ctx context.Context, limit int, cursor string) (Page, error) {
	var page Page
	err := c.get(ctx, "/v1/list-jobs", paging(limit, cursor), &page)
	return page, err
}

// Filter selects jobs. Empty fields select all.
type Filter struct {
	Statuses []rowmill.Status
	Model    string // or Function
	Text     string // part of the name, id or description, upper or lower case
	Since    time.Time
}

// Find is List with a filter. A page may have few jobs or none even if more pages
// follow: the service checks 10,000 jobs per page.
func (c *Client) Find(ctx context.Context, f Filter, limit int, cursor string) (Page, error) {
	query := paging(limit, cursor)
	var statuses []string
	for _, s := range f.Statuses {
		statuses = append(statuses, string(s))
	}
	since := ""
	if !f.Since.IsZero() {
		since = f.Since.Format(time.RFC3339Nano)
	}
	for name, value := range map[string]string{"status": strings.Join(statuses, ","), "model": f.Model, "q": f.Text, "since": since} {
		if value != "" {
			query.Set(name, value)
		}
	}
	var page Page
	err := c.get(ctx, "/v1/list-jobs", query, &page)
	return page, err
}

// Cancelled is the outcome of a cancel request.
type Cancelled struct {
	Cancelled bool   `json:"cancelled"`
	Message   string `json:"message"`
}

// Cancel cancels a job. For a job that has ended it returns no error: Cancelled is
// false and Message gives the reason.
func (c *Client) Cancel(ctx context.Context, id string) (Cancelled, error) {
	var answer Cancelled
	err := c.get(ctx, "/v1/job-cancel/"+url.PathEscape(id), nil, &answer)
	return answer, err
}

// DeleteData removes the input, parts and results of an ended job. The job's record
// stays.
func (c *Client) DeleteData(ctx context.Context, id string) error {
	req, err := c.request(ctx, http.MethodDelete, "/v1/jobs/"+url.PathEscape(id)+"/data", nil, nil)
	if err != nil {
		return err
	}
	var done struct {
		JobID string `json:"job_id"`
	}
	_, err = c.exchange(req, &done)
	return err
}

// FailedRow is a row without an output.
type FailedRow struct {
	Row     int64  `json:"row"`
	Code    string `json:"code"`
	Message string `json:"message"`
	Raw     string `json:"raw_output"`
}

// FailedRows is a page of failed rows, in order of rows.
type FailedRows struct {
	Errors []FailedRow `json:"errors"`
	Next   string      `json:"next_cursor"`
}

// Errors fetches one page of at most limit failed rows of a job.
func (c *Client) Errors(ctx context.Context, id string, limit int, cursor string) (FailedRows, error) {
	var page FailedRows
	err := c.get(ctx, "/v1/jobs/"+url.PathEscape(id)+"/errors", paging(limit, cursor), &page)
	return page, err
}

// Row fetches one row of a job as JSON.
func (c *Client) Row(ctx context.Context, id string, row int64) (json.RawMessage, error) {
	var raw json.RawMessage
	err := c.get(ctx, "/v1/jobs/"+url.PathEscape(id)+"/rows/"+strconv.FormatInt(row, 10), nil, &raw)
	return raw, err
}

// Temporary reports whether a retry may help: the service is down or restarting, or
// asks to wait.
func Temporary(err error) bool {
	var refusal *APIError
	if errors.As(err, &refusal) {
		return refusal.Temporary()
	}
	var unreachable *UnreachableError
	return errors.As(err, &unreachable)
}

// Unauthorized reports whether the service refused the API key.
func Unauthorized(err error) bool {
	var refusal *APIError
	return errors.As(err, &refusal) &&
		(refusal.Status == http.StatusUnauthorized || refusal.Status == http.StatusForbidden)
}

func paging(limit int, cursor string) url.Values {
	query := url.Values{}
	if limit > 0 {
		query.Set("limit", strconv.Itoa(limit))
	}
	if cursor != "" {
		query.Set("cursor", cursor)
	}
	return query
}

// Resumption configures the continuation of a job. Empty fields are not sent.
type Resumption struct {
	Rows     string            // "missing" or "failed"; empty: the service's default
	Priority *rowmill.Priority // nil: the priority of the continued job
	Name     string            // empty: the name of the continued job

	// IdempotencyKey makes a repeated request harmless.
	IdempotencyKey string
}

// Resume creates a job that takes over the committed rows of an ended job, and runs the
// other rows.
func (c *Client) Resume(ctx context.Context, id string, r Resumption) (Submitted, error) {
	body := map[string]any{}
	if r.Rows != "" {
		body["rows"] = r.Rows
	}
	if r.Priority != nil {
		body["job_priority"] = *r.Priority
	}
	if r.Name != "" {
		body["name"] = r.Name
	}
	var answer struct {
		Results  string `json:"results"`
		Metadata struct {
			Message string `json:"message"`
		} `json:"metadata"`
	}
	sent, err := json.Marshal(body)
	if err != nil {
		return Submitted{}, fmt.Errorf("encode the request: %w", err)
	}
	req, err := c.request(ctx, http.MethodPost, "/v1/jobs/"+url.PathEscape(id)+"/resume", nil, bytes.NewReader(sent))
	if err != nil {
		return Submitted{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	if r.IdempotencyKey != "" {
		req.Header.Set("Idempotency-Key", r.IdempotencyKey)
	}
	_, err = c.exchange(req, &answer)
	return Submitted{JobID: answer.Results, Message: answer.Metadata.Message}, err
}
