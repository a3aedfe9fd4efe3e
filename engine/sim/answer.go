package sim

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"

	"github.com/rowmill/rowmill/engine/sim/jsongen"
)

// Bounds of the lengths of made-up texts, in tokens unless noted. They cut off the
// extreme lengths of the random distribution.
const (
	minNatural = 8
	maxNatural = 1 << 15
	maxPlain   = 1 << 16 // largest text in bytes for a request with structured_outputs

	// answerSpread is the standard deviation of the logarithm of lengths: nine of ten
	// answers differ from the median by a factor of 2.7 at most.
	answerSpread = 0.6
)

// answer is the model's text: reasoning, </think> and content
// follow each other.
type answer struct {
	text            []byte
	pieces          []int32 // byte offset in text where each token ends and the next token begins
	words           *vocabulary
	hasReasoning    bool // the answer begins with reasoning
	reasoningPieces int  // number of pieces up to and with </think>; 0 when there is none (yet)
	sentBytes       int  // bytes of text that are sent: fewer than all if a stop string is cut off
	finish          string
	stopText        []byte // the stop string that ended the answer; nil for none
	stopID          int    // the stop token that ended the answer; 0 for none
}

// answerWriter makes up the text of answers.
type answerWriter struct {
	words   *vocabulary
	profile LatencyProfile // only AnswerTokens and ReasoningTokens are used
}

// contentForm is the form of the content that a request demands: free text, JSON, or exact
// bytes.
type contentForm struct {
	json  *jsongen.Generator // makes the content; nil for free text
	plain bool               // json makes a JSON string, and the content is its text
	raw   []byte             // the exact content; nil for none
}

// compose makes the answer to a request and stores it in a. limit is the largest length
// of the answer in tokens, at least 1.
func (w *answerWriter) compose(a *answer, req *chatRequest, form contentForm, d *directives, limit int) {
	*a = answer{text: a.text[:0], pieces: a.pieces[:0], words: w.words}
	base := req.digest.random()
	complete := true
	if req.thinks {
		a.hasReasoning = true
		r := base.fork(1)
		natural := drawLognormal(&r, w.profile.ReasoningTokens)
		a.text, a.pieces, complete = w.words.appendSentences(a.text, a.pieces, r, textLength{natural: natural, limit: limit})
		if complete && len(a.pieces) < limit {
			a.text = append(a.text, closeThink...)
			a.pieces = append(a.pieces, int32(len(a.text)))
			a.reasoningPieces = len(a.pieces)
		} else {
			complete = false
		}
	}
	if complete {
		complete = w.composeContent(a, req, form, d, base.fork(2), limit-len(a.pieces))
	}
	a.finish = "length"
	switch {
	case complete && req.called != nil:
		a.finish = "tool_calls"
	case complete:
		a.finish = "stop"
	}
	a.sentBytes = len(a.text)
	a.stopEarly(req)
	if d.finish != "" {
		a.finish = d.finish
	}
}

// composeContent appends at most room tokens of content, and reports whether the content
// is complete.
func (w *answerWriter) composeContent(a *answer, req *chatRequest, form contentForm, d *directives, r splitMix64, maxTokens int) (complete bool) {
	if maxTokens <= 0 {
		return false
	}
	switch {
	case form.raw != nil:
		return a.appendText(form.raw, maxTokens)
	case form.json != nil && form.plain:
		var text string
		value, _ := form.json.Append(nil, &r, maxPlain)
		if json.Unmarshal(value, &text) != nil {
			return false // the text was longer than maxPlain, so value is not complete
		}
		return a.appendText([]byte(text), maxTokens)
	case form.json != nil:
		start := len(a.text)
		text, _ := form.json.Append(a.text, &r, (maxTokens+1)*maxTokenBytes)
		a.text = text[:start]
		return a.appendText(text[start:], maxTokens)
	}
	want := textLength{natural: drawLognormal(&r, w.profile.AnswerTokens), limit: maxTokens}
	if d.tokens > 0 {
		want.natural, want.exact = d.tokens, true
	}
	want.natural = max(want.natural, int(req.MinTokens)-len(a.pieces))
	if req.IgnoreEOS {
		want.natural = maxTokens + 1
	}
	a.text, a.pieces, complete = w.words.appendSentences(a.text, a.pieces, r, want)
	return complete
}

