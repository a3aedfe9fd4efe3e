package client

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/rowmill/rowmill"
)

// Job is a job's record, with the JSON that the service sent in Raw.
type Job struct {
	rowmill.Job
	Raw json.RawMessage
}

// UnmarshalJSON decodes a job and also stores the JSON in Raw. It accepts statuses in
// capital letters, which the service sends for keys of the sdk dialect.
func (j *Job) UnmarshalJSON(text []byte) error {
	if err := json.Unmarshal(text, &j.Job); err != nil {
		return err
	}
	j.Status = rowmill.Status(strings.ToLower(string(j.Status)))
	j.Raw = append(json.RawMessage(nil), text...)
	return nil
}

// MarshalJSON returns Raw, the JSON that the service sent.
func (j Job) MarshalJSON() ([]byte, error) { return j.Raw, nil }

// Job fetches a job's record.
func (c *Client) Job(ctx context.Context, id string) (Job, error) {
	answer, _, err := c.GetJob(ctx, id)
	if err == nil && answer.Job.ID == "" {
		err = &UnreachableError{Server: c.base, Err: errors.New("the answer has no job")}
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
	var answer struct {
		Message  string          `json:"message"`
		Status   json.RawMessage `json:"job_status"`
		Metadata map[string]any  `json:"metadata"`
	}
	got, err := c.send(ctx, call{method: http.MethodGet, path: "/v1/job-status/" + escape(id)}, &answer)
	if err != nil {
		return Status{}, err
	}
	var word string
	var byID map[string]string // with a key of the sdk dialect, the service sends the status by job id
	if json.Unmarshal(answer.Status, &word) != nil && json.Unmarshal(answer.Status, &byID) == nil {
		word = byID[id]
	}
	return Status{
		Status: rowmill.Status(strings.ToLower(word)), Message: answer.Message, Metadata: answer.Metadata, Raw: got.Raw,
	}, nil
}

// Temporary reports whether a retry may help: the service cannot be reached, has a
// temporary problem, or asks the client to wait.
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
