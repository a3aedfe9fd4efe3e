package prompt

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// messageTokens is about how many tokens a template adds to each message of a chat.
const messageTokens = 5

// A chatMessage is a message of a chat.
type chatMessage struct {
	raw     json.RawMessage // the whole message, also with members that are not known here
	role    string
	content string // empty if the content is a list of parts
	isText  bool   // content is the whole content
}

// parseChat parses a chat: a JSON list of messages. The error names the message that is wrong.
func parseChat(text string) ([]chatMessage, error) {
	var list []json.RawMessage
	if err := json.Unmarshal([]byte(text), &list); err != nil || len(list) == 0 {
		return nil, errors.New(`it is not a list of messages, such as [{"role": "user", "content": "…"}]`)
	}
	chat := make([]chatMessage, len(list))
	for i, raw := range list {
		var m struct {
			Role    *string         `json:"role"`
			Content json.RawMessage `json:"content"`
		}
		if err := json.Unmarshal(raw, &m); err != nil || m.Role == nil || *m.Role == "" {
			return nil, fmt.Errorf("message %d is not an object with a role and a content", i)
		}
		chat[i] = chatMessage{raw: raw, role: *m.Role}
		switch kind := append(m.Content, ' ')[0]; kind {
		case '"':
			chat[i].isText = json.Unmarshal(m.Content, &chat[i].content) == nil
		case '[', 'n': // parts such as images; null beside tool_calls
		default:
			return nil, fmt.Errorf("the content of message %d is neither a text nor a list", i)
		}
	}
	return chat, nil
}

// NormalizeChat returns a chat in the form that requests have: a JSON list of messages, each an
// object with a role and a content, without white space. The error says which message is wrong.
func NormalizeChat(text string) (string, error) {
	if _, err := parseChat(text); err != nil {
		return "", err
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, []byte(text)); err != nil {
		return "", err
	}
	return compact.String(), nil
}

// encodeChat returns a chat as JSON.
func encodeChat(chat []chatMessage) string {
	b := []byte{'['}
	for i, m := range chat {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, m.raw...)
	}
	return string(append(b, ']'))
}

// cutChat returns a chat with at most n bytes. It leaves out the oldest messages, but keeps
// system messages at the beginning and the last message. Then it cuts the text of the last
// message. It returns an empty text if that is not enough.
func cutChat(text string, n int) string {
	chat, err := parseChat(text)
	if err != nil {
		return ""
	}
	first, last := 0, len(chat)-1
	for first < last && (chat[first].role == "system" || chat[first].role == "developer") {
		first++
	}
	size := len(encodeChat(chat))
	end := first // messages from first to end are left out
	for end < last && (size > n || end > first && chat[end].role != "user") {
		size -= len(chat[end].raw) + 1
		end++
	}
	chat = slices.Delete(chat, first, end)
	if size <= n {
		return encodeChat(chat)
	}
	m := &chat[len(chat)-1]
	shorter := TruncateToBytes(m.content, len(m.content)-(size-n))
	if !m.isText || shorter == "" {
		return ""
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(m.raw, &members) != nil {
		return ""
	}
	if members["content"], err = json.Marshal(shorter); err != nil {
		return ""
	}
	if m.raw, err = json.Marshal(members); err != nil {
		return ""
	}
	return encodeChat(chat)
}
