package client

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/rowmill/rowmill"
)

// Model is a model that jobs can run on.
type Model struct {
	ID            string       `json:"id"`
	Kind          rowmill.Kind `json:"kind"`           // empty while unknown
	ContextLength int          `json:"context_length"` // 0: unknown
	Dimension     int          `json:"dimension"`      // length of embeddings
	InputPrice    *float64     `json:"input_price"`    // USD per million tokens; nil: no price
	OutputPrice   *float64     `json:"output_price"`
	Aliases       []string     `json:"aliases"`
	Counted       string       `json:"counted"`     // exact, server or estimated
	CountError    *float64     `json:"count_error"` // average error in tokens
	Servers       []struct {
		Node   string `json:"node"`
		Engine string `json:"engine"`
		Kind   string `json:"kind"`
		Model  string `json:"model"` // name at the server
	} `json:"served_by"`
	Problem *string `json:"problem"` // why the model cannot be used now
}

// Models holds the models that jobs can run on.
type Models struct {
	Models []Model `json:"data"` // models that a server has now come first

	Raw json.RawMessage `json:"-"` // the service's JSON
}

// Models lists the models.
func (c *Client) Models(ctx context.Context) (Models, error) {
	var m Models
	if err := c.get(ctx, "/v1/models", nil, &m.Raw); err != nil {
		return Models{}, err
	}
	if err := json.Unmarshal(m.Raw, &m); err != nil {
		return Models{}, &UnreachableError{Server: c.base, Err: fmt.Errorf("its answer has no models: %w", err)}
	}
	return m, nil
}
