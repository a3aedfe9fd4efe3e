// Package oddjson holds JSON texts of many kinds, valid and invalid, and checks that a
// reader of JSON accepts or refuses all texts of a kind. Public collections have the
// same kinds: numbers, strings, escapes, structure, nesting, encodings, byte-order
// marks. This package makes its own texts.
package oddjson

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"
)

// A Verdict is whether a ReaderUnderTest accepts or refuses all texts of a kind.
type Verdict bool

// The verdicts.
const (
	Taken   Verdict = true
	Refused Verdict = false
)

// A ReaderUnderTest is code that reads JSON from clients or servers.
type ReaderUnderTest struct {
	// Wrap puts a JSON value into a document that the reader accepts.
	Wrap func(value string) string
	// Take passes a document to the reader. An error means that the reader refuses it.
	Take func(document string) error
	// Verdicts has, by name of the kind, whether this reader accepts the texts of the kind.
	// It must have exactly the kinds on which standards and parsers disagree.
	Verdicts map[string]Verdict
}

// A textKind is a set of texts. A reader must accept all of them or refuse all of them.
type textKind struct {
	name    string
	verdict *Verdict                       // verdict of every reader; nil if ReaderUnderTest.Verdicts decides
	texts   []string                       // values for Wrap
	whole   func(document string) []string // makes further texts from a whole valid document
}

// CheckReader checks a reader with the texts of all kinds.
func CheckReader(t *testing.T, reader ReaderUnderTest) {
	t.Helper()
	open := 0
	for _, k := range kinds() {
		want, decided := reader.Verdicts[k.name]
		switch {
		case k.verdict != nil && decided:
			t.Errorf("ReaderUnderTest.Verdicts has %q; remove it: all places must treat this kind the same", k.name)
		case k.verdict != nil:
			want = *k.verdict
		case !decided:
			t.Errorf("ReaderUnderTest.Verdicts lacks %q; add Taken or Refused", k.name)
		default:
			open++
		}
		var documents []string
		for _, text := range k.texts {
			documents = append(documents, reader.Wrap(text))
		}
		if k.whole != nil {
			documents = append(documents, k.whole(reader.Wrap("1"))...)
		}
		for _, document := range documents {
			if err := reader.Take(document); (err == nil) != bool(want) {
				t.Errorf("%s: %s: accepted: %t (error: %v), want %t", k.name, shorten(document), err == nil, err, want)
			}
		}
	}
	if open != len(reader.Verdicts) {
		t.Errorf("ReaderUnderTest.Verdicts has %d entries, want %d: remove the names that are not the name of a kind", len(reader.Verdicts), open)
	}
}

// Count returns the number of texts of all kinds.
func Count() (n int) {
	for _, k := range kinds() {
		n += len(k.texts)
		if k.whole != nil {
			n += len(k.whole("{}"))
		}
	}
	return n
}

// shorten returns a document in quotes for a message. A long document is cut.
func shorten(document string) string {
	if len(document) > 120 {
		return fmt.Sprintf("%q and %d bytes more", document[:120], len(document)-120)
	}
	return fmt.Sprintf("%q", document)
}

