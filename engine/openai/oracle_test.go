package openai

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"strings"
)

// found holds the fields that scanChat reads from a body.
type found struct {
	Choices            bool
	Content, Reasoning string
	Finish             string
	Input, Output      int64
	Cached             int64
	Sum                float64
	Count              int64
	Fault              bool
}

// marker is the content of the pooled replies, as if from another account's answer.
var marker = strings.Repeat("MARKER", 50)

// mark fills the pool of replies with markers.
func mark() {
	r := newReplyReader(&bytesSource{}, 1<<20, true)
	r.choices, r.input, r.cached, r.output = true, 77_777, 77_777, 77_777
	for _, b := range []*[]byte{&r.content, &r.reasoning, &r.finish, &r.scratch} {
		*b = append((*b)[:0], marker...)
	}
	r.logprobs = logprobSum{sum: -77_777, count: 77_777}
	r.fault = serverFault{found: true, message: marker, kind: marker}
	r.unparsed = true
	r.release()
}

func scanned(src windowSource, limit int) (found, error) {
	mark()
	r := newReplyReader(src, limit, false)
	defer r.release()
	if err := r.scanChat(); err != nil {
		return found{}, err
	}
	return r.found(), nil
}

func (r *replyReader) found() found {
	return found{
		Choices: r.choices, Content: toValidUTF8(r.content), Reasoning: toValidUTF8(r.reasoning),
		Finish: toValidUTF8(r.finish), Input: r.input, Cached: r.cached, Output: r.output,
		Sum: r.logprobs.sum, Count: r.logprobs.count, Fault: r.fault.found,
	}
}

// oracle reads the same fields with encoding/json. It returns false if the body is not
// a JSON object or a field has an unexpected type.
func oracle(body []byte) (out found, ok bool) {
	defer func() {
		if recover() != nil { // a type assertion
			out, ok = found{}, false
		}
	}()
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var top any
	if err := d.Decode(&top); err != nil {
		return found{}, false
	}
	if _, err := d.Token(); err != io.EOF {
		return found{}, false
	}
	text := func(v any) string {
		if v == nil {
			return ""
		}
		return v.(string)
	}
	number := func(v any) float64 {
		f, err := v.(json.Number).Float64()
		if err != nil {
			panic(err)
		}
		return f
	}
	count := func(v any) int64 {
		if v == nil {
			return 0
		}
		f := number(v)
		if f < 0 || f != math.Trunc(f) || f > 1<<53 {
			panic("no count")
		}
		return int64(f)
	}
	object := func(v any) map[string]any {
		if v == nil {
			return nil
		}
		return v.(map[string]any)
	}
	list := func(v any) []any {
		if v == nil {
			return nil
		}
		return v.([]any)
	}
	m := top.(map[string]any)
	out.Fault = m["error"] != nil
	usage := object(m["usage"])
	out.Input, out.Output = count(usage["prompt_tokens"]), count(usage["completion_tokens"])
	out.Cached = count(object(usage["prompt_tokens_details"])["cached_tokens"])
	if choices := list(m["choices"]); len(choices) > 0 {
		out.Choices = true
		choice := choices[0].(map[string]any)
		if index, is := choice["index"].(json.Number); is && number(index) != 0 && len(choices) > 1 {
			panic("another choice may count")
		}
		message := object(choice["message"])
		out.Content, out.Finish = text(message["content"]), text(choice["finish_reason"])
		out.Reasoning = text(message["reasoning_content"])
		if other := text(message["reasoning"]); out.Reasoning == "" {
			out.Reasoning = other
		}
		for _, token := range list(object(choice["logprobs"])["content"]) {
			if v := token.(map[string]any)["logprob"]; v != nil {
				out.Sum += min(max(number(v), leastLogprob), 0)
				out.Count++
			}
		}
	}
	return out, true
}

// comparableBody reports whether the oracle and the scanner must agree: no known key
// occurs twice in the body or has escapes, reasoning has one name, and nothing exceeds
// the scanner's own limits.
func comparableBody(body []byte) bool {
	if bytes.Contains(body, []byte(`"reasoning"`)) && bytes.Contains(body, []byte(`"reasoning_content"`)) {
		return false
	}
	for _, key := range []string{
		"choices", "message", "logprobs", "finish_reason", "content", "reasoning_content",
		"reasoning", "usage", "prompt_tokens", "completion_tokens", "error", "logprob",
		"prompt_tokens_details", "cached_tokens",
	} {
		if bytes.Count(body, []byte(`"`+key+`"`)) > 1 && key != "logprob" && key != "content" {
			return false
		}
	}
	depth, deepest, digits, longest := 0, 0, 0, 0
	for _, c := range body {
		switch c {
		case '{', '[':
			depth++
			deepest = max(deepest, depth)
		case '}', ']':
			depth--
		}
		if c-'0' < 10 || c == '.' || c|0x20 == 'e' || c == '-' || c == '+' {
			digits++
			longest = max(longest, digits)
		} else {
			digits = 0
		}
	}
	return deepest < maxDepth && longest < maxNumber
}

// duplicated reports whether any object of the body repeats a key. The oracle and the
// scanner both keep the last value, but the scanner has checked the types of the first
// value too.
func duplicated(body []byte) bool {
	d := json.NewDecoder(bytes.NewReader(body))
	type frame struct {
		keys  map[string]bool // nil for an array
		value bool            // the next token is a value, not a key
	}
	var stack []frame
	for {
		token, err := d.Token()
		if err != nil {
			return false
		}
		top := len(stack) - 1
		switch delim, _ := token.(json.Delim); delim {
		case '{':
			stack = append(stack, frame{keys: map[string]bool{}})
			continue
		case '[':
			stack = append(stack, frame{})
			continue
		case '}', ']':
			stack = stack[:top]
			top--
		default:
			if top >= 0 && stack[top].keys != nil && !stack[top].value {
				key, _ := token.(string)
				if stack[top].keys[key] {
					return true
				}
				stack[top].keys[key], stack[top].value = true, true
				continue
			}
		}
		if top >= 0 {
			stack[top].value = false
		}
	}
}
