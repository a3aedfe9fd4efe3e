package tokenize

// scanner splits text into pieces, exactly as one of the known patterns does. Pieces
// follow each other without gaps. The text must be valid UTF-8.
//
// The patterns come from tiktoken (tiktoken_ext/openai_public.py) and from the
// tokenizer.json files of the models. A hand-written scanner must find the same
// pieces as leftmost-first matching with backtracking.
type scanner struct {
	family  patternFamily
	letters charClass // classes of the letters in a word of cl100k: \p{L}, in some patterns also \p{M}
	digits  int       // largest number of characters \p{N} in one piece
	table   *classTable
}

type patternFamily uint8

const (
	gpt2 patternFamily = iota + 1
	cl100k
	o200k
)

// next returns the end of the piece that starts at byte i. i must be less than len(s).
func (p *scanner) next(s string, i int) int {
	switch p.family {
	case o200k:
		return p.nextO200k(s, i)
	case cl100k:
		return p.nextCL100k(s, i)
	default:
		return p.nextGPT2(s, i)
	}
}

// nextO200k matches
//
//	[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//	[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//	\p{N}{1,3}
//	 ?[^\s\p{L}\p{N}]+[\r\n/]*
//	\s*[\r\n]+|\s+(?!\S)|\s+
func (p *scanner) nextO200k(s string, i int) int {
	c, n := p.table.classAt(s, i)
	switch {
	case c&letter != 0:
		_, end := p.matchWord(s, i)
		return end
	case c&number != 0:
		return p.skipClass(s, i+n, number, p.digits-1)
	case c&line == 0 && i+n < len(s):
		// The first character is part of a word if one follows.
		small, end := p.matchWord(s, i+n)
		if c&mark != 0 && !small {
			_, end = p.matchWord(s, i) // the pattern tries the first kind without this character before the second kind with it
		}
		if end > i+n {
			return end
		}
	}
	if c&mark != 0 {
		return i + n
	}
	if end := p.matchSymbols(s, i, '/'); end > i {
		return end
	}
	return p.matchSpace(s, i, true)
}

// matchWord matches the two kinds of words of o200k at byte i, without the character before
// the word. end is i if neither kind matches. small is true if the first kind matched:
// a word that ends in letters that are not capitals.
func (p *scanner) matchWord(s string, i int) (small bool, end int) {
	ascii := &p.table.pages[0]
	// Only ASCII up to the end of the word, so every letter has a case.
	at := i
	for at < len(s) && ascii[s[at]]&upper != 0 && s[at] < 0x80 {
		at++
	}
	capitals := at
	for at < len(s) && ascii[s[at]]&lower != 0 && s[at] < 0x80 {
		at++
	}
	if at == len(s) || s[at] < 0x80 {
		if at == i {
			return false, i
		}
		return at > capitals, matchContraction(s, at)
	}

	at = i
	caseless := -1 // end of the last character of the run that is not a capital, or -1
	for at < len(s) {
		c, n := p.table.classAt(s, at)
		if c&(upper|other|mark) == 0 {
			break
		}
		at += n
		if c&(other|mark) != 0 {
			caseless = at
		}
	}
	capitals = at
	at = p.skipClass(s, at, lower|other|mark, len(s))
	switch {
	case at > capitals:
		return true, matchContraction(s, at)
	case caseless >= 0:
		return true, matchContraction(s, caseless) // backtracking leaves the capitals at the end of the run to the next piece
	case at > i:
		return false, matchContraction(s, at)
	}
	return false, i
}

// nextCL100k matches the following pattern, with letters for \p{L} and digits
// for 3:
//
//	(?i:'s|'t|'re|'ve|'m|'ll|'d)
//	[^\r\n\p{L}\p{N}]?\p{L}+
//	\p{N}{1,3}
//	 ?[^\s\p{L}\p{N}]+[\r\n]*
//	\s*[\r\n]+|\s+(?!\S)|\s+
//
// The pattern in the original tiktoken keeps white space at the end of the text
// in one piece. No token of cl100k_base crosses the position where this pattern
// splits, so the tokens are the same.
func (p *scanner) nextCL100k(s string, i int) int {
	c, n := p.table.classAt(s, i)
	switch {
	case c&p.letters != 0:
		return p.skipClass(s, i+n, p.letters, len(s))
	case c&number != 0:
		return p.skipClass(s, i+n, number, p.digits-1)
	case c&line == 0 && i+n < len(s):
		if s[i] == '\'' {
			if end := matchContraction(s, i); end > i {
				return end
			}
		}
		if end := p.skipClass(s, i+n, p.letters, len(s)); end > i+n {
			return end
		}
	}
	if end := p.matchSymbols(s, i, '\n'); end > i {
		return end
	}
	return p.matchSpace(s, i, true)
}

