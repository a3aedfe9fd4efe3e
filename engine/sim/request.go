package sim

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
)

// chatRequest is a parsed request for a chat completion. A pool reuses it.
type chatRequest struct {
	chatBody
	conversation

	model  *servedModel
	name   string   // name of the model in the request
	stops  []string // texts that end the answer
	called *tool    // the function that the answer calls; nil for none
	thinks bool     // the answer begins with reasoning

	digest   digest // digest of all inputs that determine the answer
	promptID digest // digest of model and messages; faultInjector counts repetitions by it
	hashed   []byte // memory that the method hash reuses
}

// parse reads a chat completion. Its error is an *apiError.
func (r *chatRequest) parse(body []byte, find func(name string) (*servedModel, error)) error {
	*r = chatRequest{chatBody: newChatBody(), conversation: conversation{prompt: r.prompt[:0]}, hashed: r.hashed[:0]}
	if err := decodeBody(body, &r.chatBody); err != nil {
		return err
	}
	switch {
	case r.Model == nil:
		return badRequest("model", "model: Field required")
	case len(r.Messages) == 0:
		return badRequest("messages", "messages: at least one message is required")
	}
	if err := r.chatBody.check(); err != nil {
		return err
	}
	if err := r.add(r.Messages); err != nil {
		return err
	}
	r.promptTokens += promptTokens
	r.name = *r.Model
	var err error
	if r.model, err = find(r.name); err != nil {
		return err
	}
	if r.model.embeds {
		return badRequest("model", "The model %s does not support Chat Completions API", strconv.Quote(r.name))
	}
	r.stops, _ = parseStringList(r.Stop)
	thinking := r.wantsThinking()
	r.thinks = r.model.thinks && (thinking == nil || *thinking)
	if err := r.model.checkContextLength(r.promptTokens, r.maxTokens(), "messages"); err != nil {
		return err
	}
	r.computeDigest()
	return nil
}

// message is one message of a conversation.
type message struct {
	Role    string `json:"role"`
	Content any    `json:"content"` // a text, null, or a list of parts
}

// text returns the content of the message as one text. problem says why this is not
// possible; it is empty on success.
func (m *message) text() (text string, problem string) {
	switch v := m.Content.(type) {
	case nil:
		return "", ""
	case string:
		return v, ""
	case []any:
		for _, item := range v {
			part, _ := item.(map[string]any)
			piece, _ := part["text"].(string)
			if part["type"] != "text" {
				return "", fmt.Sprintf("parts of type %q are not simulated, only \"text\"", part["type"])
			}
			text += piece
		}
		return text, ""
	}
	return "", "Input should be a string or a list of parts"
}

// roles are the roles of messages; their order gives the ids of tokenRole.
var roles = [...]string{"system", "user", "assistant", "tool", "developer"}

// conversation is the prompt that is made of messages.
type conversation struct {
	prompt       []byte // for each message: its role, a byte 0, its content, and a byte 0
	promptTokens int
	lastUser     [2]int // the begin and end of the last user message in prompt
}

// add appends messages to the prompt and counts their tokens.
func (c *conversation) add(messages []message) error {
	for i, m := range messages {
		if !slices.Contains(roles[:], m.Role) {
			return badRequest("messages", "messages[%d].role: one of %q is required", i, roles)
		}
		text, problem := m.text()
		if problem != "" {
			return badRequest("messages", "messages[%d].content: %s", i, problem)
		}
		c.prompt = append(append(c.prompt, m.Role...), 0)
		start := len(c.prompt)
		c.prompt = append(c.prompt, text...)
		if m.Role == "user" {
			c.lastUser = [2]int{start, len(c.prompt)}
		}
		c.prompt = append(c.prompt, 0)
		c.promptTokens += messageTokens + countTokens(text)
	}
	return nil
}

// checkContextLength returns an error, in vLLM's words, if a prompt and its answer exceed the
// model's context. field names the part of the request to reduce.
func (m *servedModel) checkContextLength(prompt, answer int, field string) error {
	f := &apiError{status: 400, kind: "BadRequestError", param: "input_tokens"}
	switch {
	case prompt > m.context, prompt == m.context && !m.embeds: // an answer needs room for at least one token
		f.text = fmt.Sprintf("This model's maximum context length is %d tokens. However, your request has %d input tokens. "+
			"Please reduce the length of the %s.", m.context, prompt, field)
	case prompt+answer > m.context:
		f.text = fmt.Sprintf("This model's maximum context length is %d tokens. However, you requested %d tokens (%d in the %s, %d in the completion). "+
			"Please reduce the length of the %s or completion.", m.context, prompt+answer, prompt, field, answer, field)
	default:
		return nil
	}
	return f
}

// limit returns the largest length of the answer, in tokens.
func (r *chatRequest) limit() int {
	room := r.model.context - r.promptTokens
	if limit := r.maxTokens(); limit > 0 {
		return min(limit, room)
	}
	return room
}

// computeDigest computes digest and promptID.
func (r *chatRequest) computeDigest() {
	h := append(r.hashed[:0], r.model.id...)
	h = append(h, 0)
	h = append(h, r.prompt...)
	r.promptID = sha256.Sum256(h)
	h = append(h[:0], r.promptID[:]...)
	h = binary.LittleEndian.AppendUint64(h, uint64(r.model.seed))
	if r.Seed != nil && r.Temperature != 0 {
		h = binary.LittleEndian.AppendUint64(h, uint64(*r.Seed))
	}
	r.digest = sha256.Sum256(h)
	r.hashed = h
}
