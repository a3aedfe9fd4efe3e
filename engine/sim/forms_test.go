package sim

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestForms asks in every form beside chat completions.
func TestForms(t *testing.T) {
	t.Parallel()
	s := start(t, Config{})
	for _, tt := range []struct {
		path, body string
		text       func(map[string]any) any
		stopped    string // a member that says so, with its value behind a blank
	}{
		{"/v1/completions", `{"model":"plain","prompt":"Once","max_tokens":5}`, func(m map[string]any) any {
			return m["choices"].([]any)[0].(map[string]any)["text"]
		}, ""},
		{"/v1/responses", `{"model":"plain","input":"Once","instructions":"Be short","max_output_tokens":5}`, func(m map[string]any) any {
			return m["output"].([]any)[0].(map[string]any)["content"].([]any)[0].(map[string]any)["text"]
		}, "status incomplete"},
		{"/v1/responses", `{"model":"plain","input":[{"role":"user","content":"Once"}],"max_output_tokens":5}`, func(m map[string]any) any {
			return m["output"].([]any)[0].(map[string]any)["content"].([]any)[0].(map[string]any)["text"]
		}, "status incomplete"},
		{"/v1/messages", `{"model":"plain","system":"Be short","messages":[{"role":"user","content":"Once"}],"max_tokens":5}`, func(m map[string]any) any {
			return m["content"].([]any)[0].(map[string]any)["text"]
		}, "stop_reason max_tokens"},
		{"/v1/messages", `{"model":"plain","messages":[{"role":"user","content":"Once"}],"max_tokens":50,"stop_sequences":[" "]}`, func(m map[string]any) any {
			return m["content"].([]any)[0].(map[string]any)["text"]
		}, "stop_reason stop_sequence"},
	} {
		got := s.must("POST", tt.path, tt.body)
		status, body := got.status, got.body
		var reply map[string]any
		if err := json.Unmarshal(body, &reply); err != nil || status != 200 {
			t.Fatalf("%s: %d %s", tt.path, status, body)
		}
		if text, _ := tt.text(reply).(string); !strings.HasPrefix(text, "[simulated]") || reply["simulated"] != true {
			t.Errorf("%s: %s", tt.path, body)
		}
		if name, value, there := strings.Cut(tt.stopped, " "); there && reply[name] != value {
			t.Errorf("%s: %s is %v, want %s", tt.path, name, reply[name], value)
		}
	}
	for path, body := range map[string]string{
		"/v1/completions": `{"model":"plain","prompt":["a"]}`, "/v1/messages": `{"model":"plain","messages":[]}`,
		"/v1/responses": `{"model":"plain","input":"x","stream":true}`,
	} {
		if got := s.must("POST", path, body); got.status != 400 {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
}

func TestTools_AreCalledWhereTheRequestSaysSo(t *testing.T) {
	t.Parallel()
	s := start(t, Config{})
	const tools = `"tools":[{"type":"function","function":{"name":"first"}},
		{"type":"function","function":{"name":"grind","parameters":{"type":"object","required":["rows"],"properties":{"rows":{"type":"integer"}}}}}]`
	for choice, want := range map[string]string{
		`"required"`: "first", `{"type":"function","function":{"name":"grind"}}`: "grind", `"auto"`: "", `"none"`: "",
	} {
		got := s.must("POST", chatPath, `{"model":"plain","n":2,"messages":[{"role":"user","content":"x"}],`+tools+`,"tool_choice":`+choice+`}`)
		status, body := got.status, got.body
		var reply chatReply
		if err := json.Unmarshal(body, &reply); err != nil || status != 200 || len(reply.Choices) != 2 {
			t.Fatalf("%s: %d %s", choice, status, body)
		}
		for _, c := range reply.Choices {
			switch calls := c.Message.ToolCalls; {
			case want == "" && len(calls) == 0 && c.Message.Content != nil:
			case want == "" || len(calls) != 1 || calls[0].Function.Name != want || c.Finish != "tool_calls" || !json.Valid([]byte(calls[0].Function.Arguments)):
				t.Errorf("%s: %s", choice, body)
			}
		}
	}
}
