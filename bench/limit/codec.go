package main

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

var errNoAnswer = errors.New("reply holds no answer")

// A codec encodes requests and decodes replies. It relies on the exact form of this
// server's replies. A real client cannot do that; this makes it a limit.
type codec struct{ before, after string }

func newCodec(model string, logprobs bool) codec {
	request := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"|"}],"temperature":0.7,"max_tokens":4096,"logprobs":%t}`, model, logprobs)
	before, after, _ := strings.Cut(request, "|")
	return codec{before, after}
}

func (c codec) encode(buffer, text []byte) []byte {
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
	return append(buffer, c.after...)
}

var (
	contentKey = []byte(`"content":"`)
	logprobKey = []byte(`"logprob":`)
)

func (codec) decode(reply []byte) (answer, error) {
	_, rest, found := bytes.Cut(reply, contentKey)
	end := bytes.IndexByte(rest, '"')
	if !found || end < 0 || bytes.IndexByte(rest[:end], '\\') >= 0 || !utf8.Valid(rest[:end]) {
		return answer{}, errNoAnswer
	}
	a := answer{text: string(rest[:end]), score: math.NaN()}
	sum, tokens := 0.0, 0
	for {
		_, rest, found = bytes.Cut(rest, logprobKey)
		if !found {
			break
		}
		end := bytes.IndexByte(rest, ',')
		if end < 0 {
			return answer{}, errNoAnswer
		}
		value, err := strconv.ParseFloat(string(rest[:end]), 64)
		if err != nil {
			return answer{}, fmt.Errorf("log probability: %w", err)
		}
		sum += value
		tokens++
	}
	if tokens > 0 {
		a.score = 100 * math.Exp(sum/float64(tokens))
	}
	return a, nil
}
