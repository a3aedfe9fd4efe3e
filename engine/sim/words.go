package sim

import (
	"math"
	"strconv"
	"strings"
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

// sentences are patterns of sentences: T and d are determiners (T starts the sentence), a
// an adjective, n a noun, v a verb, r an adverb, p a preposition, c a conjunction.
var sentences = [...]string{
	"Tanvdan.", "Tnrvdn.", "Tanvdnpdan.", "Tnvdan,cdnvdn.", "Tnpdnrvdan.", "Tanrvdn,cdanvdan.", "Tnvdn.",
}

// opening has the tokens with which every free text and every reasoning begins.
var opening = [...]string{"[", "simulated", "]"}

// logprobLevels is how many distinct log probabilities there are.
const logprobLevels = 256

// vocabulary holds the words of free text. It never changes once made.
type vocabulary struct {
	words    []string              // all words; each word is one token
	classes  [128][]string         // words by class: a letter of sentences, or a punctuation mark
	logprobs [logprobLevels]string // log probabilities as JSON numbers, likeliest first
}

func newVocabulary() *vocabulary {
	v := &vocabulary{}
	for i, list := range [...]string{determiners, adjectives, nouns, verbs, adverbs, prepositions, conjunctions} {
		class := "danvrpc"[i]
		for name := range strings.FieldsSeq(list) {
			v.add(class, " "+name)
		}
	}
	for name := range strings.FieldsSeq(determiners) {
		v.add('T', " "+strings.ToUpper(name[:1])+name[1:])
	}
	v.add('.', ".")
	v.add(',', ",")
	v.words = append(v.words, opening[:]...)
	for i := range v.logprobs {
		// Most tokens are nearly certain, few unlikely: a mean of about -0.35.
		share := float64(i) / logprobLevels
		value := -0.0004 - 2.4*math.Pow(share, 6) - 0.02*share
		v.logprobs[i] = strconv.FormatFloat(value, 'f', 6, 64)
	}
	return v
}

func (v *vocabulary) add(class byte, word string) {
	v.words = append(v.words, word)
	v.classes[class] = append(v.classes[class], word)
}

// textLength is the wanted length of a free text, in tokens.
type textLength struct {
	natural int  // the length that the model would choose
	exact   bool // the text has exactly this length; otherwise it continues to the end of its sentence
	limit   int  // largest length: the text is cut after this many tokens
}

// appendSentences appends free text: words in sentences. It returns true if the text ended by
// itself, and false if want.limit cut it.
func (v *vocabulary) appendSentences(text []byte, pieces []int32, r splitMix64, want textLength) ([]byte, []int32, bool) {
	base := len(pieces)
	stop := v.classes['.'][0]
	put := func(word string) (more, complete bool) {
		written := len(pieces) - base
		if written >= want.limit {
			return false, want.exact && written >= want.natural
		}
		if want.exact && written == want.natural-1 && want.natural > len(opening) {
			word = stop
		}
		text = append(text, word...)
		pieces = append(pieces, int32(len(text)))
		if written+1 >= want.natural && (want.exact || word == stop) {
			return false, true
		}
		return true, false
	}
	for _, word := range opening {
		if more, complete := put(word); !more {
			return text, pieces, complete
		}
	}
	for {
		sentence := sentences[r.intN(len(sentences))]
		for i := range len(sentence) {
			class := v.classes[sentence[i]]
			if more, complete := put(class[r.intN(len(class))]); !more {
				return text, pieces, complete
			}
		}
	}
}
