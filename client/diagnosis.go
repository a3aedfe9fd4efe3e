package client

import (
	"context"
	"encoding/json"
	"fmt"
)

// Finding is the result of a check.
type Finding struct {
	Check  string `json:"check"`
	Level  string `json:"level"` // ok, warn or fail
	Text   string `json:"text"`
	Remedy string `json:"remedy"`
}

// Diagnosis holds the facts about a node, or why there are none.
type Diagnosis struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	Error string `json:"error"` // why the node did not answer; Facts is nil then
	Facts *Facts `json:"facts"`
}

// Facts holds a node's report about itself.
type Facts struct {
	Version    string            `json:"version"`
	Deployment string            `json:"deployment"`
	Catalog    string            `json:"catalog"`
	Members    []string          `json:"members"`
	Settings   map[string]string `json:"settings"`
	Findings   []Finding         `json:"findings"`
	Storage    StorageTimes      `json:"storage"`
}

// StorageTimes holds measured times of a node's storage in seconds, one per try.
type StorageTimes struct {
	Commits     []float64 `json:"commit_seconds"` // write of a small record
	Syncs       []float64 `json:"sync_seconds"`   // append of 4 KiB to a file beside the records, with sync; empty with Redis
	Puts        []float64 `json:"put_seconds"`    // write of an object of ObjectBytes
	Gets        []float64 `json:"get_seconds"`    // read of this object
	ObjectBytes int       `json:"object_bytes"`
}

// Diagnose makes every node check itself. It needs an administrator's key of the
// account default.
func (c *Client) Diagnose(ctx context.Context) ([]Diagnosis, error) {
	var raw json.RawMessage
	if err := c.get(ctx, "/v1/diagnosis", nil, &raw); err != nil {
		return nil, err
	}
	var found struct{ Nodes []Diagnosis }
	if err := json.Unmarshal(raw, &found); err != nil {
		return nil, &UnreachableError{Server: c.base, Err: fmt.Errorf("its answer has no diagnosis: %w", err)}
	}
	return found.Nodes, nil
}
