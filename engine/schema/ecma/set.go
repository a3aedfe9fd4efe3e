package ecma

import (
	"slices"
	"sort"
	"strings"
	"unicode"
)

// A charSet is a set of characters: a list of ranges, each with its first and its last
// character. A normalized set is sorted and has no overlaps.
type charSet []rune

var (
	digits     = charSet{'0', '9'}
	words      = charSet{'0', '9', 'A', 'Z', '_', '_', 'a', 'z'}
	spaces     = charSet{'\t', '\r', ' ', ' ', 0xa0, 0xa0, 0x1680, 0x1680, 0x2000, 0x200a, 0x2028, 0x2029, 0x202f, 0x202f, 0x205f, 0x205f, 0x3000, 0x3000, 0xfeff, 0xfeff}
	lineBreaks = charSet{'\n', '\n', '\r', '\r', 0x2028, 0x2029}
	anything   = charSet{0, unicode.MaxRune}
)

// normalized returns the same set with its ranges sorted and with overlapping and
// adjacent ranges joined.
func (s charSet) normalized() charSet {
	pairs := make([][2]rune, 0, len(s)/2)
	for i := 0; i < len(s); i += 2 {
		pairs = append(pairs, [2]rune{s[i], s[i+1]})
	}
	slices.SortFunc(pairs, func(a, b [2]rune) int { return int(a[0] - b[0]) })
	joined := make(charSet, 0, len(s))
	for _, p := range pairs {
		if last := len(joined) - 1; last > 0 && p[0] <= joined[last]+1 {
			joined[last] = max(joined[last], p[1])
			continue
		}
		joined = append(joined, p[0], p[1])
	}
	return joined
}

// complement returns the set of all characters that are not in the normalized set s.
func (s charSet) complement() charSet {
	made, next := make(charSet, 0, len(s)+2), rune(0)
	for i := 0; i < len(s); i += 2 {
		if s[i] > next {
			made = append(made, next, s[i]-1)
		}
		next = s[i+1] + 1
	}
	if next <= unicode.MaxRune {
		made = append(made, next, unicode.MaxRune)
	}
	return made
}

// without returns the characters of the normalized set s that are not in t.
func (s charSet) without(t charSet) charSet {
	return append(s.complement(), t...).normalized().complement()
}

// has reports whether the normalized set s contains c.
func (s charSet) has(c rune) bool {
	if len(s) <= 8 {
		for i := 0; i < len(s); i += 2 {
			if c <= s[i+1] {
				return c >= s[i]
			}
		}
		return false
	}
	i := sort.Search(len(s)/2, func(i int) bool { return c <= s[2*i+1] })
	return 2*i < len(s) && c >= s[2*i]
}

// write writes the set in the syntax of Go's regexp.
func (s charSet) write(b *strings.Builder) {
	if len(s) == 0 {
		b.WriteString(`[^\x{0}-\x{10FFFF}]`)
		return
	}
	b.WriteByte('[')
	for i, c := range s {
		b.WriteString(`\x{` + hex(c) + `}`)
		if i%2 == 0 {
			b.WriteByte('-')
		}
	}
	b.WriteByte(']')
}

// setOf returns the set of all characters in the given tables of package unicode.
func setOf(tables ...*unicode.RangeTable) charSet {
	var made charSet
	for _, table := range tables {
		for _, r := range table.R16 {
			made = appendStride(made, rune(r.Lo), rune(r.Hi), rune(r.Stride))
		}
		for _, r := range table.R32 {
			made = appendStride(made, rune(r.Lo), rune(r.Hi), rune(r.Stride))
		}
	}
	return made.normalized()
}

// appendStride appends every stride-th character from low to high to s.
func appendStride(s charSet, low, high, stride rune) charSet {
	if stride == 1 {
		return append(s, low, high)
	}
	for c := low; c <= high; c += stride {
		s = append(s, c, c)
	}
	return s
}
