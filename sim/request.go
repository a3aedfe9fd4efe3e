package sim

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"
)

// chatRequest is a parsed chat completion. It is reused: all slices point into
// its own memory or into the body, which lives as long as the request.
type chatRequest struct {
	scan  scanner
	model *served
	name  string // the model as the client called it

	prompt       []byte // role 0 content 0 for each message
	promptTokens int
	lastUser     [2]int // where in prompt the last user message stands

	maxTokens, minTokens int // 0: not set
	temperature          float64
	seed                 *int64
	stops                [][]byte
	stopIDs              []int
	keepStop, ignoreEOS  bool
	logprobs             bool
	topLogprobs          int
	stream, streamUsage  bool
	format               []byte // response_format, unread
	rule                 []byte // structured_outputs, unread
	tools, toolChoice    []byte // unread; nil for none
	called               *tool  // what the answer is to call; nil for nothing
	choices              int    // that many answers, all the same; at least 1
	thinking             *bool  // what the request says; nil for nothing
	thinks               bool   // what comes of it

	digest   digest // what the answer depends on
	promptID digest // model and messages, for faults
	hashed   []byte // scratch
	values   []byte // scratch: decoded strings
	refusal  *failure
}

func (r *chatRequest) refuse(param, format string, args ...any) {
	if r.refusal == nil {
		r.refusal = badRequest(param, format, args...)
	}
}

// roles are the roles of messages; their order gives the ids of tokenRole.
var roles = [...]string{"system", "user", "assistant", "tool", "developer"}

// parse reads a chat completion. A *failure says what is wrong with it.
func (r *chatRequest) parse(body []byte, find func(name []byte) (*served, error)) error {
	*r = chatRequest{
		prompt: r.prompt[:0], stops: r.stops[:0], stopIDs: r.stopIDs[:0], hashed: r.hashed[:0], values: r.values[:0],
		temperature: 1, choices: 1,
	}
	if !utf8.Valid(body) {
		return badRequest("", "the body is not UTF-8")
	}
	r.scan = scanner{data: body}
	s := &r.scan
	var model []byte
	hasModel, hasMessages := false, false
	s.members(func(key []byte) {
		if s.peek() == 'n' && s.word("null") { // null equals absent
			return
		}
		switch string(key) {
		case "model":
			model = r.string("model")
			hasModel = true
		case "messages":
			hasMessages = true
			r.messages()
		default:
			r.option(key)
		}
	})
	s.end()
	switch {
	case s.err != nil:
		return badRequest("", "%v", s.err)
	case r.refusal != nil:
		return r.refusal
	case !hasModel:
		return badRequest("model", "model: Field required")
	case !hasMessages || len(r.prompt) == 0:
		return badRequest("messages", "messages: at least one message is required")
	}
	r.promptTokens += promptTokens
	r.name = string(model)
	var err error
	if r.model, err = find(model); err != nil {
		return err
	}
	return r.check()
}

// string reads a string into the request's own memory.
func (r *chatRequest) string(param string) []byte {
	if r.scan.peek() != '"' {
		r.refuse(param, "%s: Input should be a valid string", param)
		r.scan.skip()
		return nil
	}
	start := len(r.values)
	r.values = r.scan.text(r.values)
	return r.values[start:len(r.values):len(r.values)]
}

// messages reads the conversation into prompt.
func (r *chatRequest) messages() {
	if r.scan.peek() != '[' {
		r.refuse("messages", "messages: Input should be a valid list")
		r.scan.skip()
		return
	}
	for index := 0; ; index++ {
		if index == 0 {
			r.scan.open('[')
		}
		first := index == 0
		if !r.scan.next(']', &first) {
			return
		}
		r.message(index)
	}
}

func (r *chatRequest) message(index int) {
	if r.scan.peek() != '{' {
		r.refuse("messages", "messages[%d]: Input should be an object", index)
		r.scan.skip()
		return
	}
	role, content := -1, []byte(nil)
	r.scan.members(func(key []byte) {
		switch string(key) {
		case "role":
			role = slices.Index(roles[:], string(r.string("messages.role")))
		case "content":
			content = r.content(index)
		default:
			r.scan.skip()
		}
	})
	if role < 0 {
		r.refuse("messages", "messages[%d].role: one of %q is required", index, roles)
		return
	}
	r.prompt = append(r.prompt, roles[role]...)
	r.prompt = append(r.prompt, 0)
	start := len(r.prompt)
	r.prompt = append(r.prompt, content...)
	if roles[role] == "user" {
		r.lastUser = [2]int{start, len(r.prompt)}
	}
	r.prompt = append(r.prompt, 0)
	r.promptTokens += messageTokens + countTokens(content)
}