// nextGPT2 matches
//
//	's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
func (p *scanner) nextGPT2(s string, i int) int {
	if s[i] == '\'' {
		if end := matchLowerContraction(s, i); end > i {
			return end
		}
	}
	at := i
	if s[i] == ' ' && i+1 < len(s) {
		at++
	}
	switch c, n := p.table.classAt(s, at); {
	case c&letter != 0:
		return p.skipClass(s, at+n, letter, len(s))
	case c&number != 0:
		return p.skipClass(s, at+n, number, len(s))
	case c&space == 0:
		return p.skipOthers(s, at+n)
	}
	return p.matchSpace(s, i, false)
}

// skipClass returns the end of the longest sequence of characters in set that begins at byte
// i, with at most limit characters.
func (p *scanner) skipClass(s string, i int, set charClass, limit int) int {
	for ; limit > 0 && i < len(s); limit-- {
		c, n := p.table.classAt(s, i)
		if c&set == 0 {
			break
		}
		i += n
	}
	return i
}

// skipOthers returns the end of the longest sequence of [^\s\p{L}\p{N}] that begins at byte
// i.
func (p *scanner) skipOthers(s string, i int) int {
	outside := space | number | letter | p.letters
	for i < len(s) {
		c, n := p.table.classAt(s, i)
		if c&outside != 0 {
			break
		}
		i += n
	}
	return i
}

// matchSymbols returns the end of a match of " ?[^\s\p{L}\p{N}]+[\r\n]*" at byte i; the last
// set also includes the byte also. It returns i if nothing matches.
func (p *scanner) matchSymbols(s string, i int, also byte) int {
	at := i
	if s[i] == ' ' {
		at++
	}
	end := p.skipOthers(s, at)
	if end == at {
		return i
	}
	for end < len(s) && (s[end] == '\n' || s[end] == '\r' || s[end] == also) {
		end++
	}
	return end
}

// matchSpace returns the end of a match of "\s+(?!\S)|\s+" at byte i, where white space must
// begin. If lines is true, it first tries "\s*[\r\n]+".
func (p *scanner) matchSpace(s string, i int, lines bool) int {
	end, last, newline := i, i, -1
	for end < len(s) {
		c, n := p.table.classAt(s, end)
		if c&space == 0 {
			break
		}
		last = end
		end += n
		if c&line != 0 {
			newline = end
		}
	}
	switch {
	case lines && newline >= 0:
		return newline
	case end == len(s) || last == i:
		return end
	}
	return last
}

// matchContraction returns the end of a match of (?i:'s|'t|'re|'ve|'m|'ll|'d)? at byte i.
// Because case is ignored, s also matches ſ (U+017F).
func matchContraction(s string, i int) int {
	if i+1 >= len(s) || s[i] != '\'' {
		return i
	}
	switch s[i+1] | 0x20 {
	case 's', 't', 'm', 'd':
		return i + 2
	case 'r', 'v':
		if i+2 < len(s) && s[i+2]|0x20 == 'e' {
			return i + 3
		}
	case 'l':
		if i+2 < len(s) && s[i+2]|0x20 == 'l' {
			return i + 3
		}
	}
	if i+2 < len(s) && s[i+1:i+3] == "ſ" {
		return i + 3
	}
	return i
}

// matchLowerContraction returns the end of a match of ('s|'t|'re|'ve|'m|'ll|'d)? at byte i.
func matchLowerContraction(s string, i int) int {
	end := matchContraction(s, i)
	for at := i + 1; at < end; at++ {
		if s[at] < 'a' || s[at] > 'z' {
			return i
		}
	}
	return end
}
