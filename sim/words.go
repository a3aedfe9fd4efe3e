package sim

import (
	"math"
	"strconv"
	"strings"

	"github.com/rowmill/rowmill/spelling"
)

// The vocabulary of free text. Every entry is one token by the rule of the
// package comment, in its lower-case form after a blank.
const (
	determiners  = "the this each every that our one another"
	adjectives   = "steady careful quiet clear simple recent useful gentle modern patient early broad curious exact familiar honest practical bright common subtle"
	nouns        = "result pattern reader answer signal method detail summary question example record context measure reason outcome balance change garden harbor journey market message model number office picture project river season station system teacher window writer"
	verbs        = "shows confirms explains follows supports reveals describes improves suggests answers collects balances combines prepares reflects gathers measures connects"
	adverbs      = "often clearly quietly usually carefully rarely simply directly"
	prepositions = "with without near behind after before across beyond"
	conjunctions = "and while because although"
)

// shapes are sentences: T and d are determiners (T starts the sentence), a an
// adjective, n a noun, v a verb, r an adverb, p a preposition, c a conjunction.
var shapes = [...]string{
	"Tanvdan.", "Tnrvdn.", "Tanvdnpdan.", "Tnvdan,cdnvdn.", "Tnpdnrvdan.", "Tanrvdn,cdanvdan.", "Tnvdn.",
}

// opening is how every free text and reasoning begins.
var opening = [...]string{"[", "simulated", "]"}

// logprobLevels is how many distinct log probabilities there are.
const logprobLevels = 256

// vocabulary holds the words of free text with what is needed to write them
// fast. It never changes once made.
type vocabulary struct {
	words   []word
	classes [128][]int16 // by the letters of shapes, and punctuation
	opening [len(opening)]int16

	logprobs [logprobLevels]string // as JSON numbers, likeliest first
}

// word is one token of free text.
type word struct {
	text string
	head string // {"token":"…","logprob":
	tail string // ,"bytes":[…]

	// The same for an entry whose only alternative is the token itself: what
	// comes between its two numbers, and behind them.
	middle, end string
}

func newVocabulary() *vocabulary {
	v := &vocabulary{}
	for i, list := range [...]string{determiners, adjectives, nouns, verbs, adverbs, prepositions, conjunctions} {
		class := "danvrpc"[i]
		for name := range strings.FieldsSeq(list) {
			v.classes[class] = append(v.classes[class], v.add(" "+name))
		}
	}
	for name := range strings.FieldsSeq(determiners) {
		v.classes['T'] = append(v.classes['T'], v.add(" "+strings.ToUpper(name[:1])+name[1:]))
	}
	v.classes['.'] = []int16{v.add(".")}
	v.classes[','] = []int16{v.add(",")}
	for i, text := range opening {
		v.opening[i] = v.add(text)
	}
	for i := range v.logprobs {
		// Most tokens are nearly certain, few unlikely: a mean of about -0.35.
		share := float64(i) / logprobLevels
		value := -0.0004 - 2.4*math.Pow(share, 6) - 0.02*share
		v.logprobs[i] = strconv.FormatFloat(value, 'f', 6, 64)
	}
	return v
}

func (v *vocabulary) add(text string) int16 {
	token := []byte(text)
	w := word{text: text, head: string(appendTokenHead(nil, token)), tail: string(appendTokenBytes(nil, token))}
	w.middle = w.tail + `,"top_logprobs":[` + w.head
	w.end = w.tail + `}]}`
	v.words = append(v.words, w)
	return int16(len(v.words) - 1)
}

// appendTokenHead begins an entry of a list of log probabilities.
func appendTokenHead(dst, token []byte) []byte {
	dst = append(dst, `{"token":`...)
	dst = spelling.AppendString(dst, token)
	return append(dst, `,"logprob":`...)
}

// appendTokenBytes writes the member bytes of such an entry.
func appendTokenBytes(dst, token []byte) []byte {
	dst = append(dst, `,"bytes":[`...)
	for i, b := range token {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendUint(dst, uint64(b), 10)
	}
	return append(dst, ']')
}

// span is how long a free text is to be, in tokens.
type span struct {
	natural int  // the length the model would choose
	exact   bool // not a token more; else it goes on to the end of the sentence
	limit   int  // where it is cut
}

// write appends free text, and reports whether it came to its natural end.
func (v *vocabulary) write(text []byte, pieces []piece, r random, want span) ([]byte, []piece, bool) {
	base := len(pieces)
	stop := v.classes['.'][0]
	put := func(id int16) (more, complete bool) {
		written := len(pieces) - base
		if written >= want.limit {
			return false, want.exact && written >= want.natural
		}
		if want.exact && written == want.natural-1 && want.natural > len(opening) {
			id = stop
		}
		text = append(text, v.words[id].text...)
		pieces = append(pieces, piece{word: id, end: int32(len(text))})
		if written+1 >= want.natural && (want.exact || id == stop) {
			return false, true
		}
		return true, false
	}
	for _, id := range v.opening {
		if more, complete := put(id); !more {
			return text, pieces, complete
		}
	}
	for {
		shape := shapes[r.below(len(shapes))]
		for i := range len(shape) {
			class := v.classes[shape[i]]
			if more, complete := put(class[r.below(len(class))]); !more {
				return text, pieces, complete
			}
		}
	}
}
