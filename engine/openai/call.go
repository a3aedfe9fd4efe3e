package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/internal/textfmt"
)

// seedMask limits a seed to the range 0 to 2^31-1, which every server accepts.
const seedMask = 1<<31 - 1

// maxTokensWithoutStream is the largest max_tokens for which Rowmill asks llama.cpp for an
// answer without a stream. Without a stream, llama.cpp runs a cancelled row to its end,
// but so short an answer ends soon. With a stream, each token costs the server 0.1 ms
// of CPU.
const maxTokensWithoutStream = 128

// A preparedCall sends the requests of one job to one server. It builds all parts of a request
// in advance, except the prompt and the seed. A chat request consists of:
//
//	prefix <escaped prompt, or messages> middle [,"seed":<n>] }
type preparedCall struct {
	engine   *Engine
	target   modelTarget
	model    rowmill.Model
	system   []byte
	settings requestSettings

	isChat              bool // rows are lists of messages
	prefix              []byte
	middle              []byte                      // embedding request: JSON after the texts of the rows
	fields              []requestField              // chat request: fields after the messages
	trailer             atomic.Pointer[requestTail] // chat request: JSON after the prompt, built from fields
	proven              atomic.Bool                 // the server has answered a request that has extraLogprobs
	rowsWithoutLogprobs atomic.Int32                // number of rows that the server answered only without extraLogprobs, after HTTP 500
	seed                int64
	seeded              bool          // the job sets a seed
	streamed            bool          // the request asks for a stream
	limit               int64         // maximum tokens of an answer; 0 means the server's own limit
	allowance           time.Duration // timeout of a row whose Timeout is 0
	warnings            []string
	notices             warningSet
	hasNotedWrongModel  atomic.Bool // the server named another model in an answer

	ways []*countMethod // requests that can count the tokens of a prompt, the best first

	path    string // raw job: request path
	rawHead []byte // raw job: HTTP head of each request, up to the value of Content-Length
}

var _ engine.PreparedCall = (*preparedCall)(nil)

// Warnings lists the job's settings that the server ignores or changes, and problems in
// its answers.
func (c *preparedCall) Warnings() []string {
	return append(slices.Clip(c.warnings), c.notices.all()...)
}

// warningSet collects the warnings that the answers of a server caused, each text once.
type warningSet struct {
	mu   sync.Mutex
	said []string
}

func (n *warningSet) add(texts ...string) {
	if len(texts) == 0 {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, text := range texts {
		if !slices.Contains(n.said, text) {
			n.said = append(n.said, text)
		}
	}
}

func (n *warningSet) all() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.said)
}

