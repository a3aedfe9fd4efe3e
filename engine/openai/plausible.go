package openai

import (
	"fmt"
	"net/http"
	"unicode"
	"unicode/utf8"

	"github.com/rowmill/rowmill/engine"
)

// What a server says of itself is kept, passed on to other nodes, shown, and
// reckoned with. What no server has counts as not said.
const (
	maxModels  = 1024    // vLLM with an adapter for each customer lists hundreds
	maxName    = 256     // bytes of a model's name: a path, often
	maxVersion = 64      // bytes of a version
	maxSlots   = 1 << 16 // rows that one server runs at once
	maxContext = 1 << 30 // tokens: the longest context that is published has 10 million
	maxCache   = 1 << 40 // tokens of a KV cache: a petabyte of it
)

// usable is n, or 0 where it is no number of what there are most of.
func usable[N int | int64](n, most N) N {
	if n < 0 || n > most {
		return 0
	}
	return n
}

// shortWord is text, or nothing where it is longer than most bytes or holds what
// cannot be shown on a line.
func shortWord(text string, most int) string {
	if len(text) > most || !utf8.ValidString(text) {
		return ""
	}
	for _, r := range text {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
			return ""
		}
	}
	return text
}

// keepUsable leaves out of what a server says what cannot be.
func keepUsable(info *engine.Info, found *facts) {
	info.Version = shortWord(info.Version, maxVersion)
	info.Slots = usable(info.Slots, maxSlots)
	found.kvTokens = usable(found.kvTokens, maxCache)
	for i := range info.Models {
		info.Models[i].ContextLength = usable(info.Models[i].ContextLength, maxContext)
	}
}

// What a request can cost. Tokens are paid for and counted against quotas, so
// that a figure which cannot be is no answer.
const (
	// byteTokens bounds the tokens of a byte: one has one at most, but some
	// tokenizers write characters out before they count, such as ligatures.
	byteTokens = 4
	// templateTokens bounds what a chat template adds: the longest, with
	// instructions for tools, add some thousands.
	templateTokens = 64 << 10
	// mostTokenBytes bounds the text of a token; the longest in any vocabulary
	// are runs of 128 blanks.
	mostTokenBytes = 512
	// spareTokens is what a server may generate, or count, beyond the limit it
	// was given, such as those of a last guess of several.
	spareTokens = 1 << 10
)

// mostInput is how many tokens a request of so many bytes has at most.
func mostInput(bytes int) int64 { return int64(bytes)*byteTokens + templateTokens }

// mostOutput is how many tokens an answer has at most that was limited to so
// many; 0 is no limit but the context.
func mostOutput(limit int64) int64 {
	if limit <= 0 || limit > maxContext {
		return maxContext
	}
	return 2*limit + spareTokens
}

// mostText is how many bytes such an answer has at most.
func mostText(limit int64, most int) int {
	if limit <= 0 || limit > int64(most)/mostTokenBytes {
		return most
	}
	return int(min(int64(most), (limit+spareTokens)*mostTokenBytes))
}

// liesOfUsage is the error of a reply whose figures cannot be those of a request
// of so many bytes, nil where they can.
func (r *reply) liesOfUsage(bytes int, limit int64) *engine.Error {
	if r.input <= mostInput(bytes) && r.output <= mostOutput(limit) {
		return nil
	}
	asked := fmt.Sprintf("a request of %d bytes", bytes)
	if limit > 0 {
		asked += fmt.Sprintf(" and max_tokens %d", limit)
	}
	return &engine.Error{
		Class: engine.Moment, Status: http.StatusOK, Code: "implausible_usage",
		Message: fmt.Sprintf("the server's usage says %d and %d tokens, which %s cannot have", r.input, r.output, asked),
	}
}
