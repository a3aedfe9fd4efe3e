package client

import (
	"context"
	"encoding/json"
	"fmt"
)

// Engine is an inference server. Values that its node does not report to others are
// nil.
type Engine struct {
	Node   string  `json:"node"`
	Name   string  `json:"name"`
	Kind   *string `json:"kind"`
	URL    *string `json:"url"`
	State  string  `json:"state"` // up or down
	Models []struct {
		ID   string `json:"id"`   // name in jobs
		Name string `json:"name"` // name at the server
	} `json:"models"`
	Window    int      `json:"window"`
	InFlight  int      `json:"in_flight"`
	Rows      *float64 `json:"rows_per_second"` // average of the last minute
	LastError *string  `json:"last_error"`
	Simulated bool     `json:"simulated"`
}

// Engines holds the inference servers of all nodes.
type Engines struct {
	Engines []Engine `json:"engines"`       // by node and name
	Missing []string `json:"missing_nodes"` // nodes that did not answer

	Raw json.RawMessage `json:"-"` // the service's JSON
}

// Engines lists the inference servers. It needs an administrator's key of the
// account default.
func (c *Client) Engines(ctx context.Context) (Engines, error) {
	var e Engines
	if err := c.get(ctx, "/v1/engines", nil, &e.Raw); err != nil {
		return Engines{}, err
	}
	if err := json.Unmarshal(e.Raw, &e); err != nil {
		return Engines{}, &UnreachableError{Server: c.base, Err: fmt.Errorf("its answer has no engines: %w", err)}
	}
	return e, nil
}
