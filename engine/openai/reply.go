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
	// maxRaw limits the text of a rejected answer in errors.
	maxRaw = 64 << 10
	// keepScratch limits buffers that go back to the pool, so that one long answer does
	// not keep its memory.
	keepScratch = 64 << 10
	// maxWord limits machine-readable words of a reply, such as finish reasons.
	maxWord = 48
	// maxModel limits the name of a model in a reply.
	maxModel = 256
	// maxErrorText limits the message of an error inside a reply.
	maxErrorText = 4 << 10

	// finishRepetition is vLLM's reason for an answer that repetition_detection cut
	// off. The caller asked for that, and a retry would end the same way.
	finishRepetition = "repetition"
)

// A reply is the state of reading one answer. The pool replies reuses it.
type reply struct {
	scanner
	limit int // limit of the text, in bytes

	choices   bool    // there is at least one choice
	index     float64 // of the choice that counts: the lowest
	content   []byte
	reasoning []byte
	refusal   []byte
	finish    []byte
	model     []byte // empty if the server names none
	usage     bool   // the server reports usage
	input     int64
	cached    int64 // part of input
	output    int64
	logprobs  logprobs
	fault     serverFault // an error object inside a reply with status 200
	scratch   []byte
	events    events // the events of a stream
	unparsed  bool   // the server left the reasoning inside the answer
}

var replies = sync.Pool{New: func() any { return new(reply) }}

// newReply takes a reply from the pool. limit is the limit of its text in bytes;
// thinking means that the model reasons before it answers.
func newReply(src source, limit int, thinking bool) *reply {
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

// release puts r back into the pool. The caller must not keep a pointer into r.
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

// scanChat reads the body of a chat completion into r, and returns r.err. If a key occurs
// twice, the last one counts.
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
			r.skip()
		}
	}
	r.end()
	return r.err
}

// scanModel reads the name of the model. A value of another type names none.
func (r *reply) scanModel() {
	r.model = r.model[:0]
	if r.peek() != '"' {
		r.skip()
		return
	}
	r.model = r.text(r.model, maxModel, true)
}

// scanChoices reads the choice with the lowest index. No request asks for more than one, but
// some servers send more, in any order.
func (r *reply) scanChoices() {
	r.choices = false
	if r.null() {
		return
	}
	for more := r.firstItem(); more; more = r.nextItem() {
		switch {
		case !r.choices:
			r.choices = true
			r.scanChoice()
		case r.index == 0:
			r.skip()
		default:
			r.scanFurtherChoice()
		}
	}
}

// scanFurtherChoice reads a choice. If its index is not lower than the index of the choice
// before, it restores the choice before.
func (r *reply) scanFurtherChoice() {
	index, sums := r.index, r.logprobs
	content, reasoning, refusal, finish := bytes.Clone(r.content), bytes.Clone(r.reasoning), bytes.Clone(r.refusal), bytes.Clone(r.finish)
	if r.scanChoice(); r.index >= index {
		r.index, r.logprobs = index, sums
		r.content, r.reasoning, r.refusal, r.finish = content, reasoning, refusal, finish
	}
}

// scanIndex reads the index of a choice; 0 if it is not a number.
func (r *reply) scanIndex() float64 {
	if r.peek()-'0' < 10 {
		return r.number()
	}
	r.skip()
	return 0
}

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
			if !r.null() {
				r.finish = r.text(r.finish, maxWord, true)
			}
		default:
			r.skip()
		}
	}
}

// scanTexts reads a message, or part of a message, and adds its texts to the reply. Servers
// name the reasoning reasoning_content or reasoning, and some send both: the first that
// is not empty counts.
func (r *reply) scanTexts() {
	content, reasoning := len(r.content), len(r.reasoning)
	if r.null() {
		return
	}
	for k := r.firstKey(); k != nil; k = r.nextKey() {
		switch string(k) {
		case "content":
			r.content = r.content[:content]
			switch {
			case r.peek() == '[':
				r.scanBlocks()
			case !r.null():
				r.content = r.text(r.content, r.limit-content, false)
			}
		case "reasoning_content", "reasoning":
			if len(r.reasoning) > reasoning {
				r.skip()
			} else if !r.null() {
				r.reasoning = r.text(r.reasoning, r.limit-reasoning, false)
			}
		case "refusal":
			if r.peek() != '"' {
				r.skip()
			} else {
				r.refusal = r.text(r.refusal, maxErrorText-len(r.refusal), true)
			}
		default:
			r.skip()
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
			r.skip()
		}
	}
}