// prepareChat builds the parts of a chat request that all rows share. It also collects
// warnings about settings that the server does not support.
func (c *preparedCall) prepareChat(p engine.JobParams) error {
	kind := c.target.kind
	b := textfmt.AppendString([]byte(`{"model":`), []byte(c.target.name))
	b = append(b, `,"messages":[`...)
	if p.System != "" {
		b = textfmt.AppendString(append(b, `{"role":"system","content":`...), c.system)
		b = append(b, `},`...)
	}
	if c.isChat = p.Messages; !c.isChat {
		b = append(b, `{"role":"user","content":"`...)
	}
	c.prefix = b

	fields, warnings, err := translateSampling(c.target, p.Sampling)
	if err != nil {
		return err
	}
	for _, f := range fields {
		c.settings.params = append(c.settings.params, f.name)
	}
	tokens := int64(p.MaxTokens)
	if n, ok := rowmill.AsInt(p.Sampling["max_tokens"]); ok && tokens == 0 {
		tokens = n
	}
	if c.limit = tokens; tokens > 0 {
		fields = append(fields, requestField{"max_tokens", tokens})
		c.settings.extras = append(c.settings.extras, extraMaxTokens)
	}
	extras, more, err := modelExtraFields(kind, p.Model.RequestExtras, fields)
	if err != nil {
		return err
	}
	fields = append(fields, extras...)
	c.warnings = slices.Concat(c.target.warnings(p), warnings, more)
	alternatives, asked := rowmill.AsInt(p.Sampling["logprobs"])
	if alternatives > 1 {
		c.warnings = append(c.warnings, "logprobs: alternatives to the chosen tokens are not kept")
	}
	switch {
	case !asked && !p.Logprobs:
	case p.Model.NoLogprobs:
		if asked {
			c.warnings = append(c.warnings, "logprobs: the catalog says that the model gives no log probabilities")
		}
	default:
		if !asked {
			c.settings.extras = append(c.settings.extras, extraLogprobs)
		}
		fields = append(fields, requestField{"logprobs", true})
		if !logprobsWithoutAlternatives[kind] {
			fields = append(fields, requestField{"top_logprobs", 1})
		}
		if kind == kindOllama && c.target.isOlderThan(ollamaLogprobs) {
			c.warnings = append(c.warnings, fmt.Sprintf("logprobs: Ollama gives them from %v on, the server runs %s", ollamaLogprobs, c.target.version))
		}
	}
	if kind == kindLlama && (tokens == 0 || tokens > maxTokensWithoutStream) {
		// llama.cpp stops a cancelled row only if it streams the answer.
		c.streamed = true
		fields = append(fields, requestField{"stream", true}, requestField{"stream_options", json.RawMessage(`{"include_usage":true}`)})
	}
	c.settings.form = constraintSettingName(p)
	if p.Sampling["structured_outputs"] != nil {
		form, err := constraintField(c.target, p)
		if err != nil {
			return err
		}
		fields = append(fields, form)
	}
	if len(p.Schema) > 0 {
		var compact bytes.Buffer
		if err := json.Compact(&compact, p.Schema); err != nil {
			return fmt.Errorf("json_schema is not JSON: %w", err)
		}
		fields = append(fields, requestField{"response_format", json.RawMessage(
			`{"type":"json_schema","json_schema":{"name":"output","strict":true,"schema":` + compact.String() + `}}`)})
	}
	c.fields = fields
	left := c.engine.updateExtraRecord(c.target.name, nil)
	c.proven.Store(left.proven)
	for _, x := range left.extras {
		c.notices.add(x.notice())
	}
	made, err := c.buildTailWithout(left.extras)
	if err != nil {
		return err
	}
	c.trailer.Store(made)
	if seed := p.Sampling["seed"]; seed != nil {
		n, ok := rowmill.AsInt(seed)
		if !ok {
			return fmt.Errorf("sampling parameter seed must be an integer")
		}
		c.seed, c.seeded = n&seedMask, true
		if n != c.seed {
			c.warnings = append(c.warnings, fmt.Sprintf("seed %d is beyond 0 to 2147483647 and became %d", n, c.seed))
		}
	}
	if tokens == 0 {
		tokens = int64(max(p.ContextLen, p.Model.ContextLength))
	}
	c.allowance = c.engine.answerTimeout(tokens)
	return nil
}

// answerTimeout returns the timeout of a request whose answer has at most this many tokens.
func (e *Engine) answerTimeout(tokens int64) time.Duration {
	return e.cfg.QueueAllowance + time.Duration(tokens)*e.cfg.TokenTime
}

// appendRow appends what a row adds to the messages of a request: its own messages, or the text
// of the user message.
func (c *preparedCall) appendRow(dst, text []byte) []byte {
	if c.isChat {
		return append(dst, bytes.TrimSuffix(bytes.TrimPrefix(text, []byte("[")), []byte("]"))...)
	}
	return textfmt.AppendEscaped(dst, text)
}

// messagesEnd returns the JSON that ends the messages of a request after a row.
func (c *preparedCall) messagesEnd() string {
	if c.isChat {
		return "]"
	}
	return `"}]`
}

// appendChatRequest appends the JSON body of a row's chat request to dst.
func (c *preparedCall) appendChatRequest(dst []byte, row engine.Row, t *requestTail) []byte {
	dst = append(dst, c.prefix...)
	dst = c.appendRow(dst, row.Text)
	dst = append(dst, t.middle...)
	seed, seeded := c.seed, c.seeded
	if row.Seed != nil {
		seed, seeded = *row.Seed&seedMask, true
	}
	if seeded {
		dst = append(dst, `,"seed":`...)
		dst = strconv.AppendInt(dst, seed, 10)
	}
	return append(dst, '}')
}

