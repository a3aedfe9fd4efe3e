package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/internal/textfmt"
)

// pathMessages is the path of Anthropic's Messages API. Its requests need a header with
// the version of the API.
const pathMessages = "/v1/messages"

// prepareRaw builds the parts of a raw job's requests that all rows share. The body of
// a request is:
//
//	{"model":"…" , <the fields of the row> }
func (c *preparedCall) prepareRaw(p engine.JobParams) {
	c.path = p.Path
	var more string
	if p.Path == pathMessages {
		more = "anthropic-version: 2023-06-01\r\n"
	}
	c.rawHead = c.engine.buildRequestHead(p.Path, more)
	c.prefix = textfmt.AppendString([]byte(`{"model":`), []byte(c.target.name))
	c.allowance = c.engine.answerTimeout(int64(max(p.ContextLen, p.Model.ContextLength)))
}

// appendRaw appends the body of a raw row's request to dst. The row's text is a JSON
// object without white space around its braces.
func (c *preparedCall) appendRaw(dst []byte, row engine.Row) []byte {
	dst = append(dst, c.prefix...)
	if len(row.Text) > len("{}") {
		dst = append(dst, ',')
	}
	return append(dst, row.Text[1:]...)
}

// generateRaw runs a raw row: the content of its engine.Reply is the whole body of the
// server's reply.
func (c *preparedCall) generateRaw(ctx context.Context, row engine.Row) (engine.Reply, error) {
	e, p := c.engine, c.timeoutFor(row)
	conn, err := e.send(ctx, c.rawHead, row.Traceparent, p, func(dst []byte) []byte { return c.appendRaw(dst, row) })
	if err != nil {
		return engine.Reply{}, err
	}
	if conn.header.StatusCode() != http.StatusOK {
		return engine.Reply{}, c.rawRefusalError(ctx, conn, row)
	}
	if err := e.checkHeader(ctx, conn, c.settings, row.Text); err != nil {
		return engine.Reply{}, err
	}
	text, err := conn.body.readUpTo(e.cfg.MaxAnswerBytes + 1)
	e.releaseConn(conn)
	if len(text) > e.cfg.MaxAnswerBytes || errors.Is(err, errBodyTooLarge) {
		return engine.Reply{}, &engine.Error{
			Class: engine.RowFault, Code: "reply_too_large",
			Message: fmt.Sprintf("the reply has more than %d bytes: request less, such as fewer alternatives in top_logprobs", e.cfg.MaxAnswerBytes),
		}
	}
	if err != nil {
		return engine.Reply{}, e.exchangeError(ctx, err, p)
	}
	return parseRawReply(text)
}

// rawReplyFields are the fields that Rowmill reads from the reply to a raw row. They cover
// the replies of all APIs: chat completions, completions, embeddings, responses and
// messages.
type rawReplyFields struct {
	Choices []struct {
		Finish string `json:"finish_reason"`
	} `json:"choices"`
	StopReason string   `json:"stop_reason"` // of the Messages API
	Status     string   `json:"status"`      // of the Responses API
	Usage      struct { // float64, because a server may write a whole number as 12.0 or 1.2e1
		Prompt        float64     `json:"prompt_tokens"`
		Completion    float64     `json:"completion_tokens"`
		PromptDetails tokenDetail `json:"prompt_tokens_details"`
		Input         float64     `json:"input_tokens"`
		Output        float64     `json:"output_tokens"`
		InputDetails  tokenDetail `json:"input_tokens_details"`
		CacheRead     float64     `json:"cache_read_input_tokens"` // Messages API: not included in input_tokens
	} `json:"usage"`
	Error *errorPresence `json:"error"`
}

// tokenDetail are the details of the prompt's tokens in a usage.
type tokenDetail struct {
	Cached float64 `json:"cached_tokens"`
}

// errorPresence is the field error of a reply with status 200. Only its presence matters.
type errorPresence struct{}

// UnmarshalJSON accepts any JSON value and stores nothing.
func (*errorPresence) UnmarshalJSON([]byte) error { return nil }

// mostTokens limits each number of tokens in a raw reply. No request has so many
// tokens, so a reply with a larger number is malformed.
const mostTokens = 1 << 31

