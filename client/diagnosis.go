package client

import (
	"context"
	"encoding/json"
	"fmt"
)

// Finding is what a check of a node has found.
type Finding struct {
	Check  string `json:"check"`
	Level  string `json:"level"` // ok, warn or fail
	Text   string `json:"text"`
	Remedy string `json:"remedy"`
}

// Diagnosis is what a node knows and has tried of itself.
type Diagnosis struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	Error string `json:"error"` // why it has not answered; Facts is nil then
	Facts *Facts `json:"facts"`
}

// Facts are what a node says of itself.
type Facts struct {
	Version    string            `json:"version"`
	Deployment string            `json:"deployment"`
	Catalog    string            `json:"catalog"`
	Members    []string          `json:"members"`
	Settings   map[string]string `json:"settings"`
	Findings   []Finding         `json:"findings"`
	Storage    StorageTimes      `json:"storage"`
}

// StorageTimes are how long a node's storage took while it was tried, in seconds, one
// try after the other.
type StorageTimes struct {
	Commits     []float64 `json:"commit_seconds"` // a small record written
	Syncs       []float64 `json:"sync_seconds"`   // 4 KiB appended to a file beside the records and flushed; empty where these are in Redis
	Puts        []float64 `json:"put_seconds"`    // an object of ObjectBytes written
	Gets        []float64 `json:"get_seconds"`    // and read
	ObjectBytes int       `json:"object_bytes"`
}

// Diagnose has every node examine itself. It needs an administrator's key of the
// account default.
func (c *Client) Diagnose(ctx context.Context) ([]Diagnosis, error) {
	var raw json.RawMessage
	if err := c.get(ctx, "/v1/diagnosis", nil, &raw); err != nil {
		return nil, err
	}
	var found struct{ Nodes []Diagnosis }
	if err := json.Unmarshal(raw, &found); err != nil {
		return nil, &UnreachableError{Server: c.base, Err: fmt.Errorf("its answer holds no diagnosis: %w", err)}
	}
	return found.Nodes, nil
}
