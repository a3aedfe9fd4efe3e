package sim

import (
	"strconv"

	"github.com/rowmill/rowmill/internal/textfmt"
)

// appendLogprobs appends the log probabilities of the tokens from..to, or null if the
// request does not ask for them. They are made up: most tokens are nearly certain, few
// are unlikely. As on a real server, they include reasoning and </think>, and the
// chosen token is not always the likeliest, except at temperature 0.
func (g *chatGeneration) appendLogprobs(dst []byte, r *splitMix64, from, to int) []byte {
	if !g.req.Logprobs {
		return append(dst, "null"...)
	}
	dst = append(dst, `{"content":[`...)
	for i := from; i < to; i++ {
		if i > from {
			dst = append(dst, ',')
		}
		dst = g.appendLogprob(dst, r.Uint64(), i)
	}
	return append(dst, `]}`...)
}

// appendLogprob appends the entry of token i. bits are 64 random bits.
func (g *chatGeneration) appendLogprob(dst []byte, bits uint64, i int) []byte {
	token, top, v := g.answer.token(i), int(g.req.TopLogprobs), g.answer.words
	level := int(bits % logprobLevels)
	// One token in eight was not the likeliest.
	surpassed := bits>>8&7 == 0 && g.req.Temperature != 0
	if surpassed {
		level |= logprobLevels / 4
	}
	which := int(bits >> 16 % uint64(len(v.words)))
	dst = v.appendEntry(dst, token, level)
	dst = append(dst, `,"top_logprobs":[`...)
	chosen := surpassed // whether the chosen token must follow at rank 1
	for rank := range top {
		if rank > 0 {
			dst = append(dst, ',')
		}
		switch {
		case rank == 0 && surpassed:
			dst = v.appendEntry(dst, v.otherWord(token, which), level/2)
		case rank == 0 || rank == 1 && chosen:
			dst = v.appendEntry(dst, token, level)
		default:
			below := level + (logprobLevels-1-level)*rank/(top+1)
			dst = v.appendEntry(dst, v.otherWord(token, which+rank), below)
		}
		dst = append(dst, '}')
	}
	return append(dst, `]}`...)
}

// appendEntry appends a token with its log probability, without the closing brace.
// level selects the log probability.
func (v *vocabulary) appendEntry(dst, token []byte, level int) []byte {
	dst = textfmt.AppendString(append(dst, `{"token":`...), token)
	dst = append(append(dst, `,"logprob":`...), v.logprobs[level]...)
	dst = append(dst, `,"bytes":[`...)
	for i, b := range token {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendUint(dst, uint64(b), 10)
	}
	return append(dst, ']')
}

// otherWord returns a word of the vocabulary that is not the token. which selects the word.
func (v *vocabulary) otherWord(token []byte, which int) []byte {
	word := v.words[which%len(v.words)]
	if word == string(token) {
		word = v.words[(which+1)%len(v.words)]
	}
	return []byte(word)
}