// scanBlock reads one block.
func (r *reply) scanBlock() {
	at, thinks := len(r.content), false
	for k := r.firstKey(); k != nil; k = r.nextKey() {
		key := string(k)
		switch next := r.peek(); {
		case key == "type" && next == '"':
			word := r.word()
			thinks = thinks || word == "thinking" || word == "reasoning"
		case (key == "text" || key == "thinking" || key == "reasoning" || key == "content") && next == '"':
			thinks = thinks || key == "thinking" || key == "reasoning"
			r.content = r.text(r.content, r.limit-len(r.content), false)
		case key == "refusal" && next == '"': // OpenAI's description allows it in place of a text
			r.refusal = r.text(r.refusal, maxErrorText-len(r.refusal), true)
		case (key == "thinking" || key == "summary") && next == '[': // Mistral; Databricks
			thinks = true
			r.scanBlocks()
		default:
			r.skip()
		}
	}
	if thinks {
		r.reasoning = append(r.reasoning, r.content[at:]...)
		r.content = r.content[:at]
	}
}

// scanFault reads an error inside a reply with status 200, such as SGLang's full queue.
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
		key := string(k) // before peek, which may move the window
		next := r.peek()
		switch {
		case key == "code" && next-'0' < 10:
			if status := r.number(); status >= 400 && status < 600 {
				r.fault.status = int(status)
			}
		case next != '"':
			r.skip()
		case key == "code":
			r.fault.code = r.word()
		case key == "type":
			r.fault.kind = r.word()
		case key == "message":
			r.scratch = r.text(r.scratch[:0], maxErrorText, true)
			r.fault.message = string(r.scratch)
		default:
			r.skip()
		}
	}
}

// word reads a string that should be a machine word.
func (r *reply) word() string {
	r.scratch = r.text(r.scratch[:0], maxWord, true)
	return string(r.scratch)
}

func (r *reply) scanUsage() {
	r.usage, r.input, r.cached, r.output = false, 0, 0, 0
	if r.null() {
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
			r.skip()
		}
	}
}

// scanCached reads how many tokens of the prompt came from the prefix cache.
func (r *reply) scanCached() {
	r.cached = 0
	if r.null() {
		return
	}
	for k := r.firstKey(); k != nil; k = r.nextKey() {
		if string(k) != "cached_tokens" {
			r.skip()
			continue
		}
		r.cached = r.countOrNull()
	}
}

// countOrNull reads a whole number; null counts as 0.
func (r *reply) countOrNull() int64 {
	if r.null() {
		return 0
	}
	return r.count()
}

// reported returns the error that the server reports inside a reply. If the reply has no
// part of an answer, the error counts like a refusal with this status. Otherwise the error
// is transient: the server had accepted the row.
func (r *reply) reported(asked asked, private ...[]byte) *engine.Error {
	x := refusal{status: r.fault.status, fault: r.fault}
	if x.status == 0 {
		x.status = http.StatusInternalServerError
	}
	e := x.classify(asked, private...)
	if r.fault.status == 0 {
		e.Status = http.StatusOK
	}
	word := r.fault.word("error_in_reply")
	switch {
	case r.choices && e.Class != engine.Moment && e.Class != engine.Busy:
		e.Class, e.TooLong, e.Code = engine.Moment, false, word
		e.Message = "the server broke off the answer with an error"
	case !e.TooLong:
		e.Code = word
	}
	return e
}

