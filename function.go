package rowmill

import (
	"encoding/json"
	"time"
)

// Function is one revision of a Function: a prompt with fields to fill in, and
// the model, schema and parameters that go with it. A revision never changes;
// which one is published does.
type Function struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Inputs      []FunctionInput `json:"inputs"`
	Prompt      string          `json:"prompt"`        // {{field}} stands for an input's value
	System      *string         `json:"system_prompt"` // as it is: fields are not filled in
	Model       string          `json:"model"`         // id of the catalog
	Schema      json.RawMessage `json:"json_schema"`   // null when none
	Sampling    map[string]any  `json:"sampling_params"`

	Revision  int        `json:"revision"` // from 1
	Created   time.Time  `json:"created_at"`
	Published *time.Time `json:"published_at"` // of the published revision; null in all others
}

// FunctionInput is a field that a Function declares.
type FunctionInput struct {
	Name        string `json:"name"`
	Required    bool   `json:"required"`
	Description string `json:"description"`
}

// FunctionRef names the revision of a Function that a job runs.
type FunctionRef struct {
	Name     string `json:"name"`
	Revision int    `json:"revision"`
	Model    string `json:"model"` // id of the catalog
}

// FunctionRun is what a job keeps of its Function to make prompts of rows.
type FunctionRun struct {
	Inputs []FunctionInput `json:"inputs"`
	Prompt string          `json:"prompt"`
}
