package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
)

// seedMask keeps seeds within 0 to 2^31-1, which every server takes.
const seedMask = 1<<31 - 1

// A call is a job's requests to one server: everything but the prompt and the
// seed is prepared.
//
//	prefix <escaped prompt> middle [,"seed":<n>] }
type call struct {
	engine *Engine
	model  rowmill.Model
	system []byte
	schema bool

	prefix    []byte
	middle    []byte
	seed      int64
	seeded    bool
	allowance time.Duration // of one row, from sending to the last byte
	warnings  []string
}

var _ engine.Call = (*call)(nil)

// Warnings lists what the server cannot honour.
func (c *call) Warnings() []string { return c.warnings }

func (c *call) prepareChat(kind, name string, p engine.Params) error {
	b := appendString([]byte(`{"model":`), []byte(name))
	b = append(b, `,"messages":[`...)
	if p.System != "" {
		b = appendString(append(b, `{"role":"system","content":`...), c.system)
		b = append(b, `},`...)
	}
	c.prefix = append(b, `{"role":"user","content":"`...)

	fields, warnings, err := translate(kind, p.Sampling)
	if err != nil {
		return err
	}
	tokens := int64(p.MaxTokens)
	if n, ok := asInt(p.Sampling["max_tokens"]); ok && tokens == 0 {
		tokens = n
	}
	if tokens > 0 {
		fields = append(fields, param{"max_tokens", tokens})
	}
	extras, more, err := extraFields(kind, p.Model.RequestExtras, fields)
	if err != nil {
		return err
	}
	fields = append(fields, extras...)
	c.warnings = append(warnings, more...)
	if n, ok := asInt(p.Sampling["logprobs"]); ok && n > 1 {
		c.warnings = append(c.warnings, "logprobs: alternatives to the chosen tokens are not kept")
	}
	if p.Logprobs && !p.Model.NoLogprobs {
		// llama.cpp gives none with 0 alternatives and 20 where it is left out.
		fields = append(fields, param{"logprobs", true}, param{"top_logprobs", 1})
	}
	if len(p.Schema) > 0 {
		c.schema = true
		var compact bytes.Buffer
		if err := json.Compact(&compact, p.Schema); err != nil {
			return fmt.Errorf("json_schema is not JSON: %w", err)
		}
		fields = append(fields, param{"response_format", json.RawMessage(
			`{"type":"json_schema","json_schema":{"name":"output","strict":true,"schema":` + compact.String() + `}}`)})
	}
	if c.middle, err = appendFields([]byte(`"}]`), fields); err != nil {
		return err
	}
	if seed := p.Sampling["seed"]; seed != nil {
		n, ok := asInt(seed)
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
	c.allowance = c.engine.allowance(tokens)
	return nil
}

// allowance is the time that one request may take.
func (e *Engine) allowance(tokens int64) time.Duration {
	return e.cfg.QueueAllowance + time.Duration(tokens)*e.cfg.TokenTime
}

// appendRow appends the body of one row's request.
func (c *call) appendRow(dst []byte, row engine.Row) []byte {
	dst = append(dst, c.prefix...)
	dst = appendEscaped(dst, row.Text)
	dst = append(dst, c.middle...)
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
func (c *call) Generate(ctx context.Context, row engine.Row) (engine.Reply, error) {
	if c.model.Kind == rowmill.KindEmbedding {
		return engine.Reply{}, &engine.Error{
			Class: engine.JobFault, Code: "wrong_kind", Message: c.model.ID + " is an embedding model and generates no text",
		}
	}
	e := c.engine
	conn, err := e.send(ctx, e.chatHead, c.allowance, func(dst []byte) []byte { return c.appendRow(dst, row) })
	if err != nil {
		return engine.Reply{}, err
	}
	if err := e.accepted(ctx, conn, c.schema, row.Text, c.system); err != nil {
		return engine.Reply{}, err
	}
	r := newReply(&conn.body, e.cfg.MaxAnswerBytes, c.model.Kind == rowmill.KindReasoning)
	defer r.release()
	err = r.scanChat()
	e.finish(conn)
	if err != nil {
		return engine.Reply{}, e.broken(ctx, err, c.allowance)
	}
	reply, refusal := r.answer()
	if refusal != nil {
		return engine.Reply{}, refusal
	}
	return reply, nil
}

// accepted returns the error of a reply that is no answer: another status than
// 200, or a body in a form that was not asked for. It then ends the use of
// conn.
func (e *Engine) accepted(ctx context.Context, conn *conn, schema bool, private ...[]byte) error {
	if conn.header.StatusCode() != 200 {
		return e.refused(ctx, conn, schema, private...)
	}
	if coding := conn.header.ContentEncoding(); len(coding) > 0 && string(coding) != "identity" {
		conn.header.SetConnectionClose()
		e.finish(conn)
		return &engine.Error{
			Class: engine.ServerFault, Status: 200, Code: "compressed_reply",
			Message: "the reply is compressed although that was not asked for: switch compression off in the gateway",
		}
	}
	return nil
}
