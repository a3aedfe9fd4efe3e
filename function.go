package rowmill

import (
	"encoding/json"
	"time"
)

// Function is one revision of a named prompt template: the prompt with its fields, the
// model, the schema and the sampling parameters. A revision never changes; a new revision
// is stored and published instead.
type Function struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Inputs      []FunctionInput `json:"inputs"`
	Prompt      string          `json:"prompt"`        // {{field}} is replaced by an input's value
	System      *string         `json:"system_prompt"` // {{field}} is not replaced in the system prompt
	Model       string          `json:"model"`         // catalog id
	Schema      json.RawMessage `json:"json_schema"`   // JSON Schema of the answers; null for none
	Sampling    map[string]any  `json:"sampling_params"`

	Revision  int        `json:"revision"` // number of this revision, from 1
	Created   time.Time  `json:"created_at"`
	Published *time.Time `json:"published_at"` // when this revision was published; null if it is not the published one
}

// FunctionInput is a declared field of a Function's prompt.
type FunctionInput struct {
	Name        string `json:"name"`
	Required    bool   `json:"required"`
	Description string `json:"description"`
}

// FunctionRef names the revision of a Function that a job runs.
type FunctionRef struct {
	Name     string `json:"name"`
	Revision int    `json:"revision"`
	Model    string `json:"model"` // catalog id
}

// FunctionPrompt is the part of a Function that a job needs to make prompts from rows.
type FunctionPrompt struct {
	Inputs []FunctionInput `json:"inputs"`
	Prompt string          `json:"prompt"`
}
