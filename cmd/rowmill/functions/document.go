package functions

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/rowmill/rowmill/client"
)

// functionDocument is the definition of a Function in a YAML file, with the fields in the order
// in which people read them.
type functionDocument struct {
	Name        string          `yaml:"name"`
	Description string          `yaml:"description,omitempty"`
	Model       string          `yaml:"model"`
	Inputs      []functionInput `yaml:"inputs,omitempty"`
	System      *string         `yaml:"system_prompt,omitempty"`
	Prompt      string          `yaml:"prompt"`
	Sampling    any             `yaml:"sampling_params,omitempty"`
	Schema      any             `yaml:"json_schema,omitempty"`
}

type functionInput struct {
	Name        string `yaml:"name"`
	Required    bool   `yaml:"required"`
	Description string `yaml:"description,omitempty"`
}

// writeYAML writes a revision of a Function as a YAML file that can be published again.
func writeYAML(w io.Writer, f client.Function) error {
	var exact struct {
		Sampling map[string]any `json:"sampling_params"`
		Schema   any            `json:"json_schema"`
	}
	decoder := json.NewDecoder(bytes.NewReader(f.Raw))
	decoder.UseNumber()
	if err := decoder.Decode(&exact); err != nil {
		return fmt.Errorf("read the definition: %w", err)
	}
	d := functionDocument{
		Name: f.Name, Description: f.Description, Model: f.Model, System: f.System, Prompt: f.Prompt, Schema: convertNumbers(exact.Schema),
	}
	if len(exact.Sampling) > 0 {
		d.Sampling = convertNumbers(exact.Sampling)
	}
	for _, in := range f.Inputs {
		d.Inputs = append(d.Inputs, functionInput(in))
	}
	enc := yaml.NewEncoder(w)
	enc.SetIndent(2)
	if err := enc.Encode(d); err != nil {
		return fmt.Errorf("write the definition as YAML: %w", err)
	}
	return enc.Close()
}

// convertNumbers turns the JSON numbers in a value into integers and floats. Otherwise YAML
// would write them as text.
func convertNumbers(value any) any {
	switch v := value.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		if n, err := strconv.ParseUint(v.String(), 10, 64); err == nil {
			return n
		}
		f, _ := v.Float64() // infinite if out of range, which publishing refuses
		return f
	case []any:
		for i := range v {
			v[i] = convertNumbers(v[i])
		}
	case map[string]any:
		for name := range v {
			v[name] = convertNumbers(v[name])
		}
	}
	return value
}

// definitionToJSON converts a definition from YAML or JSON to the body of a request. If draft is
// true, the revision is not published.
func definitionToJSON(text []byte, draft bool) ([]byte, error) {
	var fields map[string]any
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	if err := decoder.Decode(&fields); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("it is empty")
		}
		return nil, fmt.Errorf("it is not a definition in YAML or JSON: %w", err)
	}
	if err := decoder.Decode(new(any)); !errors.Is(err, io.EOF) {
		return nil, errors.New("the file holds more than one document; publish them one by one")
	}
	if fields == nil {
		return nil, errors.New("it is null; it must be a mapping")
	}
	if draft {
		fields["publish"] = false
	}
	body, err := json.Marshal(fields)
	if err != nil {
		return nil, fmt.Errorf("it cannot be sent as JSON: %w", err)
	}
	return body, nil
}
