package sim

import (
	"fmt"

	"github.com/rowmill/rowmill/internal/textfmt"
)

// appendHead appends the beginning of a completion or of a chunk, up to the value of
// choices.
func (g *chatGeneration) appendHead(dst []byte, object string) []byte {
	dst = fmt.Appendf(dst, `{"id":"chatcmpl-sim-%x","object":"%s","created":%d,"model":`, g.serial, object, g.began.Unix())
	dst = textfmt.AppendString(dst, []byte(g.req.name))
	return append(dst, `,"system_fingerprint":"rowmill-sim","simulated":true,"choices":[`...)
}

// appendCompletion writes the body of a whole answer.
func (g *chatGeneration) appendCompletion(dst []byte) []byte {
	dst = g.appendHead(dst, "chat.completion")
	if g.injected.fault != faultEmpty {
		for n := range int(g.req.Choices) {
			if n > 0 {
				dst = append(dst, ',')
			}
			dst = g.appendChoice(dst, n)
		}
	}
	return append(g.appendUsage(append(dst, ']')), '}')
}

// appendChoice appends answer number n, an entry of choices.
func (g *chatGeneration) appendChoice(dst []byte, n int) []byte {
	a, req := &g.answer, &g.req
	dst = fmt.Appendf(dst, `{"index":%d,"message":{"role":"assistant"`, n)
	if a.hasReasoning {
		dst = append(dst, `,"reasoning_content":`...)
		dst = textfmt.AppendString(dst, a.reasoning(0, a.sentBytes))
	}
	dst = append(dst, `,"content":`...)
	switch content := a.content(0, a.sentBytes); {
	case req.called != nil:
		dst = req.called.appendCall(append(dst, "null"...), g.serial, n, content)
	case content != nil || !a.hasReasoning:
		dst = textfmt.AppendString(dst, content)
	default:
		dst = append(dst, "null"...)
	}
	dst = append(dst, `},"logprobs":`...)
	r := req.digest.random().fork(4)
	dst = append(g.appendLogprobs(dst, &r, 0, len(a.pieces)), ',')
	return append(a.appendFinish(dst), '}')
}

// appendFinish appends the members finish_reason and stop_reason, which say why the
// answer ended.
func (a *answer) appendFinish(dst []byte) []byte {
	dst = append(dst, `"finish_reason":`...)
	dst = textfmt.AppendString(dst, []byte(a.finish))
	dst = append(dst, `,"stop_reason":`...)
	switch {
	case a.stopText != nil:
		return textfmt.AppendString(dst, a.stopText)
	case a.stopID != 0:
		return fmt.Append(dst, a.stopID)
	}
	return append(dst, "null"...)
}

// appendUsage writes the member usage.
func (g *chatGeneration) appendUsage(dst []byte) []byte {
	input, output := g.req.promptTokens, len(g.answer.pieces)*int(g.req.Choices)
	dst = fmt.Appendf(dst, `,"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d}`,
		input, output, input+output, g.use.CachedTokens)
	if g.answer.hasReasoning {
		dst = fmt.Appendf(dst, `,"completion_tokens_details":{"reasoning_tokens":%d}`, g.answer.reasoningTokens())
	}
	return append(dst, '}')
}
