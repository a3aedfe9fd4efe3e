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

// Job is a job's record, also exactly as the service wrote it.
type Job struct {
	rowmill.Job
	Raw json.RawMessage
}

// UnmarshalJSON keeps the text and accepts statuses in capitals, as keys of
// the sdk dialect get them.
func (j *Job) UnmarshalJSON(text []byte) error {
	if err := json.Unmarshal(text, &j.Job); err != nil {
		return err
	}
	j.Status = rowmill.Status(strings.ToLower(string(j.Status)))
	j.Raw = append(json.RawMessage(nil), text...)
	return nil
}

// MarshalJSON returns the text.
func (j Job) MarshalJSON() ([]byte, error) { return j.Raw, nil }

// Job fetches a job's record.
func (c *Client) Job(ctx context.Context, id string) (Job, error) {
	var answer struct {
		Job Job `json:"job"`
	}
	err := c.get(ctx, "/v1/jobs/"+url.PathEscape(id), nil, &answer)
	if err == nil && answer.Job.ID == "" {
		err = &UnreachableError{Server: c.base, Err: errors.New("its answer holds no job")}
	}
	return answer.Job, err
}

// Status is what the status endpoint says of a job.
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
		return Status{}, &UnreachableError{Server: c.base, Err: fmt.Errorf("its answer is no status: %w", err)}
	}
	var word string
	var byID map[string]string // the sdk dialect's form
	if json.Unmarshal(answer.Status, &word) != nil && json.Unmarshal(answer.Status, &byID) == nil {
		word = byID[id]
	}
	return Status{
		Status: rowmill.Status(strings.ToLower(word)), Message: answer.Message, Metadata: answer.Metadata, Raw: raw,
	}, nil
}

// Progress is how far a job is, how fast, and where its rows are. What is not known is
// nil.
type Progress struct {
	Status   rowmill.Status `json:"status"`
	Rows     *float64       `json:"rows_per_second"`
	Tokens   *float64       `json:"tokens_per_second"` // in and out
	ETA      *float64       `json:"eta_seconds"`
	Elapsed  float64        `json:"elapsed_seconds"`
	WaitsFor *string        `json:"waits_for"`
	Shards   *struct {
		Total    int `json:"total"`
		Complete int `json:"complete"`
	} `json:"shards"`
	Nodes []NodeRows `json:"nodes"` // that work for the job; nil also where nobody can say
}

// NodeRows are the rows of a job on one node.
type NodeRows struct {
	Node     string   `json:"node"`
	Assigned int64    `json:"rows_assigned"` // and not committed
	Done     int64    `json:"rows_done"`     // committed since the job's owner took it
	Rate     *float64 `json:"rows_per_second"`
}

// Progress fetches how far a job is.
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

// List fetches one page of at most limit jobs, 1 to 100, after cursor (empty:
// from the newest).
func (c *Client) List(ctx context.Context, limit int, cursor string) (Page, error) {
	var page Page
	err := c.get(ctx, "/v1/list-jobs", paging(limit, cursor), &page)
	return page, err
}

// Filter says which jobs are asked for. What is empty asks for nothing.
type Filter struct {
	Statuses []rowmill.Status
	Model    string // or Function, as the job shows it
	Text     string // in the name, id or description, in any case
	Since    time.Time
}

// Find is List of the jobs that a filter fits. A page may be short, or empty, and
// have others behind it: the service looks at 10,000 jobs for each.
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

// Cancel ends a job. A job that is over already is no error: Cancelled is
// then false and Message says why.
func (c *Client) Cancel(ctx context.Context, id string) (Cancelled, error) {
	var answer Cancelled
	err := c.get(ctx, "/v1/job-cancel/"+url.PathEscape(id), nil, &answer)
	return answer, err
}

// DeleteData removes input, parts and results of a job that is over; its record
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

// FailedRow is one row without an output.
type FailedRow struct {
	Row     int64  `json:"row"`
	Code    string `json:"code"`
	Message string `json:"message"`
	Raw     string `json:"raw_output"`
}

// FailedRows is one page of failed rows, by row.
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

// Row fetches one row of a job as the service writes it.
func (c *Client) Row(ctx context.Context, id string, row int64) (json.RawMessage, error) {
	var raw json.RawMessage
	err := c.get(ctx, "/v1/jobs/"+url.PathEscape(id)+"/rows/"+strconv.FormatInt(row, 10), nil, &raw)
	return raw, err
}

// Passing reports whether err may go away by itself: the service is being
// restarted, or asks for patience.
func Passing(err error) bool {
	var refusal *APIError
	if errors.As(err, &refusal) {
		return refusal.Temporary()
	}
	var away *UnreachableError
	return errors.As(err, &away)
}

// Unauthorized reports whether err is about the API key.
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

// Resumption says how a job is continued. What is empty is not sent.
type Resumption struct {
	Rows     string            // "missing" or "failed"; empty leaves it to the service
	Priority *rowmill.Priority // else that of the job
	Name     string            // else that of the job

	// IdempotencyKey makes repeating the request harmless.
	IdempotencyKey string
}

// Resume creates a job that takes over what a job which is over has committed,
// and runs the rest.
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