// content reads a message's text: a string, null, or a list of text parts.
func (r *chatRequest) content(index int) []byte {
	s := &r.scan
	switch {
	case s.peek() == '"':
		return r.string("messages.content")
	case s.word("null"):
		return nil
	case s.peek() != '[':
		r.refuse("messages", "messages[%d].content: Input should be a string or a list of parts", index)
		s.skip()
		return nil
	}
	var joined []byte
	s.items(func() {
		kind, text := "", []byte(nil)
		if s.peek() != '{' {
			r.refuse("messages", "messages[%d].content: a part should be an object", index)
			s.skip()
			return
		}
		s.members(func(key []byte) {
			switch string(key) {
			case "type":
				kind = string(r.string("messages.content.type"))
			case "text":
				text = r.string("messages.content.text")
			default:
				s.skip()
			}
		})
		if kind != "text" {
			r.refuse("messages", "messages[%d].content: parts of type %q are not simulated, only \"text\"", index, kind)
		}
		joined = append(joined, text...)
	})
	return joined
}

// check applies the rules that tie fields together.
func (r *chatRequest) check() error {
	switch {
	case r.topLogprobs > 0 && !r.logprobs:
		return badRequest("top_logprobs", "when using `top_logprobs`, `logprobs` must be set to true")
	case r.maxTokens > 0 && r.minTokens > r.maxTokens:
		return badRequest("min_tokens", "min_tokens must be less than or equal to max_tokens=%d, got %d", r.maxTokens, r.minTokens)
	case r.model.embeds:
		return badRequest("model", "The model %s does not support Chat Completions API", strconv.Quote(r.name))
	}
	r.thinks = r.model.thinks && (r.thinking == nil || *r.thinking)
	if err := r.model.fits(r.promptTokens, r.maxTokens, "messages"); err != nil {
		return err
	}
	r.hash()
	return nil
}

// fits refuses what exceeds the context, in vLLM's words.
func (m *served) fits(prompt, answer int, what string) error {
	f := &failure{status: 400, kind: "BadRequestError", param: "input_tokens"}
	switch {
	case prompt > m.context, prompt == m.context && !m.embeds: // an answer needs room for a token
		f.text = fmt.Sprintf("This model's maximum context length is %d tokens. However, your request has %d input tokens. "+
			"Please reduce the length of the %s.", m.context, prompt, what)
	case prompt+answer > m.context:
		f.text = fmt.Sprintf("This model's maximum context length is %d tokens. However, you requested %d tokens (%d in the %s, %d in the completion). "+
			"Please reduce the length of the %s or completion.", m.context, prompt+answer, prompt, what, answer, what)
	default:
		return nil
	}
	return f
}

// limit is the largest length of the answer.
func (r *chatRequest) limit() int {
	room := r.model.context - r.promptTokens
	if r.maxTokens > 0 {
		return min(r.maxTokens, room)
	}
	return room
}

// hash computes what the answer depends on.
func (r *chatRequest) hash() {
	h := append(r.hashed[:0], r.model.id...)
	h = append(h, 0)
	h = append(h, r.prompt...)
	r.promptID = sha256.Sum256(h)
	h = append(h[:0], r.promptID[:]...)
	h = binary.LittleEndian.AppendUint64(h, uint64(r.model.seed))
	if r.seed != nil && r.temperature != 0 {
		h = binary.LittleEndian.AppendUint64(h, uint64(*r.seed))
	}
	r.digest = sha256.Sum256(h)
	r.hashed = h
}

// stopsAt reports whether a token id ends the answer.
func (r *chatRequest) stopsAt(id int) bool { return slices.Contains(r.stopIDs, id) }

// integer reads a whole number within bounds.
func (r *chatRequest) integer(param string, low, high int64) int64 {
	if b := r.scan.peek(); b != '-' && b-'0' >= 10 {
		r.refuse(param, "%s: Input should be a valid integer", param)
		r.scan.skip()
		return low
	}
	text := string(r.scan.number())
	value, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		real, realErr := strconv.ParseFloat(text, 64)
		if realErr != nil || real != math.Trunc(real) || math.Abs(real) > 1<<62 {
			r.refuse(param, "%s: Input should be a valid integer", param)
			return low
		}
		value = int64(real)
	}
	if value < low || value > high {
		r.refuse(param, "%s must be between %d and %d, got %d", param, low, high, value)
		return low
	}
	return value
}

// real reads a number within bounds; open excludes the lower one.
func (r *chatRequest) real(param string, low, high float64, open bool) float64 {
	if b := r.scan.peek(); b != '-' && b-'0' >= 10 {
		r.refuse(param, "%s: Input should be a valid number", param)
		r.scan.skip()
		return low
	}
	value, err := strconv.ParseFloat(string(r.scan.number()), 64)
	if err != nil || value < low || value > high || open && value == low {
		r.refuse(param, "%s must be in %s, got %v", param, interval(low, high, open), value)
	}
	return value
}

func interval(low, high float64, open bool) string {
	left, right := "[", "]"
	if open {
		left = "("
	}
	if math.IsInf(high, 1) {
		return fmt.Sprintf("%s%v, infinity)", left, low)
	}
	return fmt.Sprintf("%s%v, %v%s", left, low, high, right)
}

// boolean reads true or false.
func (r *chatRequest) boolean(param string) bool {
	switch {
	case r.scan.word("true"):
		return true
	case r.scan.word("false"):
		return false
	}
	r.refuse(param, "%s: Input should be a valid boolean", param)
	r.scan.skip()
	return false
}
