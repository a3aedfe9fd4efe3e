package sim

import (
	"encoding/json"
	"fmt"
)

// A chatAdapter is an API for generations other than chat completions. The server converts a
// request of the form into a chat completion, with the same prompt, time and faults, and
// converts the answer back.
type chatAdapter interface {
	// toChatRequest converts a request of this API into a request for a chat completion.
	toChatRequest(asked map[string]json.RawMessage) (chat map[string]json.RawMessage, err error)
	// fromChatReply returns the answer in the form of this API.
	fromChatReply(c *chatReply) map[string]any
}

// chatReply has the members of an answer to a chat completion that other forms need.
type chatReply struct {
	ID      string `json:"id"`
	Created int64  `json:"created"`
	Model   string `json:"model"`
	Choices []struct {
		Index   int `json:"index"`
		Message struct {
			Content   *string `json:"content"`
			Reasoning string  `json:"reasoning_content"`
			ToolCalls []struct {
				ID       string `json:"id"`
				Function struct {
					Name      string `json:"name"`
					Arguments string `json:"arguments"`
				} `json:"function"`
			} `json:"tool_calls"`
		} `json:"message"`
		Finish string `json:"finish_reason"`
		Stop   any    `json:"stop_reason"` // the stop string that ended the answer, if there is one
	} `json:"choices"`
	Usage struct {
		Prompt     int64 `json:"prompt_tokens"`
		Completion int64 `json:"completion_tokens"`
		Total      int64 `json:"total_tokens"`
	} `json:"usage"`
}

// adapterHandler returns a handler that serves requests of a form.
func adapterHandler(f chatAdapter) func(*Server, *httpExchange) {
	return func(s *Server, x *httpExchange) {
		var asked map[string]json.RawMessage
		err := json.Unmarshal(x.body, &asked)
		if err == nil && string(asked["stream"]) == "true" {
			s.replyError(x, badRequest("stream", "stream: only chat completions are streamed by the simulated server"))
			return
		}
		var body []byte
		if err == nil {
			if asked, err = f.toChatRequest(asked); err == nil {
				body, err = json.Marshal(asked)
			}
		}
		if err != nil {
			s.replyError(x, badRequest("", "%s", oneLine(err)))
			return
		}
		x.form, x.body = f, body
		s.serveChat(x)
	}
}

// convertReply converts the body of a chat completion to form f. It returns an answer
// without choices unchanged.
func convertReply(f chatAdapter, body []byte) []byte {
	var c chatReply
	if json.Unmarshal(body, &c) != nil || len(c.Choices) == 0 {
		return body
	}
	reply := f.fromChatReply(&c)
	reply["simulated"] = true
	if made, err := json.Marshal(reply); err == nil {
		body = made
	}
	return body
}

// userMessages returns the messages of a chat: a system message, if system is not nil,
// and one user message.
func userMessages(system, content json.RawMessage) (json.RawMessage, error) {
	var list []map[string]json.RawMessage
	if system != nil {
		list = append(list, map[string]json.RawMessage{"role": json.RawMessage(`"system"`), "content": system})
	}
	return json.Marshal(append(list, map[string]json.RawMessage{"role": json.RawMessage(`"user"`), "content": content}))
}

// renameMember renames a member of a JSON object, if the object has it.
func renameMember(object map[string]json.RawMessage, from, to string) {
	if value, there := object[from]; there {
		delete(object, from)
		object[to] = value
	}
}

// completionsAPI is OpenAI's older API /v1/completions: its prompt is a text.
type completionsAPI struct{}

func (completionsAPI) toChatRequest(asked map[string]json.RawMessage) (map[string]json.RawMessage, error) {
	var prompt string
	if err := json.Unmarshal(asked["prompt"], &prompt); err != nil {
		return nil, fmt.Errorf("prompt: the simulated server takes one text")
	}
	messages, err := userMessages(nil, asked["prompt"])
	delete(asked, "prompt")
	delete(asked, "logprobs") // a number in this form, but a boolean in a chat completion
	asked["messages"] = messages
	return asked, err
}

func (completionsAPI) fromChatReply(c *chatReply) map[string]any {
	choices := make([]map[string]any, len(c.Choices))
	for i, choice := range c.Choices {
		choices[i] = map[string]any{"index": choice.Index, "text": textOf(choice.Message.Content), "logprobs": nil, "finish_reason": choice.Finish}
	}
	return map[string]any{"id": c.ID, "object": "text_completion", "created": c.Created, "model": c.Model, "choices": choices, "usage": c.Usage}
}

func textOf(content *string) string {
	if content == nil {
		return ""
	}
	return *content
}

// responsesAPI is OpenAI's newer API /v1/responses.
type responsesAPI struct{}