// finishReasons are the finish reasons of servers, in lower case. For each reason a file in
// testdata/answers names a server.
var finishReasons = map[string]rowmill.FinishReason{
	"stop": rowmill.FinishStop, "eos": rowmill.FinishStop, "eos_token": rowmill.FinishStop, "end_turn": rowmill.FinishStop,
	"stop_sequence": rowmill.FinishStop, "complete": rowmill.FinishStop, "finish_reason_stop": rowmill.FinishStop,

	"length": rowmill.FinishLength, "max_tokens": rowmill.FinishLength, "model_length": rowmill.FinishLength,
	"model_context_window_exceeded": rowmill.FinishLength, "finish_reason_max_tokens": rowmill.FinishLength, finishRepetition: rowmill.FinishLength,
}

// withheldReasons are the finish reasons of servers that withhold an answer because of its
// content, in lower case. A retry would give the same result.
var withheldReasons = map[string]bool{
	"content_filter": true, "content_filtered": true, "safety": true, "recitation": true, "blocklist": true, "prohibited_content": true, "spii": true, "language": true,
	"refusal": true, "guardrail_intervened": true, "sensitive": true, "error_toxic": true,
}

// read returns the reply or the error that rejects it. whole means that the reply came
// as one body. read ignores an error object in a whole body that also has an answer.
func (r *reply) read(asked asked, whole bool, private ...[]byte) (out engine.Reply, notices []string, refused *engine.Error) {
	if r.fault.found && (!whole || !r.choices) {
		return engine.Reply{}, nil, r.reported(asked, private...)
	}
	return r.answer(whole, asked.form != "")
}

// answer returns the reply or the error that rejects it. whole means that the reply
// came as one complete body; formed means that the job asked for JSON. notices are
// warnings for the job.
func (r *reply) answer(whole, formed bool) (out engine.Reply, notices []string, refused *engine.Error) {
	if !r.choices {
		return engine.Reply{}, nil, &engine.Error{
			Class: engine.Moment, Status: http.StatusOK, Code: "no_choices", Message: "the server's reply has no answer",
		}
	}
	out = engine.Reply{InputTokens: r.input, CachedTokens: min(r.cached, r.input), OutputTokens: r.output}
	word := strings.ToLower(string(r.finish))
	switch finish, known := finishReasons[word]; {
	case len(r.refusal) > 0 && len(bytes.TrimSpace(r.content)) == 0:
		return engine.Reply{}, nil, withheld(rowmill.RowRefused, "the model refused to answer", r.refusal)
	case withheldReasons[word]:
		return engine.Reply{}, nil, withheld(rowmill.RowContentFiltered, "the server withheld the answer for its content, with finish_reason "+safeWord(r.finish), r.content)
	case known:
		out.Finish = finish
	case word == "" && whole:
		out.Finish = rowmill.FinishStop
		notices = append(notices, noticeFinish)
	default:
		return engine.Reply{}, nil, r.unfinished()
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

// Warnings of a job, each given once.
const (
	noticeFinish    = "The server gives no finish_reason: its answers are treated as complete."
	noticeReasoning = "The server put answers into the field for reasoning (reasoning_content) and nothing into content: the reasoning text is used as the answer. The server may use a reasoning parser for a model that does not reason."
	noticeEmpty     = "Some answers are empty: the model stopped at once."
	noticeUsage     = "The server does not report the tokens that it used (usage): Rowmill counts them."
)

// withheld returns the error for an answer that the server withholds permanently.
func withheld(code, message string, raw []byte) *engine.Error {
	return &engine.Error{
		Class: engine.RowFault, Status: http.StatusOK, Code: code, Message: message, Raw: strings.ToValidUTF8(string(raw[:min(len(raw), maxRaw)]), ""),
	}
}

// unfinished returns the error for an answer with a finish reason that is neither stop
// nor length, such as abort.
func (r *reply) unfinished() *engine.Error {
	raw := r.content[:min(len(r.content), maxRaw)]
	e := &engine.Error{Class: engine.Moment, Status: http.StatusOK, Code: "unfinished", Raw: strings.ToValidUTF8(string(raw), "")}
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
// parser. The opening tag is often in the prompt and not in the answer. Without a
// closing tag the whole text is the answer, unless it begins with <think>: then the
// reasoning was cut off.
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

// safeWord returns b if it is a plain machine-readable word, otherwise "": other text
// of a server may quote a prompt.
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