// appendText appends at most room tokens of a text. The bytes of text may already
// follow a.text in the same memory.
func (a *answer) appendText(text []byte, maxTokens int) (complete bool) {
	start, at := len(a.text), 0
	for ; at < len(text) && maxTokens > 0; maxTokens-- {
		at = endOfToken(text, at)
		a.pieces = append(a.pieces, int32(start+at))
	}
	a.text = append(a.text, text[:at]...)
	return at == len(text)
}

// drawLognormal draws a length from a lognormal distribution with the given median.
func drawLognormal(r *splitMix64, median int) int {
	length := float64(median) * math.Exp(answerSpread*r.normal())
	return int(min(max(length, minNatural), maxNatural))
}

// stopEarly cuts the answer at the first stop string or stop token after the first
// min_tokens tokens. The tokens that make up a stop string count as generated.
func (a *answer) stopEarly(req *chatRequest) {
	if len(req.stops) == 0 && len(req.StopIDs) == 0 {
		return
	}
	from := 0
	if int(req.MinTokens) > 0 && len(a.pieces) > 0 {
		from = int(a.pieces[min(int(req.MinTokens), len(a.pieces))-1])
	}
	best := len(a.text) + 1 // end of the earliest match
	for _, stop := range req.stops {
		if at := bytes.Index(a.text[from:], []byte(stop)); stop != "" && at >= 0 && from+at+len(stop) < best {
			best = from + at + len(stop)
			a.stopText = []byte(stop)
		}
	}
	for i, p := range a.pieces {
		if i >= int(req.MinTokens) && len(req.StopIDs) > 0 {
			if id := tokenID(a.token(i)); slices.Contains(req.StopIDs, jsonInt(id)) && int(p) < best {
				a.stopText, a.stopID = nil, id
				a.cut(i+1, int(p))
				return
			}
		}
		if int(p) >= best {
			shown := best
			if !req.KeepStop {
				shown -= len(a.stopText)
			}
			a.cut(i+1, shown)
			return
		}
	}
}

// cut shortens the answer to its first n tokens. shown is the number of their bytes
// that are sent.
func (a *answer) cut(n, sentBytes int) {
	a.pieces = a.pieces[:n]
	a.text = a.text[:a.pieces[n-1]]
	a.sentBytes = sentBytes
	a.finish = "stop"
	if a.reasoningPieces > n {
		a.reasoningPieces = 0
	}
}

// token returns the bytes of token i of the answer.
func (a *answer) token(i int) []byte {
	start := int32(0)
	if i > 0 {
		start = a.pieces[i-1]
	}
	return a.text[start:a.pieces[i]]
}

// endOffset returns the byte offset at which the first n tokens end, at most a.sentBytes.
func (a *answer) endOffset(n int) int {
	if n == 0 {
		return 0
	}
	return min(int(a.pieces[n-1]), a.sentBytes)
}

// reasoning returns the part of bytes [from, to) of the text that is reasoning; content
// returns the part that is content.
func (a *answer) reasoning(from, to int) []byte {
	if !a.hasReasoning {
		return nil
	}
	return a.text[from:max(from, min(to, a.thoughtEnd()))]
}

func (a *answer) content(from, to int) []byte {
	if !a.hasReasoning {
		return a.text[from:to]
	}
	if a.reasoningPieces == 0 {
		return nil
	}
	from = max(from, int(a.pieces[a.reasoningPieces-1]))
	return a.text[from:max(from, to)]
}

// thoughtEnd returns the byte offset at which the reasoning ends.
func (a *answer) thoughtEnd() int {
	if a.reasoningPieces == 0 {
		return a.sentBytes
	}
	return min(a.endOffset(a.reasoningPieces-1), a.sentBytes)
}

// reasoningTokens returns how many tokens of the answer are reasoning.
func (a *answer) reasoningTokens() int {
	switch {
	case !a.hasReasoning:
		return 0
	case a.reasoningPieces > 0:
		return a.reasoningPieces - 1
	}
	return len(a.pieces)
}
