package openai

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/internal/textfmt"
)

// prepareEmbed builds the request for an embedding model. It rejects settings that an
// embedding model does not have, and ignores sampling parameters with a warning.
func (c *preparedCall) prepareEmbed(p engine.JobParams) error {
	if p.System != "" || len(p.Schema) > 0 {
		return fmt.Errorf("an embedding model supports neither system_prompt nor json_schema: remove them")
	}
	for name, value := range p.Sampling {
		if value != nil {
			c.warnings = append(c.warnings, fmt.Sprintf("%s is ignored: an embedding model generates no text", name))
		}
	}
	slices.Sort(c.warnings)
	extras, more, err := modelExtraFields(c.target.kind, p.Model.RequestExtras, nil)
	if err != nil {
		return err
	}
	c.warnings = slices.Concat(c.target.warnings(p), c.warnings, more)
	c.prefix = append(textfmt.AppendString([]byte(`{"model":`), []byte(c.target.name)), `,"input":[`...)
	// base64 takes 5.3 bytes per number; decimal text takes 20 and must be parsed
	c.middle, err = appendFields([]byte(`]`), append(extras, requestField{"encoding_format", "base64"}))
	c.middle = append(c.middle, '}')
	c.allowance = c.engine.answerTimeout(0)
	return err
}

// appendEmbedRequest appends the JSON body of an embedding request for rows to dst.
func (c *preparedCall) appendEmbedRequest(dst []byte, rows []engine.Row) []byte {
	dst = append(dst, c.prefix...)
	for i, row := range rows {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = textfmt.AppendString(dst, row.Text)
	}
	return append(dst, c.middle...)
}

// Embed runs a group of rows. If the server refuses the group because of a row, Embed
// halves the group until each bad row is alone.
func (c *preparedCall) Embed(ctx context.Context, rows []engine.Row) ([]engine.Reply, []*engine.Error, error) {
	if c.model.Kind != rowmill.KindEmbedding {
		return nil, nil, &engine.Error{
			Class: engine.JobFault, Code: "wrong_kind", Message: c.model.ID + " is not an embedding model",
		}
	}
	out, faults := make([]engine.Reply, len(rows)), make([]*engine.Error, len(rows))
	if err := c.embedGroup(ctx, c.timeoutFor(rows...), rows, out, faults); err != nil {
		return nil, nil, err
	}
	return out, faults, nil
}

// embedGroup runs rows in one request. If the server refuses the request because of a
// row, embedGroup runs each half of the rows alone. It writes the replies to out and the
// errors to faults, in the order of the rows.
func (c *preparedCall) embedGroup(ctx context.Context, p callTimeout, rows []engine.Row, out []engine.Reply, faults []*engine.Error) error {
	if len(rows) == 0 {
		return nil
	}
	err := c.embedOnce(ctx, p, rows, out)
	var fault *engine.Error
	if err == nil || !errors.As(err, &fault) || fault.Class != engine.RowFault {
		return err
	}
	if len(rows) == 1 {
		faults[0] = fault
		return nil
	}
	half := len(rows) / 2
	if err := c.embedGroup(ctx, p, rows[:half], out[:half], faults[:half]); err != nil {
		return err
	}
	return c.embedGroup(ctx, p, rows[half:], out[half:], faults[half:])
}

// embedOnce sends rows in one request and puts the replies into out, in the order of
// the rows.
func (c *preparedCall) embedOnce(ctx context.Context, p callTimeout, rows []engine.Row, out []engine.Reply) error {
	e := c.engine
	conn, err := e.send(ctx, e.embedHead, rows[0].Traceparent, p, func(dst []byte) []byte { return c.appendEmbedRequest(dst, rows) })
	if err != nil {
		return err
	}
	var private [][]byte
	if conn.header.StatusCode() != http.StatusOK {
		for _, row := range rows {
			private = append(private, row.Text)
		}
	}
	if err := e.checkHeader(ctx, conn, requestSettings{}, private...); err != nil {
		return err
	}
	r := newReplyReader(&conn.body, e.cfg.MaxAnswerBytes, false)
	defer r.release()
	err = r.scanEmbeddings(out, c.model.Dimension)
	e.releaseConn(conn)
	if err != nil {
		if fault, ok := errors.AsType[*engine.Error](err); ok {
			return fault
		}
		return e.exchangeError(ctx, err, p)
	}
	bytes := len(c.prefix) + len(c.middle)
	for _, row := range rows {
		bytes += len(row.Text) + templateTokens // the server adds a template to each text
	}
	if c.target.kind == kindInfinity {
		return nil // Infinity reports its usage in characters (seen: 0.0.78)
	}
	if fault := r.checkUsage(bytes, 0); fault != nil {
		return fault
	}
	divideTokens(r.input, rows, out)
	return nil
}

// divideTokens divides the tokens of a group among its rows, in proportion to the lengths of
// their texts, because servers report only the total. The shares add up to exactly the
// total.
func divideTokens(tokens int64, rows []engine.Row, out []engine.Reply) {
	var total, seen, given int64
	for _, row := range rows {
		total += int64(len(row.Text)) + 1 // an empty text also has special tokens
	}
	for i, row := range rows {
		seen += int64(len(row.Text)) + 1
		upTo := int64(float64(tokens) * (float64(seen) / float64(total)))
		out[i].InputTokens = upTo - given
		given = upTo
	}
}