// Generate runs one row.
func (c *preparedCall) Generate(ctx context.Context, row engine.Row) (engine.Reply, error) {
	if c.model.Kind == rowmill.KindEmbedding {
		return engine.Reply{}, &engine.Error{
			Class: engine.JobFault, Code: "wrong_kind", Message: c.model.ID + " is an embedding model and generates no text",
		}
	}
	if c.model.Kind == rowmill.KindRaw {
		return c.generateRaw(ctx, row)
	}
	for {
		reply, err := c.generate(ctx, row)
		var refused *extraRefusedError
		if !errors.As(err, &refused) {
			return reply, err
		}
		if !c.omitExtra(refused.extra) {
			return reply, refused.fault
		}
	}
}

// generate sends one chat request for a row and reads the answer.
func (c *preparedCall) generate(ctx context.Context, row engine.Row) (engine.Reply, error) {
	e, t := c.engine, c.tailForRow(row)
	p := c.timeoutFor(row)
	conn, err := e.send(ctx, e.chatHead, row.Traceparent, p, func(dst []byte) []byte { return c.appendChatRequest(dst, row, t) })
	if err != nil {
		return engine.Reply{}, err
	}
	if err := e.checkHeader(ctx, conn, c.settings, row.Text, c.system); err != nil {
		return engine.Reply{}, err
	}
	r := newReplyReader(&conn.body, maxTextBytes(c.limit, e.cfg.MaxAnswerBytes), c.model.Kind == rowmill.KindReasoning)
	defer r.release()
	// A gateway may collect the stream and send it as one body.
	streamed := c.streamed && bytes.HasPrefix(conn.header.ContentType(), []byte("text/event-stream"))
	if streamed {
		if err = r.scanStream(&conn.body); err == nil && !r.fault.found {
			conn.drain()
		}
	} else {
		err = r.scanChat()
	}
	e.releaseConn(conn)
	if err != nil {
		return engine.Reply{}, e.exchangeError(ctx, err, p)
	}
	reply, notices, refusal := r.buildReply(c.settings, !streamed, row.Text, c.system)
	if refusal == nil {
		refusal = r.checkUsage(len(c.prefix)+len(row.Text)+len(t.middle), c.limit)
	}
	if refusal != nil {
		return engine.Reply{}, refusal
	}
	if r.unparsed {
		e.noteMissingParser(c.target)
	}
	c.notices.add(notices...)
	if !isSameModel(c.target.name, r.model) && c.hasNotedWrongModel.CompareAndSwap(false, true) {
		c.notices.add(fmt.Sprintf("The server was asked for the model %s, and names the model %s in an answer: check which model it runs.",
			c.target.name, textfmt.Shorten(toValidUTF8(r.model), maxModel)))
	}
	c.recordLogprobsOutcome(t, row)
	return reply, nil
}

// isSameModel reports whether an answer names the model that was asked for. Servers may
// leave the name out, add a date or a quantization to it, or give only its last part.
func isSameModel(requested string, reported []byte) bool {
	last := func(s string) string { return strings.ToLower(s[strings.LastIndexByte(s, '/')+1:]) }
	return string(reported) == requested || len(reported) == 0 || strings.HasPrefix(last(string(reported)), last(requested))
}

// timeoutFor returns the timeout of a request with these rows: the longest Timeout of
// the rows, or c.allowance if one of the rows has no Timeout.
func (c *preparedCall) timeoutFor(rows ...engine.Row) callTimeout {
	var longest time.Duration
	for _, row := range rows {
		if row.Timeout <= 0 {
			return newCallTimeout(c.allowance)
		}
		longest = max(longest, row.Timeout)
	}
	return newCallTimeout(longest)
}

// checkHeader returns an error if a reply has a status other than 200 or a compressed
// body. private holds texts that the error must not contain. After an error the caller
// must not use conn.
func (e *Engine) checkHeader(ctx context.Context, conn *conn, asked requestSettings, promptTexts ...[]byte) error {
	if conn.header.StatusCode() != 200 {
		return e.refusalError(ctx, conn, asked, promptTexts...)
	}
	if coding := conn.header.ContentEncoding(); len(coding) > 0 && string(coding) != "identity" {
		conn.header.SetConnectionClose()
		e.releaseConn(conn)
		return &engine.Error{
			Class: engine.ServerFault, Status: 200, Code: "compressed_reply",
			Message: "the reply is compressed, but the request did not ask for compression: switch compression off in the gateway",
		}
	}
	return nil
}
