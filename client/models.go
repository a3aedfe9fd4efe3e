package client

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/rowmill/rowmill"
)

// Model is what jobs can run on.
type Model struct {
	ID            string       `json:"id"`
	Kind          rowmill.Kind `json:"kind"`           // empty until it is known
	ContextLength int          `json:"context_length"` // 0 where nobody says
	Dimension     int          `json:"dimension"`      // of embeddings
	InputPrice    *float64     `json:"input_price"`    // USD per million tokens; nil for no price
	OutputPrice   *float64     `json:"output_price"`
	Aliases       []string     `json:"aliases"`
	Counted       string       `json:"counted"`     // exact, server or estimated
	CountError    *float64     `json:"count_error"` // tokens on average
	Servers       []struct {
		Node   string `json:"node"`
		Engine string `json:"engine"`
		Kind   string `json:"kind"`
		Model  string `json:"model"` // what the server calls it
	} `json:"served_by"`
	Problem *string `json:"problem"` // why it cannot be used now
}

// Models are what jobs can run on.
type Models struct {
	Models []Model `json:"data"` // those that are served now first

	Raw json.RawMessage `json:"-"` // as the service wrote it
}

// Models lists the models.
func (c *Client) Models(ctx context.Context) (Models, error) {
	var m Models
	if err := c.get(ctx, "/v1/models", nil, &m.Raw); err != nil {
		return Models{}, err
	}
	if err := json.Unmarshal(m.Raw, &m); err != nil {
		return Models{}, &UnreachableError{Server: c.base, Err: fmt.Errorf("its answer holds no models: %w", err)}
	}
	return m, nil
}
