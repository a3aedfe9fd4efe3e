package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/rowmill/rowmill/bench/rows"
)

// codec encodes requests and decodes responses.
type codec interface {
	encode(buffer, text []byte) ([]byte, error)
	decode(reply []byte) (rows.Answer, error)
}

var errNoAnswer = errors.New("reply holds no answer")

func newCodec(name, model string, logprobs bool) (codec, error) {
	switch name {
	case "std":
		return stdCodec{model: model, logprobs: logprobs}, nil
	case "scan":
		return newScanCodec(model, logprobs)
	}
	return nil, fmt.Errorf("unknown codec %q: choose std or scan", name)
}

// stdCodec uses encoding/json.
type stdCodec struct {
	model    string
	logprobs bool
}

func (c stdCodec) encode(_, text []byte) ([]byte, error) {
	return json.Marshal(rows.NewRequest(c.model, text, c.logprobs))
}

func (c stdCodec) decode(reply []byte) (rows.Answer, error) {
	var response rows.Response
	if err := json.Unmarshal(reply, &response); err != nil {
		return rows.Answer{}, fmt.Errorf("decode reply: %w", err)
	}
	answer, ok := response.Answer()
	if !ok {
		return rows.Answer{}, errNoAnswer
	}
	return answer, nil
}

// scanCodec relies on the exact form of this server's replies. A real client cannot do
// that; this makes it a limit.
type scanCodec struct{ before, after []byte }

func newScanCodec(model string, logprobs bool) (codec, error) {
	request, err := json.Marshal(rows.NewRequest(model, []byte("|"), logprobs))
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	before, after, _ := bytes.Cut(request, []byte("|"))
	return scanCodec{before: before, after: after}, nil
}

func (c scanCodec) encode(buffer, text []byte) ([]byte, error) {
	buffer = append(buffer, c.before...)
	from := 0
	for i := 0; i < len(text); i++ {
		if b := text[i]; b < ' ' || b == '"' || b == '\\' {
			buffer = append(buffer, text[from:i]...)
			buffer = fmt.Appendf(buffer, `\u%04x`, b)
			from = i + 1
		}
	}
	buffer = append(buffer, text[from:]...)
	return append(buffer, c.after...), nil
}

var (
	contentKey = []byte(`"content":"`)
	logprobKey = []byte(`"logprob":`)
)

func (c scanCodec) decode(reply []byte) (rows.Answer, error) {
	_, rest, found := bytes.Cut(reply, contentKey)
	end := bytes.IndexByte(rest, '"')
	if !found || end < 0 || bytes.IndexByte(rest[:end], '\\') >= 0 || !utf8.Valid(rest[:end]) {
		return rows.Answer{}, errNoAnswer
	}
	answer := rows.Answer{Text: string(rest[:end])}
	sum, tokens := 0.0, 0
	for {
		_, rest, found = bytes.Cut(rest, logprobKey)
		if !found {
			break
		}
		end := bytes.IndexByte(rest, ',')
		if end < 0 {
			return rows.Answer{}, errNoAnswer
		}
		value, err := strconv.ParseFloat(string(rest[:end]), 64)
		if err != nil {
			return rows.Answer{}, fmt.Errorf("log probability: %w", err)
		}
		sum += value
		tokens++
	}
	answer.Score = rows.Score(sum, tokens)
	return answer, nil
}
