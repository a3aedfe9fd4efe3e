package sim

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/rowmill/rowmill/internal/textfmt"
)

// A tool is a function that an answer can call. The simulator makes up arguments that
// conform to the schema of the function's parameters.
type tool struct {
	Name       string          `json:"name"`
	Parameters json.RawMessage `json:"parameters"`
}

// chosenTool returns the function that a request wants the model to call. It returns nil
// if the request leaves the choice to the model: the simulated model then calls no
// function.
func chosenTool(tools, choice []byte) (*tool, error) {
	if tools == nil || choice == nil || string(tools) == "[]" || string(choice) == `"auto"` || string(choice) == `"none"` {
		return nil, nil
	}
	var all []struct {
		Function *tool `json:"function"`
	}
	if err := json.Unmarshal(tools, &all); err != nil {
		return nil, err
	}
	var named struct {
		Function tool `json:"function"`
	}
	if string(choice) != `"required"` {
		if err := json.Unmarshal(choice, &named); err != nil {
			return nil, fmt.Errorf("tool_choice: %w", err)
		}
	}
	for _, t := range all {
		if t.Function == nil || named.Function.Name != "" && t.Function.Name != named.Function.Name {
			continue
		}
		if len(t.Function.Parameters) == 0 {
			t.Function.Parameters = json.RawMessage(`{"type":"object","properties":{}}`)
		}
		return t.Function, nil
	}
	return nil, errors.New("tool_choice names a tool that is not in tools")
}

// appendCall appends the member tool_calls, with one call of the function.
func (t *tool) appendCall(dst []byte, serial uint64, n int, arguments []byte) []byte {
	return fmt.Appendf(dst, `,"tool_calls":[{"id":"call_simulated_%d_%d","type":"function","function":{"name":%s,"arguments":%s}}]`,
		serial, n, textfmt.AppendString(nil, []byte(t.Name)), textfmt.AppendString(nil, arguments))
}
