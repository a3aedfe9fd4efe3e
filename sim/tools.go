package sim

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/rowmill/rowmill/spelling"
)

// A tool is a function that an answer calls, with arguments that are made up by
// the schema of its parameters.
type tool struct {
	Name       string          `json:"name"`
	Parameters json.RawMessage `json:"parameters"`
}

// chosenTool is the function that a request wants called; nil where it leaves that
// to the model, which then answers by itself.
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
	return nil, errors.New("tool_choice names none of them")
}

// appendCall writes the member tool_calls.
func (t *tool) appendCall(dst []byte, serial uint64, n int, arguments []byte) []byte {
	dst = append(dst, `,"tool_calls":[{"id":"call_simulated_`...)
	dst = strconv.AppendUint(dst, serial, 10)
	dst = append(dst, '_')
	dst = strconv.AppendInt(dst, int64(n), 10)
	dst = append(dst, `","type":"function","function":{"name":`...)
	dst = spelling.AppendString(dst, []byte(t.Name))
	dst = append(dst, `,"arguments":`...)
	return append(spelling.AppendString(dst, arguments), `}}]`...)
}
