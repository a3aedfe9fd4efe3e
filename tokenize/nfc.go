package tokenize

import (
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// normalizeNFC normalizes a text to Unicode's form C, as the tokenizers library (0.23)
// does. The library uses Unicode 9, so it treats later marks like any other
// character and does not move them.
func normalizeNFC(text string) string {
	if norm.NFC.IsNormalString(text) {
		return text
	}
	marks := 0
	for _, r := range text {
		if marks++; classes().classOf(r)&mark == 0 {
			marks = 0
		}
		// x/text has no Unicode 9, and inserts U+034F after 30 marks.
		if marks > 10 || isLaterMark(r) {
			return composeSlowly(text)
		}
	}
	return norm.NFC.String(text)
}

// composeSlowly returns the NFC form of text as the standard describes it (UAX 15, section 1.3;
// D108 to D117 of the Unicode standard): it decomposes all characters, sorts
// marks and composes characters again.
func composeSlowly(text string) string {
	type character struct {
		r     rune
		class uint8 // canonical combining class; 0 for a starter
	}
	var all []character
	for _, r := range text {
		if isLaterMark(r) {
			all = append(all, character{r, 0})
			continue
		}
		for _, d := range norm.NFD.String(string(r)) {
			all = append(all, character{d, norm.NFD.PropertiesString(string(d)).CCC()})
		}
	}
	for begin := 0; begin < len(all); begin++ {
		end := begin
		for end < len(all) && all[end].class != 0 {
			end++
		}
		slices.SortStableFunc(all[begin:end], func(a, b character) int { return int(a.class) - int(b.class) })
		begin = end
	}
	done := all[:0]
	starter := -1
	for _, c := range all {
		if starter >= 0 && !isLaterMark(c.r) {
			// A character between the two blocks the composition, unless its class is lower.
			blocked := len(done)-1 > starter && done[len(done)-1].class >= c.class
			pair := string(done[starter].r) + string(c.r)
			if one := norm.NFC.String(pair); !blocked && utf8.RuneCountInString(one) == 1 {
				done[starter].r, _ = utf8.DecodeRuneInString(one)
				continue
			}
		}
		if c.class == 0 {
			starter = len(done)
		}
		done = append(done, c)
	}
	var b strings.Builder
	for _, c := range done {
		b.WriteRune(c.r)
	}
	return b.String()
}

// laterMarks are ranges of the characters that Unicode 15 sorts, composes or decomposes
// and Unicode 9 does not.
var laterMarks = [][2]rune{
	{0x07FD, 0x07FD},
	{0x0898, 0x089F},
	{0x08CA, 0x08D3},
	{0x09FE, 0x09FE},
	{0x0C3C, 0x0C3C},
	{0x0D3B, 0x0D3C},
	{0x0EBA, 0x0EBA},
	{0x1715, 0x1715},
	{0x1ABF, 0x1ACE},
	{0x1DF6, 0x1DFA},
	{0xA82C, 0xA82C},
	{0x10D24, 0x10D27},
	{0x10EAB, 0x10EAC},
	{0x10EFD, 0x10EFF},
	{0x10F46, 0x10F50},
	{0x10F82, 0x10F85},
	{0x11070, 0x11070},
	{0x1133B, 0x1133B},
	{0x1145E, 0x1145E},
	{0x11839, 0x1183A},
	{0x11930, 0x11930},
	{0x11938, 0x11938},
	{0x1193D, 0x1193E},
	{0x11943, 0x11943},
	{0x119E0, 0x119E0},
	{0x11A34, 0x11A34},
	{0x11A47, 0x11A47},
	{0x11A99, 0x11A99},
	{0x11D42, 0x11D42},
	{0x11D44, 0x11D45},
	{0x11D97, 0x11D97},
	{0x11F41, 0x11F42},
	{0x16FF0, 0x16FF1},
	{0x1E08F, 0x1E08F},
	{0x1E130, 0x1E136},
	{0x1E2AE, 0x1E2AE},
	{0x1E2EC, 0x1E2EF},
	{0x1E4EC, 0x1E4EF},
}

func isLaterMark(r rune) bool {
	for _, span := range laterMarks {
		if r <= span[1] {
			return r >= span[0]
		}
	}
	return false
}