func kinds() []textKind {
	taken, refused := Taken, Refused
	nested := func(levels int) []string {
		return []string{
			strings.Repeat("[", levels) + strings.Repeat("]", levels),
			strings.Repeat(`{"a":`, levels) + "1" + strings.Repeat("}", levels),
			strings.Repeat(`[{"":`, levels/2) + `""` + strings.Repeat("}]", levels/2),
		}
	}
	return []textKind{
		// Every reader accepts these kinds.
		{name: "literal", verdict: &taken, texts: strings.Fields(`true false null`)},
		{name: "number", verdict: &taken, texts: numbers()},
		{name: "string", verdict: &taken, texts: validStrings()},
		{name: "array", verdict: &taken, texts: []string{`[]`, `[ ]`, `[1]`, `[null,1,"a",{},[]]`, `[[[]]]`, `[1 , 2]`, `[""]`, `["a","b"]`, "[\t1\r]", `[[],[],[1]]`}},
		{name: "object", verdict: &taken, texts: []string{`{}`, `{ }`, `{"a":1}`, `{"":0}`, `{"a":{"b":[]}}`, `{"a":1,"b":2}`, `{ "a" : 1 }`, `{"\u0061":1}`, `{"` + strings.Repeat("k", 300) + `":1}`, `{"a\u0000b":1}`, `{"é😀":"ü"}`}},
		{name: "repeated name", verdict: &taken, texts: []string{`{"a":1,"a":2}`, `{"a":1,"a":1}`, `{"a":[],"\u0061":{}}`, `{"":1,"":2}`}},
		{name: "white space", verdict: &taken, texts: []string{" 1", "1 ", "\t1\t", "\r1\r", " \t\r[ \t\r1 \t\r, \t\r2 \t\r] \t\r"}},
		{name: "nested 20 deep", verdict: &taken, texts: nested(20)},

		// Every reader refuses these kinds.
		{name: "bad literal", verdict: &refused, texts: strings.Fields(`True FALSE nul nulL tru truefalse undefined None yes nullx fals #t`)},
		{name: "bad number", verdict: &refused, texts: append(strings.Fields(
			`01 -01 00 -00.5 +1 .5 5. -.5 1e 1e+ 1E- 1.e1 1..2 0x1F 0b1 1_000 1,5 --1 - 1a 0e 1e1.5 1ee2 -a 1+2 0.3e+ 2.e3 -NaN nan Inf +Inf -Inf +Infinity infinity 1e٣ １ ½ 1.2.3 0.e1 0E 0e+ -.123 1ea -2. 1.-2`),
			"- 1", "1 000", "1 .5", "1 e5")},
		{name: "bad string", verdict: &refused, texts: []string{
			`"`, `"a`, `'a'`, `"\x41"`, `"\a"`, `"\`, `"\"`, `"\u"`, `"\u12"`, `"\u00g0"`, `"\U0041"`, `"\ud800\u"`, `"\ud800\u1"`, `"\ud800\`, `a`,
			`"a""b"`, `“a”`, `"\0"`, `"\'"`, `"\ "`, `"\é"`, "`a`", `"\u 041"`, `"\u{41}"`, `"\v"`, `"\\\"`,
		}},
		{name: "control character in a string", verdict: &refused, texts: withControlCharacters()},
		{name: "bad array", verdict: &refused, texts: []string{
			`[`, `]`, `[1`, `[1,`, `[1,]`, `[,1]`, `[,]`, `[1,,2]`, `[1 2]`, `["a"`, `[1:2]`, `[a]`, `[1;2]`, `[*]`, `["",]`, `[1]]`, `[1}`, `[[1]`, `[1],[`, `[""`, `["a" "b"]`, `[\]`, `(1)`, `<1>`, `[1,,]`, `[,,]`,
		}},
		{name: "bad object", verdict: &refused, texts: []string{
			`{`, `{"a"}`, `{"a":}`, `{"a" 1}`, `{a:1}`, `{'a':1}`, `{"a":1,}`, `{,}`, `{"a":1 "b":2}`, `{1:1}`, `{null:1}`, `{"a"::1}`, `{"a",1}`, `{"a":1,,"b":2}`,
			`{[]:1}`, `{"a":"a"`, `{"a":1}#`, `{"a":1}/**/`, `{"a":1}//`, `{"a":/**/1}`, `{"a":1;"b":2}`, `{"a"=1}`, `{"a":1]`, `{"a`, `{"a":"b"]`, `{"a":{}`, `{:1}`, `{"a":1,"b"}`,
			`{"a":1,"b":}`, `{"a":1,b:2}`, `{"a":tru}`,
		}},
		{name: "bad white space", verdict: &refused, texts: []string{"\f1", "\v1", "1\f", "\u00a01", "\u20601", "1\u0085", "\ufeff1", "[\v]", "[1\u2028]", "{\f}", "\x001", "1\x00", "[\x00]", "\u30001", "\x1b1"}},
		{name: "bytes that are not UTF-8 outside of strings", verdict: &refused, texts: []string{"\xff", "[\xe5]", "1\xe5", "[1\xe5]", "{\xb9:1}", "[\"a\"\xc3]", "\xc3\xa9", "1e1\xe5", "-\xff"}},
		{name: "text before the value", verdict: &refused, whole: func(d string) []string { return []string{"," + d, "[" + d, "1 " + d, "x" + d, "\x00" + d} }},
		{name: "cut", verdict: &refused, whole: func(d string) []string {
			var cut []string
			for n := 1; n < len(d); n++ {
				cut = append(cut, d[:n])
			}
			return cut
		}},
		{name: "half a byte-order mark", verdict: &refused, whole: func(d string) []string { return []string{"\xef\xbb" + d, "\xef" + d, "\xbf" + d} }},
		{name: "UTF-16", verdict: &refused, whole: func(d string) []string {
			return []string{encodeUTF16(d, false, true), encodeUTF16(d, true, true), encodeUTF16(d, false, false), encodeUTF16(d, true, false)}
		}},
		{name: "nested 100,000 deep", verdict: &refused, texts: append(nested(100_000), strings.Repeat("[", 100_000), strings.Repeat(`[{"":`, 50_000))},

		// Some places accept these kinds, other places refuse them.
		{name: "text behind the value", whole: func(d string) []string {
			return []string{d + " " + d, d + d, d + ",", d + "x", d + "]", d + "}", d + " 1", d + `"`, d + "\x00", d + "é", d + "\xef\xbb\xbf"}
		}},
		{name: "NaN", texts: strings.Fields(`NaN Infinity -Infinity [NaN] [-Infinity,1]`)},
		{name: "number of many digits", texts: []string{
			"1" + strings.Repeat("0", 64), "-" + strings.Repeat("7", 300), "0." + strings.Repeat("3", 500), "1." + strings.Repeat("0", 1000), strings.Repeat("9", 250) + "." + strings.Repeat("9", 250) + "e-9",
		}},
		{name: "number of endless digits", texts: []string{"0." + strings.Repeat("1", 100_000), strings.Repeat("1", 3000) + "e-2990", "1." + strings.Repeat("0", 5000) + "e0"}},
		{name: "number beyond float64", texts: strings.Fields(`1e400 -1e400 1e99999 -123123e100000 1E+99999999999999999999 0.4e006699999999999999999999`)},
		{name: "number below float64", texts: strings.Fields(`1e-400 123e-10000000 -1e-99999999999999999999 0e-999999`)},
		{name: "lone surrogate", texts: []string{
			`"\ud800"`, `"\udc00"`, `"\ud800abc"`, `"\udc00\ud800"`, `"\ud800\ud800"`, `"\ud800\n"`, `"\ud800\u0061"`, `"\uDFFF"`, `"\ud83d\ud83d\ude00"`, `["\uDADA"]`, `"\ud888\u1234"`,
		}},
		{name: "lone surrogate in a name", texts: []string{`{"\ud800":1}`, `{"a\udc00":1}`}},
		{name: "bytes that are not UTF-8 in a string", texts: []string{
			"\"\xff\"", "\"\xc3(\"", "\"\xc0\xaf\"", "\"\xed\xa0\x80\"", "\"\xf4\xbf\xbf\xbf\"", "\"\xe2\x82\"", "\"\xe9\"", "\"\x80\"", "\"\xfc\x83\xbf\xbf\xbf\xbf\"", "{\"\xff\":1}",
		}},
		{name: "nested 60 deep", texts: nested(60)},
		{name: "nested 1,000 deep", texts: nested(1000)},
		{name: "byte-order mark", whole: func(d string) []string { return []string{"\xef\xbb\xbf" + d} }},
		{name: "two byte-order marks", whole: func(d string) []string { return []string{"\xef\xbb\xbf\xef\xbb\xbf" + d} }},
	}
}

