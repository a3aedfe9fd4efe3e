package openai

import (
	"fmt"
	"net/http"
	"unicode"
	"unicode/utf8"

	"github.com/rowmill/rowmill/engine"
)

// Limits of the values with which a server describes itself. Rowmill stores these
// values, sends them to other nodes, shows them and calculates with them. A value above
// its limit counts as missing.
const (
	maxModels  = 1024    // models of a server: vLLM with an adapter per customer lists hundreds
	maxName    = 256     // bytes of a model's name, which is often a path
	maxVersion = 64      // bytes of a version
	maxSlots   = 1 << 16 // rows that one server runs at once
	maxContext = 1 << 30 // tokens: the longest published context has 10 million
	maxCache   = 1 << 40 // tokens of a KV cache, about a petabyte
)

// zeroIfImplausible returns n, or 0 if n is negative or larger than most.
func zeroIfImplausible[N int | int64](n, most N) N {
	if n < 0 || n > most {
		return 0
	}
	return n
}

// printableOrEmpty returns text, or "" if text is longer than most bytes or has characters
// that cannot be shown on one line.
func printableOrEmpty(text string, maxBytes int) string {
	if len(text) > maxBytes || !utf8.ValidString(text) {
		return ""
	}
	for _, r := range text {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
			return ""
		}
	}
	return text
}

// dropImplausible sets implausible values of a server's description to 0 or to an empty
// text.
func dropImplausible(info *engine.ServerInfo, found *probeFacts) {
	info.Version = printableOrEmpty(info.Version, maxVersion)
	info.Slots = zeroIfImplausible(info.Slots, maxSlots)
	found.kvTokens = zeroIfImplausible(found.kvTokens, maxCache)
	for i := range info.Models {
		info.Models[i].ContextLength = zeroIfImplausible(info.Models[i].ContextLength, maxContext)
	}
}

// Limits of the tokens and the text of a request. Tokens cost money and count against
// quotas, so implausible numbers make the reply invalid.
const (
	// byteTokens limits the tokens per byte of a prompt: usually one at most, but some
	// tokenizers first expand characters such as ligatures.
	byteTokens = 4
	// templateTokens limits the tokens that a chat template adds to a prompt. The
	// longest templates, with instructions for tools, have some thousands.
	templateTokens = 64 << 10
	// mostTokenBytes limits the text of one token, in bytes. The longest tokens of any
	// vocabulary are runs of 128 spaces.
	mostTokenBytes = 512
	// spareTokens is the number of tokens that a server may generate or count beyond
	// max_tokens, such as the tokens of the last speculative step.
	spareTokens = 1 << 10
)

// maxInputTokens returns the largest plausible number of input tokens for a request of this
// many bytes.
func maxInputTokens(bytes int) int64 { return int64(bytes)*byteTokens + templateTokens }

// maxOutputTokens returns the largest plausible number of tokens in an answer. limit is the
// request's max_tokens; 0 means that only the context limits the answer.
func maxOutputTokens(limit int64) int64 {
	if limit <= 0 || limit > maxContext {
		return maxContext
	}
	return 2*limit + spareTokens
}

// maxTextBytes returns the maximum number of bytes that the text of an answer may have,
// never more than most. limit is the request's max_tokens; 0 means that the request has
// no max_tokens.
func maxTextBytes(limit int64, maxBytes int) int {
	if limit <= 0 || limit > int64(maxBytes)/mostTokenBytes {
		return maxBytes
	}
	return int(min(int64(maxBytes), (limit+spareTokens)*mostTokenBytes))
}

// checkUsage returns an error if the token numbers in a reply's usage are impossible
// for the request, otherwise nil. bytes is the size of the request and limit is its
// max_tokens, 0 for none.
func (r *replyReader) checkUsage(bytes int, limit int64) *engine.Error {
	if r.input <= maxInputTokens(bytes) && r.output <= maxOutputTokens(limit) {
		return nil
	}
	asked := fmt.Sprintf("a request of %d bytes", bytes)
	if limit > 0 {
		asked += fmt.Sprintf(" and max_tokens %d", limit)
	}
	return &engine.Error{
		Class: engine.Transient, Status: http.StatusOK, Code: "implausible_usage",
		Message: fmt.Sprintf("the server's usage reports %d input and %d output tokens, which is impossible for %s", r.input, r.output, asked),
	}
}
