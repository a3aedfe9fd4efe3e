package openai

import (
	"bytes"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
)

const (
	// maxRaw is how much of an answer that was not accepted is shown.
	maxRaw = 64 << 10
	// keepScratch is the largest buffer that goes back to the pool, so that one
	// long answer does not occupy its memory for ever.
	keepScratch = 64 << 10
	// maxWord bounds the machine words of a reply, such as finish reasons.
	maxWord = 48
)

// A reply is the state of reading one answer. It is reused.
type reply struct {
	scanner
	limit int // bytes of text accepted

	choices   bool // there is at least one
	content   []byte
	reasoning []byte
	finish    []byte
	input     int64
	output    int64
	logprobs  logprobs
	fault     serverFault // an error object inside a reply with status 200
	scratch   []byte
}

var replies = sync.Pool{New: func() any { return new(reply) }}

// newReply takes a reply from the pool. limit bounds its text in bytes;
// thinking says that the model reasons before it answers.
func newReply(src source, limit int, thinking bool) *reply {
	r := replies.Get().(*reply)
	r.reset(src)
	r.limit = limit
	r.choices, r.input, r.output = false, 0, 0
	r.content, r.reasoning, r.finish = r.content[:0], r.reasoning[:0], r.finish[:0]
	r.logprobs = logprobs{thinking: thinking}
	r.fault = serverFault{}
	return r
}

// release gives r back; nothing that points into it may be kept.
func (r *reply) release() {
	r.src = nil
	if cap(r.content) > keepScratch {
		r.content = nil
	}
	if cap(r.reasoning) > keepScratch {
		r.reasoning = nil
	}
	if cap(r.scratch) > keepScratch {
		r.scratch = nil
	}
	replies.Put(r)
}

// scanChat reads the body of a chat completion. What it found is in r; the
// result is r.err. Where a key occurs twice the last one counts.
func (r *reply) scanChat() error {
	for k := r.firstKey(); k != nil; k = r.nextKey() {
		switch string(k) {
		case "choices":
			r.scanChoices()
		case "usage":
			r.scanUsage()
		case "error":
			r.scanFault()
		default:
			r.skip()
		}
	}
	r.end()
	return r.err
}

// scanChoices reads the first choice; we never ask for more.
func (r *reply) scanChoices() {
	r.choices = false
	if r.null() {
		return
	}
	for more := r.firstItem(); more; more = r.nextItem() {
		if r.choices {
			r.skip()
			continue
		}
		r.choices = true
		r.scanChoice()
	}
}

func (r *reply) scanChoice() {
	r.content, r.reasoning, r.finish = r.content[:0], r.reasoning[:0], r.finish[:0]
	r.logprobs = logprobs{thinking: r.logprobs.thinking}
	for k := r.firstKey(); k != nil; k = r.nextKey() {
		switch string(k) {
		case "message":
			r.scanMessage()
		case "logprobs":
			r.scanLogprobs()
		case "finish_reason":
			r.finish = r.finish[:0]
			if !r.null() {
				r.finish = r.text(r.finish, maxWord, true)
			}
		default:
			r.skip()
		}
	}
}

// scanMessage reads the answer. Servers name its reasoning reasoning_content or
// reasoning, some give both: the first that is not empty counts.
func (r *reply) scanMessage() {
	r.content, r.reasoning = r.content[:0], r.reasoning[:0]
	if r.null() {
		return
	}
	for k := r.firstKey(); k != nil; k = r.nextKey() {
		switch string(k) {
		case "content":
			r.content = r.content[:0]
			if !r.null() {
				r.content = r.text(r.content, r.limit, false)
			}
		case "reasoning_content", "reasoning":
			if len(r.reasoning) > 0 {
				r.skip()
			} else if !r.null() {
				r.reasoning = r.text(r.reasoning, r.limit, false)
			}
		default:
			r.skip()
		}
	}
}

