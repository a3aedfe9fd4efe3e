package openai

import (
	"bytes"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
)

// Warnings about the answers of a server. A job gets each warning once.
const (
	noticeFinish    = "The server gives no finish_reason: its answers are treated as complete."
	noticeReasoning = "The server put answers into the field for reasoning (reasoning_content) and nothing into content: the reasoning text is used as the answer. The server may use a reasoning parser for a model that does not reason."
	noticeEmpty     = "Some answers are empty: the model stopped at once."
	noticeUsage     = "The server does not report the tokens that it used (usage): Rowmill counts them."
)

const (
	openThink  = "<think>"
	closeThink = "</think>"
)

// reportedError returns the error that the server reports inside a reply. If the reply has
// no part of an answer, the error has the same class as a refusal with this status.
// Otherwise the server had accepted the row, so the error is transient.
func (r *replyReader) reportedError(asked requestSettings, promptTexts ...[]byte) *engine.Error {
	x := refusal{status: r.fault.status, fault: r.fault}
	if x.status == 0 {
		x.status = http.StatusInternalServerError
	}
	e := x.classify(asked, promptTexts...)
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

// buildReply returns the complete reply, or the error that rejects it. isWholeBody means
// that the reply came as one body and not as a stream. If a whole body has both an answer
// and an error object, buildReply ignores the error object.
func (r *replyReader) buildReply(asked requestSettings, isWholeBody bool, promptTexts ...[]byte) (out engine.Reply, notices []string, refused *engine.Error) {
	if r.fault.found && (!isWholeBody || !r.choices) {
		return engine.Reply{}, nil, r.reportedError(asked, promptTexts...)
	}
	return r.buildAnswer(isWholeBody, asked.form != "")
}

// buildAnswer returns the complete reply, or the error that rejects it. isWholeBody means
// that the reply came as one body and not as a stream. isConstrained means that the job has
// a json_schema or structured_outputs. notices are warnings for the job.
func (r *replyReader) buildAnswer(isWholeBody, isConstrained bool) (out engine.Reply, notices []string, refused *engine.Error) {
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
		return engine.Reply{}, nil, withheldError(rowmill.RowContentFiltered, "the server withheld the answer for its content, with finish_reason "+plainWordOrEmpty(r.finish), r.content)
	case known:
		out.Finish = finish
	case word == "" && isWholeBody:
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
	if empty := len(bytes.TrimSpace(content)) == 0; empty && len(bytes.TrimSpace(reasoning)) > 0 && (!r.logprobs.thinking || isConstrained) {
		content, reasoning = reasoning, nil
		notices = append(notices, noticeReasoning)
	} else if empty && out.Finish == rowmill.FinishStop {
		notices = append(notices, noticeEmpty)
	}
	if !r.usage {
		notices = append(notices, noticeUsage)
	}
	out.Content, out.Reasoning = toValidUTF8(content), toValidUTF8(reasoning)
	out.LogprobSum, out.LogprobCount = r.logprobs.sumForAnswer(len(content), len(reasoning))
	return out, notices, nil
}

// withheldError returns the permanent error for an answer that the server or the model
// withholds.
func withheldError(code, message string, raw []byte) *engine.Error {
	return &engine.Error{
		Class: engine.RowFault, Status: http.StatusOK, Code: code, Message: message, Raw: strings.ToValidUTF8(string(raw[:min(len(raw), maxRaw)]), ""),
	}
}

// unfinishedError returns the error for an answer whose finish reason is unknown or missing,
// such as abort.
func (r *replyReader) unfinishedError() *engine.Error {
	raw := r.content[:min(len(r.content), maxRaw)]
	e := &engine.Error{Class: engine.Transient, Status: http.StatusOK, Code: "unfinished", Raw: strings.ToValidUTF8(string(raw), "")}
	if word := plainWordOrEmpty(r.finish); word != "" {
		e.Message = "the server ended the answer with finish_reason " + word
	} else {
		e.Message = "the server ended the answer without a finish_reason"
	}
	return e
}

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

// plainWordOrEmpty returns b if it is a plain machine-readable word, otherwise "". Any other
// text of a server may quote a prompt and must not get into errors.
func plainWordOrEmpty(b []byte) string {
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