func (responsesAPI) toChatRequest(asked map[string]json.RawMessage) (map[string]json.RawMessage, error) {
	if len(asked["input"]) > 0 && asked["input"][0] == '[' {
		asked["messages"] = asked["input"]
	} else {
		messages, err := userMessages(asked["instructions"], asked["input"])
		if err != nil {
			return nil, err
		}
		asked["messages"] = messages
	}
	delete(asked, "input")
	renameMember(asked, "max_output_tokens", "max_tokens")
	return asked, nil
}

func (responsesAPI) fromChatReply(c *chatReply) map[string]any {
	choice, status := c.Choices[0], "completed"
	var cut any
	if choice.Finish == "length" {
		status, cut = "incomplete", map[string]any{"reason": "max_output_tokens"}
	}
	return map[string]any{
		"id": "resp_" + c.ID, "object": "response", "created_at": c.Created, "model": c.Model, "status": status,
		"error": nil, "incomplete_details": cut, "parallel_tool_calls": false, "tool_choice": "none", "tools": []any{},
		"output": []any{map[string]any{
			"type": "message", "id": "msg_" + c.ID, "status": status, "role": "assistant",
			"content": []any{map[string]any{"type": "output_text", "text": textOf(choice.Message.Content), "annotations": []any{}}},
		}},
		"usage": map[string]any{
			"input_tokens": c.Usage.Prompt, "output_tokens": c.Usage.Completion, "total_tokens": c.Usage.Total,
			"input_tokens_details": map[string]any{"cached_tokens": 0, "cache_write_tokens": 0}, "output_tokens_details": map[string]any{"reasoning_tokens": 0},
		},
	}
}

// messagesAPI is Anthropic's API /v1/messages.
type messagesAPI struct{}

func (messagesAPI) toChatRequest(asked map[string]json.RawMessage) (map[string]json.RawMessage, error) {
	if asked["max_tokens"] == nil {
		return nil, fmt.Errorf("max_tokens: Field required")
	}
	var list []json.RawMessage
	if err := json.Unmarshal(asked["messages"], &list); err != nil {
		return nil, fmt.Errorf("messages: %w", err)
	}
	if system := asked["system"]; system != nil {
		first, err := json.Marshal(map[string]json.RawMessage{"role": json.RawMessage(`"system"`), "content": system})
		if err != nil {
			return nil, err
		}
		list = append([]json.RawMessage{first}, list...)
		delete(asked, "system")
	}
	renameMember(asked, "stop_sequences", "stop")
	var err error
	if asked["messages"], err = json.Marshal(list); err == nil {
		err = convertTools(asked)
	}
	return asked, err
}

// convertTools replaces the members tools and tool_choice of a Messages request with
// their form in OpenAI's API.
func convertTools(asked map[string]json.RawMessage) error {
	if asked["tools"] == nil {
		return nil
	}
	var tools []struct {
		Name       string          `json:"name"`
		Parameters json.RawMessage `json:"input_schema"`
	}
	if err := json.Unmarshal(asked["tools"], &tools); err != nil {
		return fmt.Errorf("tools: %w", err)
	}
	functions := make([]any, len(tools))
	for i, t := range tools {
		functions[i] = map[string]any{"type": "function", "function": tool{t.Name, t.Parameters}}
	}
	var choice struct{ Type, Name string }
	if given := asked["tool_choice"]; given != nil {
		if err := json.Unmarshal(given, &choice); err != nil {
			return fmt.Errorf("tool_choice: %w", err)
		}
	}
	var chosen any = "auto"
	switch choice.Type {
	case "any":
		chosen = "required"
	case "tool":
		chosen = map[string]any{"type": "function", "function": map[string]any{"name": choice.Name}}
	}
	var err error
	if asked["tools"], err = json.Marshal(functions); err == nil {
		asked["tool_choice"], err = json.Marshal(chosen)
	}
	return err
}

func (messagesAPI) fromChatReply(c *chatReply) map[string]any {
	choice := c.Choices[0]
	var content []any
	if choice.Message.Reasoning != "" {
		content = append(content, map[string]any{"type": "thinking", "thinking": choice.Message.Reasoning, "signature": ""})
	}
	if text := choice.Message.Content; text != nil {
		content = append(content, map[string]any{"type": "text", "text": *text})
	}
	for _, call := range choice.Message.ToolCalls {
		content = append(content, map[string]any{"type": "tool_use", "id": call.ID, "name": call.Function.Name, "input": json.RawMessage(call.Function.Arguments)})
	}
	reason := map[string]string{"length": "max_tokens", "stop": "end_turn", "tool_calls": "tool_use"}[choice.Finish]
	if _, stopped := choice.Stop.(string); stopped {
		reason = "stop_sequence"
	} else {
		choice.Stop = nil
	}
	return map[string]any{
		"id": "msg_" + c.ID, "type": "message", "role": "assistant", "model": c.Model, "content": content,
		"stop_reason": reason, "stop_sequence": choice.Stop,
		"usage": map[string]any{"input_tokens": c.Usage.Prompt, "output_tokens": c.Usage.Completion},
	}
}