// numbers returns numbers that every reader must accept: with sign, integer, fraction
// and exponent.
func numbers() []string {
	var made []string
	for _, sign := range []string{"", "-"} {
		for _, whole := range []string{"0", "1", "9", "10", "123456789"} {
			for _, fraction := range []string{"", ".0", ".5", ".125", ".000001"} {
				for _, exponent := range []string{"", "e0", "E2", "e+3", "E-4", "e05"} {
					made = append(made, sign+whole+fraction+exponent)
				}
			}
		}
	}
	return append(made, "9007199254740993", "-9223372036854775808", "18446744073709551616", "1.7976931348623157e308", "5e-324", "0.1e1", "-0.0")
}

// validStrings returns strings that every reader must accept.
func validStrings() []string {
	made := []string{
		`""`, `"a"`, `" "`, `"a b"`, `"\"\\\/\b\f\n\r\t"`, `"\u0041"`, `"\u00e9"`, `"\u00E9"`, `"\ud83d\ude00"`, `"\uD83D\uDE00"`, `"\u2028\u2029"`, "\"\u2028\u2029\"",
		"\"\x7f\"", `"\u0000"`, `"\u001f"`, "\"\uffff\ufffe\ufdd0\"", "\"\U0010ffff\"", `"\uffff"`, `"😀"`, `"é"`, "\"\ufeff\"", `"\ufeff"`, `"[1,2"`, `"{\"a\":1}"`, `"//"`, `"/*a*/"`, `"'"`,
		`"\\u0041"`, `"\\"`, `"\\\\\""`, `"` + strings.Repeat("long ", 2000) + `"`, `"\u0060\u012a\u12AB"`, `"\uDBFF\uDFFF"`, `"\udbff\udffe"`, `"\ud834\udd1e"`, "\"\u20ac𝄞\"",
	}
	return slices.Clip(made)
}

// withControlCharacters returns strings and names that contain a control character.
func withControlCharacters() []string {
	var made []string
	for c := range byte(0x20) {
		made = append(made, `"a`+string(rune(c))+`b"`, `{"`+string(rune(c))+`":1}`)
	}
	return made
}

// encodeUTF16 encodes a text in UTF-16. mark adds a byte-order mark.
func encodeUTF16(text string, bigEndian, mark bool) string {
	units := utf16.Encode([]rune(text))
	if mark {
		units = append([]uint16{0xfeff}, units...)
	}
	var made []byte
	for _, u := range units {
		low, high := byte(u), byte(u>>8)
		if bigEndian {
			low, high = high, low
		}
		made = append(made, low, high)
	}
	return string(made)
}
