package openai

import (
	"bytes"
	"net/http"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
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

// A reply reads one answer and stores the values that it has read. The pool named
// replies reuses reply structs.
type reply struct {
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
	logprobs  logprobs
	fault     serverFault // an error object inside a reply with status 200
	scratch   []byte      // buffer for short-lived texts
	events    events      // the stream that scanStream reads
	unparsed  bool        // the server did not separate the reasoning from the answer
}

var replies = sync.Pool{New: func() any { return new(reply) }}

// newReply takes a reply from the pool and prepares it to read the body src. limit is
// the maximum length of the answer's text in bytes. thinking means that the model
// reasons before it answers.
func newReply(src windowSource, limit int, thinking bool) *reply {
	r := replies.Get().(*reply)
	r.reset(src)
	r.limit = limit
	r.choices, r.index, r.usage, r.input, r.cached, r.output = false, 0, false, 0, 0, 0
	r.content, r.reasoning, r.refusal, r.finish = r.content[:0], r.reasoning[:0], r.refusal[:0], r.finish[:0]
	r.model = r.model[:0]
	r.logprobs = logprobs{thinking: thinking}
	r.fault = serverFault{}
	r.unparsed = false
	return r
}

// release puts r back into the pool. The caller must not use r, or a slice of r,
// afterwards.
func (r *reply) release() {
	r.src, r.events = nil, events{}
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
func (r *reply) scanChat() error {
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
func (r *reply) scanModel() {
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
func (r *reply) scanChoices() {
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
func (r *reply) scanFurtherChoice() {
	index, sums := r.index, r.logprobs
	content, reasoning, refusal, finish := bytes.Clone(r.content), bytes.Clone(r.reasoning), bytes.Clone(r.refusal), bytes.Clone(r.finish)
	if r.scanChoice(); r.index >= index {
		r.index, r.logprobs = index, sums
		r.content, r.reasoning, r.refusal, r.finish = content, reasoning, refusal, finish
	}
}

// scanIndex reads the index of a choice. It returns 0 if the value is no number.
func (r *reply) scanIndex() float64 {
	if r.peek()-'0' < 10 {
		return r.readNumber()
	}
	r.skipValue()
	return 0
}

// scanChoice reads one choice and replaces the choice in r.
func (r *reply) scanChoice() {
	r.index = 0
	r.content, r.reasoning, r.refusal, r.finish = r.content[:0], r.reasoning[:0], r.refusal[:0], r.finish[:0]
	r.logprobs = logprobs{thinking: r.logprobs.thinking}
	for k := r.firstKey(); k != nil; k = r.nextKey() {
		switch string(k) {
		case "message":
			r.content, r.reasoning, r.refusal = r.content[:0], r.reasoning[:0], r.refusal[:0]
			r.scanTexts()
		case "index":
			r.index = r.scanIndex()
		case "logprobs":
			r.scanLogprobs(logprobs{thinking: r.logprobs.thinking})
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
func (r *reply) scanTexts() {
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
func (r *reply) scanBlocks() {
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
func (r *reply) scanBlock() {
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
func (r *reply) scanFault() {
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
func (r *reply) readWord() string {
	r.scratch = r.readString(r.scratch[:0], maxWord, true)
	return string(r.scratch)
}

// scanUsage reads the numbers of input and output tokens.
func (r *reply) scanUsage() {
	r.usage, r.input, r.cached, r.output = false, 0, 0, 0
	if r.consumeNull() {
		return
	}
	r.usage = true
	for k := r.firstKey(); k != nil; k = r.nextKey() {
		switch string(k) {
		case "prompt_tokens":
			r.input = r.countOrNull()
		case "completion_tokens":
			r.output = r.countOrNull()
		case "prompt_tokens_details":
			r.scanCached()
		default:
			r.skipValue()
		}
	}
}

// scanCached reads the number of prompt tokens that came from the prefix cache.
func (r *reply) scanCached() {
	r.cached = 0
	if r.consumeNull() {
		return
	}
	for k := r.firstKey(); k != nil; k = r.nextKey() {
		if string(k) != "cached_tokens" {
			r.skipValue()
			continue
		}
		r.cached = r.countOrNull()
	}
}

// countOrNull reads a whole number. It returns 0 for null.
func (r *reply) countOrNull() int64 {
	if r.consumeNull() {
		return 0
	}
	return r.readCount()
}

// reportedError returns the error that the server reports inside a reply. If the reply has
// no part of an answer, the error has the same class as a refusal with this status.
// Otherwise the server had accepted the row, so the error is transient.
func (r *reply) reportedError(asked requestSettings, private ...[]byte) *engine.Error {
	x := refusal{status: r.fault.status, fault: r.fault}
	if x.status == 0 {
		x.status = http.StatusInternalServerError
	}
	e := x.classify(asked, private...)
	if r.fault.status == 0 {
		e.Status = http.StatusOK
	}
	word := r.fault.safeCode("error_in_reply")
	switch {
	case r.choices && e.Class != engine.Transient && e.Class != engine.Busy:
		e.Class, e.TooLong, e.Code = engine.Transient, false, word
		e.Message = "the server broke off the answer with an error"
	case !e.TooLong:
		e.Code = word
	}
	return e
}

// finishReasons maps a server's finish reason, in lower case, to Rowmill's finish
// reason. For each entry a file in testdata/answers names a server that sends it.
var finishReasons = map[string]rowmill.FinishReason{
	"stop": rowmill.FinishStop, "eos": rowmill.FinishStop, "eos_token": rowmill.FinishStop, "end_turn": rowmill.FinishStop,
	"stop_sequence": rowmill.FinishStop, "complete": rowmill.FinishStop, "finish_reason_stop": rowmill.FinishStop,

	"length": rowmill.FinishLength, "max_tokens": rowmill.FinishLength, "model_length": rowmill.FinishLength,
	"model_context_window_exceeded": rowmill.FinishLength, "finish_reason_max_tokens": rowmill.FinishLength, finishRepetition: rowmill.FinishLength,
}

// withheldReasons are the finish reasons, in lower case, with which servers withhold an
// answer because of its content. A retry would give the same result.
var withheldReasons = map[string]bool{
	"content_filter": true, "content_filtered": true, "safety": true, "recitation": true, "blocklist": true, "prohibited_content": true, "spii": true, "language": true,
	"refusal": true, "guardrail_intervened": true, "sensitive": true, "error_toxic": true,
}

// buildReply returns the complete reply, or the error that rejects it. whole means that the
// reply came as one body and not as a stream. If a whole body has both an answer and an
// error object, read ignores the error object.
func (r *reply) buildReply(asked requestSettings, whole bool, private ...[]byte) (out engine.Reply, notices []string, refused *engine.Error) {
	if r.fault.found && (!whole || !r.choices) {
		return engine.Reply{}, nil, r.reportedError(asked, private...)
	}
	return r.buildAnswer(whole, asked.form != "")
}

// buildAnswer returns the complete reply, or the error that rejects it. whole means that the
// reply came as one body and not as a stream. formed means that the job has a
// json_schema or structured_outputs. notices are warnings for the job.
func (r *reply) buildAnswer(whole, formed bool) (out engine.Reply, notices []string, refused *engine.Error) {
	if !r.choices {
		return engine.Reply{}, nil, &engine.Error{
			Class: engine.Transient, Status: http.StatusOK, Code: "no_choices", Message: "the server's reply has no answer",
		}
	}
	out = engine.Reply{InputTokens: r.input, CachedTokens: min(r.cached, r.input), OutputTokens: r.output}
	word := strings.ToLower(string(r.finish))
	switch finish, known := finishReasons[word]; {
	case len(r.refusal) > 0 && len(bytes.TrimSpace(r.content)) == 0:
		return engine.Reply{}, nil, withheldError(rowmill.RowRefused, "the model refused to answer", r.refusal)
	case withheldReasons[word]:
		return engine.Reply{}, nil, withheldError(rowmill.RowContentFiltered, "the server withheld the answer for its content, with finish_reason "+safeWord(r.finish), r.content)
	case known:
		out.Finish = finish
	case word == "" && whole:
		out.Finish = rowmill.FinishStop
		notices = append(notices, noticeFinish)
	default:
		return engine.Reply{}, nil, r.unfinishedError()
	}
	content, reasoning := r.content, r.reasoning
	switch {
	case r.logprobs.thinking && len(reasoning) == 0:
		reasoning, content = splitThinking(content)
		r.unparsed = len(reasoning) > 0
	case !r.logprobs.thinking:
		content = cutEmptyThinking(content)
	}
	if empty := len(bytes.TrimSpace(content)) == 0; empty && len(bytes.TrimSpace(reasoning)) > 0 && (!r.logprobs.thinking || formed) {
		content, reasoning = reasoning, nil
		notices = append(notices, noticeReasoning)
	} else if empty && out.Finish == rowmill.FinishStop {
		notices = append(notices, noticeEmpty)
	}
	if !r.usage {
		notices = append(notices, noticeUsage)
	}
	out.Content, out.Reasoning = toValidUTF8(content), toValidUTF8(reasoning)
	out.LogprobSum, out.LogprobCount = r.logprobs.result(len(content), len(reasoning))
	return out, notices, nil
}

// Warnings about the answers of a server. A job gets each warning once.
const (
	noticeFinish    = "The server gives no finish_reason: its answers are treated as complete."
	noticeReasoning = "The server put answers into the field for reasoning (reasoning_content) and nothing into content: the reasoning text is used as the answer. The server may use a reasoning parser for a model that does not reason."
	noticeEmpty     = "Some answers are empty: the model stopped at once."
	noticeUsage     = "The server does not report the tokens that it used (usage): Rowmill counts them."
)

// withheldError returns the permanent error for an answer that the server or the model
// withholds.
func withheldError(code, message string, raw []byte) *engine.Error {
	return &engine.Error{
		Class: engine.RowFault, Status: http.StatusOK, Code: code, Message: message, Raw: strings.ToValidUTF8(string(raw[:min(len(raw), maxRaw)]), ""),
	}
}

// unfinishedError returns the error for an answer whose finish reason is unknown or missing,
// such as abort.
func (r *reply) unfinishedError() *engine.Error {
	raw := r.content[:min(len(r.content), maxRaw)]
	e := &engine.Error{Class: engine.Transient, Status: http.StatusOK, Code: "unfinished", Raw: strings.ToValidUTF8(string(raw), "")}
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

// splitThinking splits an answer at the first </think>, for servers without a reasoning
// parser. The opening tag is often in the prompt and not in the answer. If there is no
// closing tag, the whole text is the answer, except if it begins with <think>: then it
// is unfinished reasoning.
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

// cutEmptyThinking removes an empty <think> block from the beginning of an answer.
func cutEmptyThinking(content []byte) []byte {
	head, opened := bytes.CutPrefix(bytes.TrimLeft(content, " \t\r\n"), []byte(openThink))
	if !opened {
		return content
	}
	rest, closed := bytes.CutPrefix(bytes.TrimLeft(head, " \t\r\n"), []byte(closeThink))
	if !closed {
		return content
	}
	return bytes.TrimLeft(rest, " \t\r\n")
}

// safeWord returns b if it is a plain machine-readable word, otherwise "". Any other
// text of a server may quote a prompt and must not get into errors.
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
