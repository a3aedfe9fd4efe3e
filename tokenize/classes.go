package tokenize

import (
	"sync"
	"unicode"
)

// charClass is a bit set: the character sets in the pre-tokenizers' patterns that include a
// character.
type charClass = uint8

const (
	upper  charClass = 1 << iota // \p{Lu} \p{Lt}
	lower                        // \p{Ll}
	other                        // \p{Lm} \p{Lo}: letters without case
	mark                         // \p{M}
	number                       // \p{N}
	space                        // \s, the property White_Space
	line                         // \r \n; they are also white space

	letter = upper | lower | other // \p{L}
)

// classTable has the class of every code point. index maps the upper bits of a code
// point to a page; equal pages are stored once. Page 0 is ASCII and Latin-1.
type classTable struct {
	index [(unicode.MaxRune + 1) >> 8]uint8
	pages [][256]charClass
}

// classOf returns the class of r. r must be a valid code point.
func (t *classTable) classOf(r rune) charClass { return t.pages[t.index[uint32(r)>>8]][uint8(r)] }

// classAt returns the class of the character of s at byte i, and its size in bytes. s must
// be valid UTF-8, and a character must begin at i.
func (t *classTable) classAt(s string, i int) (charClass, int) {
	switch c := s[i]; {
	case c < 0x80:
		return t.pages[0][c], 1
	case c < 0xE0:
		return t.classOf(rune(c&0x1F)<<6 | rune(s[i+1]&0x3F)), 2
	case c < 0xF0:
		_ = s[i+2]
		return t.classOf(rune(c&0x0F)<<12 | rune(s[i+1]&0x3F)<<6 | rune(s[i+2]&0x3F)), 3
	default:
		_ = s[i+3]
		return t.classOf(rune(c&0x07)<<18 | rune(s[i+1]&0x3F)<<12 | rune(s[i+2]&0x3F)<<6 | rune(s[i+3]&0x3F)), 4
	}
}

// unicode16 lists the characters that Unicode 16.0 adds to Go's tables (15.0).
// The original tiktoken (0.14) and the tokenizers library (0.23) use 16.0.
// Unicode 16.0 removed no characters from the sets.
var unicode16 = []struct {
	first, last rune
	class       charClass
}{
	{0x1C89, 0x1C89, upper},
	{0xA7CB, 0xA7CC, upper},
	{0xA7DA, 0xA7DA, upper},
	{0xA7DC, 0xA7DC, upper},
	{0x10D50, 0x10D65, upper},
	{0x1C8A, 0x1C8A, lower},
	{0xA7CD, 0xA7CD, lower},
	{0xA7DB, 0xA7DB, lower},
	{0x10D70, 0x10D85, lower},
	{0x10D4E, 0x10D4E, other},
	{0x10D6F, 0x10D6F, other},
	{0x16D40, 0x16D42, other},
	{0x16D6B, 0x16D6C, other},
	{0x105C0, 0x105F3, other},
	{0x10D4A, 0x10D4D, other},
	{0x10D4F, 0x10D4F, other},
	{0x10EC2, 0x10EC4, other},
	{0x11380, 0x11389, other},
	{0x1138B, 0x1138B, other},
	{0x1138E, 0x1138E, other},
	{0x11390, 0x113B5, other},
	{0x113B7, 0x113B7, other},
	{0x113D1, 0x113D1, other},
	{0x113D3, 0x113D3, other},
	{0x11BC0, 0x11BE0, other},
	{0x13460, 0x143FA, other},
	{0x16100, 0x1611D, other},
	{0x16D43, 0x16D6A, other},
	{0x18CFF, 0x18CFF, other},
	{0x1E5D0, 0x1E5ED, other},
	{0x1E5F0, 0x1E5F0, other},
	{0x2EBF0, 0x2EE5D, other},
	{0x0897, 0x0897, mark},
	{0x10D69, 0x10D6D, mark},
	{0x10EFC, 0x10EFC, mark},
	{0x113B8, 0x113C0, mark},
	{0x113C2, 0x113C2, mark},
	{0x113C5, 0x113C5, mark},
	{0x113C7, 0x113CA, mark},
	{0x113CC, 0x113D0, mark},
	{0x113D2, 0x113D2, mark},
	{0x113E1, 0x113E2, mark},
	{0x11F5A, 0x11F5A, mark},
	{0x1611E, 0x1612F, mark},
	{0x1E5EE, 0x1E5EF, mark},
	{0x10D40, 0x10D49, number},
	{0x116D0, 0x116E3, number},
	{0x11BF0, 0x11BF9, number},
	{0x16130, 0x16139, number},
	{0x16D70, 0x16D79, number},
	{0x1CCF0, 0x1CCF9, number},
	{0x1E5F1, 0x1E5FA, number},
}

// classes returns the table of classes. The first call builds it: 0.05 MB, in about 2
// ms.
var classes = sync.OnceValue(func() *classTable {
	all := make([]charClass, unicode.MaxRune+1)
	add := func(c charClass, tables ...*unicode.RangeTable) {
		for _, table := range tables {
			for _, r := range table.R16 {
				for at := uint32(r.Lo); at <= uint32(r.Hi); at += uint32(r.Stride) {
					all[at] |= c
				}
			}
			for _, r := range table.R32 {
				for at := r.Lo; at <= r.Hi; at += r.Stride {
					all[at] |= c
				}
			}
		}
	}
	add(upper, unicode.Lu, unicode.Lt)
	add(lower, unicode.Ll)
	add(other, unicode.Lm, unicode.Lo)
	add(mark, unicode.M)
	add(number, unicode.N)
	add(space, unicode.White_Space)
	all['\r'] |= line
	all['\n'] |= line
	for _, r := range unicode16 {
		for at := r.first; at <= r.last; at++ {
			all[at] |= r.class
		}
	}
	t := &classTable{}
	known := make(map[[256]charClass]uint8)
	for i := range t.index {
		page := [256]charClass(all[i<<8:])
		n, seen := known[page]
		if !seen {
			n = uint8(len(t.pages))
			known[page] = n
			t.pages = append(t.pages, page)
		}
		t.index[i] = n
	}
	return t
})
