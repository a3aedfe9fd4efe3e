package openai

import (
	"bytes"
	"sync"
)

const (
	// maxRaw limits the text of a rejected answer in an error, in bytes.
	maxRaw = 64 << 10
	// keepScratch is the largest capacity in bytes of a buffer that goes back to the
	// pool with its reply, so that the memory of one long answer is freed.
	keepScratch = 64 << 10
	// maxWord limits machine-readable words of a reply, such as finish reasons, in
	// bytes.
	maxWord = 48
	// maxModel limits the name of a model in a reply, in bytes.
	maxModel = 256
	// maxErrorText limits the message of an error inside a reply, in bytes.
	maxErrorText = 4 << 10

	// finishRepetition is vLLM's finish reason for an answer that repetition_detection
	// ended. The job asked for repetition_detection, and a retry would end in the same
	// way.
	finishRepetition = "repetition"
)

// A replyReader reads one answer and stores the values that it has read. The pool named
// replies reuses replyReader structs.
type replyReader struct {
	scanner
	limit int // maximum length of the content and of the reasoning, in bytes

	choices   bool    // at least one choice was read
	index     float64 // index of the choice that is used, which is the lowest one
	content   []byte
	reasoning []byte
	refusal   []byte
	finish    []byte
	model     []byte // name of the model in the reply; empty if the reply has no name
	usage     bool   // the reply has the field usage
	input     int64  // tokens of the prompt
	cached    int64  // tokens of the prompt that were in the prefix cache
	output    int64  // generated tokens
	logprobs  logprobSum
	fault     serverFault // an error object inside a reply with status 200
	scratch   []byte      // buffer for short-lived texts
	events    eventReader // the stream that scanStream reads
	unparsed  bool        // the server did not separate the reasoning from the answer
}

var replies = sync.Pool{New: func() any { return new(replyReader) }}

// newReplyReader takes a reply from the pool and prepares it to read the body src. limit is
// the maximum length of the answer's text in bytes. thinking means that the model
// reasons before it answers.
func newReplyReader(src windowSource, limit int, thinking bool) *replyReader {
	r := replies.Get().(*replyReader)
	r.reset(src)
	r.limit = limit
	r.choices, r.index, r.usage, r.input, r.cached, r.output = false, 0, false, 0, 0, 0
	r.content, r.reasoning, r.refusal, r.finish = r.content[:0], r.reasoning[:0], r.refusal[:0], r.finish[:0]
	r.model = r.model[:0]
	r.logprobs = logprobSum{thinking: thinking}
	r.fault = serverFault{}
	r.unparsed = false
	return r
}