// parseRawReply turns the body of a server's reply to a raw row into an engine.Reply.
func parseRawReply(text []byte) (engine.Reply, error) {
	malformed := func(format string, args ...any) (engine.Reply, error) {
		return engine.Reply{}, &engine.Error{Class: engine.Transient, Status: http.StatusOK, Code: "malformed_reply", Message: fmt.Sprintf(format, args...)}
	}
	text = bytes.TrimSpace(text)
	var fields rawReplyFields
	// If one field has an unexpected type, Unmarshal still fills the other fields.
	if err := json.Unmarshal(text, &fields); !json.Valid(text) || len(text) == 0 || text[0] != '{' {
		return malformed("the reply is not a JSON object: %v", err)
	}
	if !utf8.Valid(text) {
		return malformed("the reply is not UTF-8")
	}
	if fields.Error != nil && len(fields.Choices) == 0 && fields.Usage.Input == 0 {
		fault := parseFault(text)
		return engine.Reply{}, &engine.Error{
			Class: engine.Transient, Status: http.StatusOK, Code: fault.safeCode("error_in_reply"), Message: "the server reports an error in its reply",
			Raw: string(text[:min(len(text), maxRaw)]),
		}
	}
	switch fields.Status {
	case "failed", "cancelled":
		fault := parseFault(text)
		return engine.Reply{}, &engine.Error{
			Class: engine.Transient, Status: http.StatusOK, Code: fault.safeCode("error_in_reply"), Message: "the server reports in its reply that the response is " + fields.Status,
			Raw: string(text[:min(len(text), maxRaw)]),
		}
	case "queued", "in_progress":
		return malformed("the reply is a response that is still %s", fields.Status)
	}
	if bytes.ContainsAny(text, "\r\n") { // a result must be one line; valid JSON has line breaks only between tokens
		var compact bytes.Buffer
		if err := json.Compact(&compact, text); err != nil {
			return malformed("the reply is not a JSON object: %v", err)
		}
		text = compact.Bytes()
	}
	u := fields.Usage
	out := engine.Reply{
		Content: string(text), Finish: rowmill.FinishStop,
		InputTokens: int64(u.Prompt + u.Input + u.CacheRead), OutputTokens: int64(u.Completion + u.Output),
		CachedTokens: int64(u.PromptDetails.Cached + u.InputDetails.Cached + u.CacheRead),
	}
	for _, n := range []float64{u.Prompt, u.Input, u.CacheRead, u.Completion, u.Output, u.PromptDetails.Cached, u.InputDetails.Cached} {
		if n < 0 || n > mostTokens || n != math.Trunc(n) {
			return malformed("the reply reports %v tokens", n)
		}
	}
	out.CachedTokens = min(out.CachedTokens, out.InputTokens)
	for _, choice := range fields.Choices {
		if choice.Finish == string(rowmill.FinishLength) {
			out.Finish = rowmill.FinishLength
		}
	}
	if fields.StopReason == "max_tokens" || fields.Status == "incomplete" {
		out.Finish = rowmill.FinishLength
	}
	return out, nil
}

// pathHints maps a request path to a remedy for a server that does not have this path.
// The remedy is the end of an error message.
var pathHints = map[string]string{
	"/v1/responses":  "; vLLM (0.32) and llama.cpp (b11669) have it, or send the requests to /v1/chat/completions",
	"/v1/embeddings": "; start one that runs it to embed",
}

// rawRefusalError returns the error for a raw row whose reply has a status other than 200.
// The field Raw of the error is the body of the reply.
func (c *preparedCall) rawRefusalError(ctx context.Context, conn *conn, row engine.Row) error {
	x, text, err := c.engine.readRefusal(ctx, conn)
	if err != nil {
		return err
	}
	fault := x.classify(requestSettings{}, row.Text)
	fault.Raw = strings.ToValidUTF8(string(text), "\uFFFD")
	switch x.status {
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		said := strings.ToLower(x.fault.message)
		if strings.Contains(said, "response") { // the row's previous_response_id names an unknown response
			fault.Class = engine.RowFault
		} else if !strings.Contains(said, "model") {
			fault.Class = engine.JobFault
			fault.Message = "the server has no " + c.path + " for this model" + pathHints[c.path]
		}
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired:
	default:
		if x.status >= 400 && fault.Class == engine.ServerFault { // such as 415: the row may be the cause, so other rows must still use the server
			fault.Class, fault.Code = engine.RowFault, "http_"+strconv.Itoa(x.status)
			fault.Message = "the server refused the request"
		}
	}
	return fault
}