// scanFault reads an error inside a reply whose status was 200, such as SGLang's
// full queue. Of it only the machine words are used.
func (r *reply) scanFault() {
	r.fault = serverFault{}
	if r.null() {
		return
	}
	r.fault.found = true
	if r.peek() != '{' {
		r.skip()
		return
	}
	for k := r.firstKey(); k != nil; k = r.nextKey() {
		switch isCode := string(k) == "code"; {
		case (isCode || string(k) == "type") && r.peek() == '"':
			r.scratch = r.text(r.scratch[:0], maxWord, true)
			if isCode {
				r.fault.code = string(r.scratch)
			} else {
				r.fault.kind = string(r.scratch)
			}
		default:
			r.skip()
		}
	}
}

func (r *reply) scanUsage() {
	r.input, r.output = 0, 0
	if r.null() {
		return
	}
	for k := r.firstKey(); k != nil; k = r.nextKey() {
		switch string(k) {
		case "prompt_tokens":
			r.input = 0
			if !r.null() {
				r.input = r.count()
			}
		case "completion_tokens":
			r.output = 0
			if !r.null() {
				r.output = r.count()
			}
		default:
			r.skip()
		}
	}
}

// answer makes the reply that was read, or says why it cannot be accepted.
func (r *reply) answer() (engine.Reply, *engine.Error) {
	if r.fault.found && !r.choices {
		return engine.Reply{}, &engine.Error{
			Class: engine.Moment, Code: r.fault.word("error_in_reply"),
			Message: "the server reported an error inside its reply",
		}
	}
	if !r.choices {
		return engine.Reply{}, &engine.Error{
			Class: engine.Moment, Code: "no_choices", Message: "the server's reply holds no answer",
		}
	}
	out := engine.Reply{InputTokens: r.input, OutputTokens: r.output}
	switch string(r.finish) {
	case string(rowmill.FinishStop):
		out.Finish = rowmill.FinishStop
	case string(rowmill.FinishLength):
		out.Finish = rowmill.FinishLength
	default:
		return engine.Reply{}, r.unfinished()
	}
	content, reasoning := r.content, r.reasoning
	if r.logprobs.thinking && len(reasoning) == 0 {
		reasoning, content = splitThinking(content)
	}
	out.Content, out.Reasoning = validText(content), validText(reasoning)
	out.LogprobSum, out.LogprobCount = r.logprobs.result(len(content), len(reasoning))
	return out, nil
}

// unfinished is the error of an answer that ended for another reason than stop
// or length, such as abort.
func (r *reply) unfinished() *engine.Error {
	raw := r.content[:min(len(r.content), maxRaw)]
	e := &engine.Error{Class: engine.Moment, Code: "unfinished", Raw: strings.ToValidUTF8(string(raw), "")}
	if word := safeWord(r.finish); word != "" {
		e.Message = "the server ended the answer with finish_reason " + word
	} else {
		e.Message = "the server ended the answer without a finish_reason"
	}
	return e
}

const (
	openThink  = "<think>"
	closeThink = "</think>"
)

// splitThinking parts an answer whose server has no parser for reasoning at the
// first </think>. The opening tag is often in the prompt and not in the answer.
// Without a closing tag all of it is the answer, unless it opens with <think>:
// then it was cut off while thinking.
func splitThinking(content []byte) (reasoning, answer []byte) {
	head := bytes.TrimLeft(content, " \t\r\n")
	opened := bytes.HasPrefix(head, []byte(openThink))
	if opened {
		head = head[len(openThink):]
	}
	before, after, closed := bytes.Cut(head, []byte(closeThink))
	switch {
	case closed:
		return bytes.Trim(before, " \t\r\n"), bytes.TrimLeft(after, " \t\r\n")
	case opened:
		return bytes.Trim(head, " \t\r\n"), nil
	}
	return nil, content
}

// safeWord returns b where it is a plain machine word, else nothing: what a
// server says elsewhere may quote a prompt.
func safeWord(b []byte) string {
	if len(b) == 0 || len(b) >= maxWord || !utf8.Valid(b) {
		return ""
	}
	for _, c := range b {
		if c|0x20 >= 'a' && c|0x20 <= 'z' || c-'0' < 10 || c == '_' || c == '-' || c == '.' {
			continue
		}
		return ""
	}
	return string(b)
}
