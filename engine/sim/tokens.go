package sim

// The token rule of the package comment.
const (
	maxTokenLetters = 12 // largest number of letters and digits in a token

	// maxTokenBytes is the longest token: a blank and its letters. A text of n
	// bytes therefore has at least n/maxTokenBytes tokens.
	maxTokenBytes = 1 + maxTokenLetters

	messageTokens = 4 // tokens that a message costs besides its content: start, role, line break, end
	promptTokens  = 3 // tokens that begin the answer: start, assistant, line break

	vocabularySize  = 1 << 17 // all token ids are smaller
	specialTokens   = 16      // number of the first ids, which are reserved for the chat template
	tokenStart      = 0
	tokenEnd        = 1
	tokenBreak      = 2
	tokenRole       = 3 // id of the first role; five ids in the order of roles
	tokenThinkClose = 8
)

// closeThink ends the reasoning in the stream of tokens. It is one token.
const closeThink = "</think>"

// wordByte is true for ASCII letters and digits.
var wordByte = func() (table [256]bool) {
	for _, span := range []string{"az", "AZ", "09"} {
		for b := int(span[0]); b <= int(span[1]); b++ {
			table[b] = true
		}
	}
	return table
}()

// endOfToken returns the index of the first byte after the token that begins at i. text must be
// valid UTF-8, and i must be less than its length.
func endOfToken[T ~string | ~[]byte](text T, i int) int {
	first := i
	if text[i] == ' ' && i+1 < len(text) && wordByte[text[i+1]] {
		first++
	}
	if wordByte[text[first]] {
		end := min(first+maxTokenLetters, len(text))
		i = first + 1
		for i < end && wordByte[text[i]] {
			i++
		}
		return i
	}
	i++
	if text[i-1] >= 0x80 {
		for i < len(text) && text[i]&0xc0 == 0x80 {
			i++
		}
	}
	return i
}

// countTokens counts the tokens of a text.
func countTokens[T ~string | ~[]byte](text T) (n int) {
	for i := 0; i < len(text); n++ {
		i = endOfToken(text, i)
	}
	return n
}

// tokenID returns the id of a token: the FNV-1a hash of its bytes, above the special
// ids.
func tokenID[T ~string | ~[]byte](token T) int {
	hash := uint64(14695981039346656037)
	for i := 0; i < len(token); i++ {
		hash = (hash ^ uint64(token[i])) * 1099511628211
	}
	return specialTokens + int(hash%(vocabularySize-specialTokens))
}

// appendTokenIDs appends the ids of a text's tokens.
func appendTokenIDs(ids []int, text []byte) []int {
	for i := 0; i < len(text); {
		end := endOfToken(text, i)
		ids = append(ids, tokenID(text[i:end]))
		i = end
	}
	return ids
}