// release puts r back into the pool. The caller must not use r, or a slice of r,
// afterwards.
func (r *replyReader) release() {
	r.src, r.events = nil, eventReader{}
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

// scanChat reads the body of a chat completion into r and returns r.err. If a key
// occurs twice, r has the last value.
func (r *replyReader) scanChat() error {
	for k := r.firstKey(); k != nil; k = r.nextKey() {
		switch string(k) {
		case "choices":
			r.scanChoices()
		case "model":
			r.scanModel()
		case "usage":
			r.scanUsage()
		case "error":
			r.scanFault()
		default:
			r.skipValue()
		}
	}
	r.expectEnd()
	return r.err
}

// scanModel reads the name of the model. It treats a value that is no string as a
// missing name.
func (r *replyReader) scanModel() {
	r.model = r.model[:0]
	if r.peek() != '"' {
		r.skipValue()
		return
	}
	r.model = r.readString(r.model, maxModel, true)
}

// scanChoices reads the list of choices and uses the choice with the lowest index.
// Rowmill never asks for more than one choice, but some servers send more, in any
// order.
func (r *replyReader) scanChoices() {
	r.choices = false
	if r.consumeNull() {
		return
	}
	for more := r.firstItem(); more; more = r.nextItem() {
		switch {
		case !r.choices:
			r.choices = true
			r.scanChoice()
		case r.index == 0:
			r.skipValue()
		default:
			r.scanFurtherChoice()
		}
	}
}

// scanFurtherChoice reads one more choice and uses, of this choice and the choice in r,
// the one with the lower index.
func (r *replyReader) scanFurtherChoice() {
	index, sums := r.index, r.logprobs
	content, reasoning, refusal, finish := bytes.Clone(r.content), bytes.Clone(r.reasoning), bytes.Clone(r.refusal), bytes.Clone(r.finish)
	if r.scanChoice(); r.index >= index {
		r.index, r.logprobs = index, sums
		r.content, r.reasoning, r.refusal, r.finish = content, reasoning, refusal, finish
	}
}

// scanIndex reads the index of a choice. It returns 0 if the value is no number.
func (r *replyReader) scanIndex() float64 {
	if r.peek()-'0' < 10 {
		return r.readNumber()
	}
	r.skipValue()
	return 0
}

// scanChoice reads one choice and replaces the choice in r.
func (r *replyReader) scanChoice() {
	r.index = 0
	r.content, r.reasoning, r.refusal, r.finish = r.content[:0], r.reasoning[:0], r.refusal[:0], r.finish[:0]
	r.logprobs = logprobSum{thinking: r.logprobs.thinking}
	for k := r.firstKey(); k != nil; k = r.nextKey() {
		switch string(k) {
		case "message":
			r.content, r.reasoning, r.refusal = r.content[:0], r.reasoning[:0], r.refusal[:0]
			r.scanTexts()
		case "index":
			r.index = r.scanIndex()
		case "logprobs":
			r.scanLogprobs(logprobSum{thinking: r.logprobs.thinking})
		case "finish_reason":
			r.finish = r.finish[:0]
			if !r.consumeNull() {
				r.finish = r.readString(r.finish, maxWord, true)
			}
		default:
			r.skipValue()
		}
	}
}

// scanTexts reads a message, or a part of a message, and adds its texts to r. Servers
// put the reasoning into reasoning_content or reasoning, and some into both: scanTexts
// uses the first field that is not empty.
func (r *replyReader) scanTexts() {
	content, reasoning := len(r.content), len(r.reasoning)
	if r.consumeNull() {
		return
	}
	for k := r.firstKey(); k != nil; k = r.nextKey() {
		switch string(k) {
		case "content":
			r.content = r.content[:content]
			switch {
			case r.peek() == '[':
				r.scanBlocks()
			case !r.consumeNull():
				r.content = r.readString(r.content, r.limit-content, false)
			}
		case "reasoning_content", "reasoning":
			if len(r.reasoning) > reasoning {
				r.skipValue()
			} else if !r.consumeNull() {
				r.reasoning = r.readString(r.reasoning, r.limit-reasoning, false)
			}
		case "refusal":
			if r.peek() != '"' {
				r.skipValue()
			} else {
				r.refusal = r.readString(r.refusal, maxErrorText-len(r.refusal), true)
			}
		default:
			r.skipValue()
		}
	}
}

// scanBlocks reads content that is a list of blocks, such as {"type": "text", "text"} and
// {"type": "thinking", "thinking"}. It adds their texts to the content and to the
// reasoning.
func (r *replyReader) scanBlocks() {
	for more := r.firstItem(); more; more = r.nextItem() {
		if r.peek() == '{' {
			r.scanBlock()
		} else {
			r.skipValue()
		}
	}
}

// scanBlock reads one block of content and adds its text to the content or to the
// reasoning.
func (r *replyReader) scanBlock() {
	at, thinks := len(r.content), false
	for k := r.firstKey(); k != nil; k = r.nextKey() {
		key := string(k)
		switch next := r.peek(); {
		case key == "type" && next == '"':
			word := r.readWord()
			thinks = thinks || word == "thinking" || word == "reasoning"
		case (key == "text" || key == "thinking" || key == "reasoning" || key == "content") && next == '"':
			thinks = thinks || key == "thinking" || key == "reasoning"
			r.content = r.readString(r.content, r.limit-len(r.content), false)
		case key == "refusal" && next == '"': // the OpenAI API allows a refusal in place of a text
			r.refusal = r.readString(r.refusal, maxErrorText-len(r.refusal), true)
		case (key == "thinking" || key == "summary") && next == '[': // thinking: Mistral; summary: Databricks
			thinks = true
			r.scanBlocks()
		default:
			r.skipValue()
		}
	}
	if thinks {
		r.reasoning = append(r.reasoning, r.content[at:]...)
		r.content = r.content[:at]
	}
}

// scanFault reads an error object inside a reply with status 200, such as SGLang's
// error for a full queue.
func (r *replyReader) scanFault() {
	r.fault = serverFault{}
	if r.consumeNull() {
		return
	}
	r.fault.found = true
	if r.peek() != '{' {
		r.skipValue()
		return
	}
	for k := r.firstKey(); k != nil; k = r.nextKey() {
		key := string(k) // copy it: peek may overwrite the window
		next := r.peek()
		switch {
		case key == "code" && next-'0' < 10:
			if status := r.readNumber(); status >= 400 && status < 600 {
				r.fault.status = int(status)
			}
		case next != '"':
			r.skipValue()
		case key == "code":
			r.fault.code = r.readWord()
		case key == "type":
			r.fault.kind = r.readWord()
		case key == "message":
			r.scratch = r.readString(r.scratch[:0], maxErrorText, true)
			r.fault.message = string(r.scratch)
		default:
			r.skipValue()
		}
	}
}

// readWord reads a short machine-readable string and cuts it at maxWord bytes.
func (r *replyReader) readWord() string {
	r.scratch = r.readString(r.scratch[:0], maxWord, true)
	return string(r.scratch)
}

// scanUsage reads the numbers of input and output tokens.
func (r *replyReader) scanUsage() {
	r.usage, r.input, r.cached, r.output = false, 0, 0, 0
	if r.consumeNull() {
		return
	}
	r.usage = true
	for k := r.firstKey(); k != nil; k = r.nextKey() {
		switch string(k) {
		case "prompt_tokens":
			r.input = r.readCountOrNull()
		case "completion_tokens":
			r.output = r.readCountOrNull()
		case "prompt_tokens_details":
			r.scanCachedTokens()
		default:
			r.skipValue()
		}
	}
}

// scanCachedTokens reads the number of prompt tokens that came from the prefix cache.
func (r *replyReader) scanCachedTokens() {
	r.cached = 0
	if r.consumeNull() {
		return
	}
	for k := r.firstKey(); k != nil; k = r.nextKey() {
		if string(k) != "cached_tokens" {
			r.skipValue()
			continue
		}
		r.cached = r.readCountOrNull()
	}
}

// readCountOrNull reads a whole number. It returns 0 for null.
func (r *replyReader) readCountOrNull() int64 {
	if r.consumeNull() {
		return 0
	}
	return r.readCount()
}
