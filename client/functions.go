package client

import (
	"bytes"
	"encoding/json"

	"github.com/rowmill/rowmill"
)

// Function is a revision of a prompt template, as the service sent it.
type Function struct {
	rowmill.Function

	Raw json.RawMessage // the JSON that the service sent
}

// UnmarshalJSON decodes a revision and also stores the JSON in Raw.
func (f *Function) UnmarshalJSON(text []byte) error {
	f.Raw = bytes.Clone(text)
	return json.Unmarshal(text, &f.Function)
}

// MarshalJSON returns Raw, the JSON that the service sent.
func (f Function) MarshalJSON() ([]byte, error) { return f.Raw, nil }
