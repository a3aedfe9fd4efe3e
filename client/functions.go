package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/rowmill/rowmill"
)

// runTimeout limits a run of a Function: a little more than the service's own limit of
// 90 s.
const runTimeout = 100 * time.Second

// Function is a revision of a Function.
type Function struct {
	rowmill.Function

	Raw json.RawMessage // the service's JSON
}

// UnmarshalJSON also stores the JSON in Raw.
func (f *Function) UnmarshalJSON(text []byte) error {
	f.Raw = bytes.Clone(text)
	return json.Unmarshal(text, &f.Function)
}

// MarshalJSON returns Raw.
func (f Function) MarshalJSON() ([]byte, error) { return f.Raw, nil }

// Run is the answer of a Function to one input.
type Run struct {
	JobID    string              `json:"job_id"`
	Function rowmill.FunctionRef `json:"function"`
	Output   json.RawMessage     `json:"output"` // a string, or a list of numbers

	Raw json.RawMessage `json:"-"` // the service's JSON
}

func functionPath(name, rest string) string { return "/v1/functions/" + url.PathEscape(name) + rest }

// Functions lists the published Functions of an account. An empty account means the
// key's account, here and in the methods below.
func (c *Client) Functions(ctx context.Context, account string) ([]Function, error) {
	var list struct {
		Functions []Function `json:"functions"`
	}
	err := c.get(ctx, "/v1/functions", accountQuery(account), &list)
	return list.Functions, err
}

// Function fetches the published revision of a Function.
func (c *Client) Function(ctx context.Context, account, name string) (Function, error) {
	var f Function
	err := c.get(ctx, functionPath(name, ""), accountQuery(account), &f)
	return f, err
}

// Revisions fetches all revisions of a Function, newest first.
func (c *Client) Revisions(ctx context.Context, account, name string) ([]Function, error) {
	var list struct {
		Revisions []Function `json:"revisions"`
	}
	err := c.get(ctx, functionPath(name, "/revisions"), accountQuery(account), &list)
	return list.Revisions, err
}

// Publish sends a definition as JSON. It needs an administrator's key, as do
// Rollback and Unpublish.
func (c *Client) Publish(ctx context.Context, account string, definition []byte) (Function, error) {
	var f Function
	err := c.send(ctx, http.MethodPost, "/v1/functions", account, definition, &f)
	return f, err
}

// Rollback publishes an earlier revision, or a draft.
func (c *Client) Rollback(ctx context.Context, account, name string, revision int) (Function, error) {
	var f Function
	err := c.send(ctx, http.MethodPost, functionPath(name, "/rollback"), account, []byte(`{"revision":`+strconv.Itoa(revision)+`}`), &f)
	return f, err
}

// Unpublish leaves a Function without a published revision.
func (c *Client) Unpublish(ctx context.Context, account, name string) error {
	var done struct{}
	return c.send(ctx, http.MethodDelete, functionPath(name, ""), account, nil, &done)
}

// RunFunction runs a Function on one input, a JSON object or string. Revision 0 is the
// published one.
func (c *Client) RunFunction(ctx context.Context, name string, revision int, input json.RawMessage) (Run, error) {
	body, err := json.Marshal(struct {
		Input    json.RawMessage `json:"input"`
		Revision int             `json:"revision,omitempty"`
	}{input, revision})
	if err != nil {
		return Run{}, fmt.Errorf("encode the input: %w", err)
	}
	slow := *c
	slow.cfg.Timeout = max(c.cfg.Timeout, runTimeout)
	var run Run
	if err := slow.send(ctx, http.MethodPost, functionPath(name, "/run"), "", body, &run.Raw); err != nil {
		return Run{}, err
	}
	if err := json.Unmarshal(run.Raw, &run); err != nil {
		return Run{}, &UnreachableError{Server: c.base, Err: fmt.Errorf("its answer has no run of a Function: %w", err)}
	}
	return run, nil
}

// send sends a small document and decodes the answer.
func (c *Client) send(ctx context.Context, method, path, account string, body []byte, into any) error {
	req, err := c.request(ctx, method, path, accountQuery(account), bytes.NewReader(body))
	if err != nil {
		return err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	_, err = c.exchange(req, into)
	return err
}
