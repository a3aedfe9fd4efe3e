package tokenize

import (
	"math/rand/v2"
	"strings"
	"unicode"
	"unicode/utf8"
)

// hardTexts are texts on which pre-tokenizers and merges easily differ.
var hardTexts = []string{
	"", " ", "  ", "\n", " \n", "\n ", "\n  \n", "a\n  \n b", "x  \r\n\r\n\ty ", "\t\tif (a) {\n\t\t\tb();\n\t\t}\n",
	"Hello, world! It's what they'd've said: I'm SURE WE'LL 'twas", "'s 'S 'll 'LL 'lL 'l 'ſ a'ſb 're're",
	"internationalization Internationale INTERNATIONAL iPhone XMLHttpRequest", "1234567890 3.14159 ٣٤٥ Ⅷ ½ x1y22z333",
	"ABCʰDEF ʰʰa Aʰa aʰA ǅungla ǅ Ǆ", "e\u0301a \u0301 \u0301\u0301A a\u0301\u0301B !\u0301A \u0301ABC \u0301ABCd",
	"你好,世界。这是一个测试 北京赛车 𠮷野家", "こんにちは カタカナ 한국어 텍스트", "Привет, мир! Ελληνικά עברית العَرَبِيَّة हिन्दी ไทย",
	"🙂 👩‍👩‍👧‍👦 🇩🇪 \u200d\ufe0f", "\u00a0\u2003x\u3000 y\u2028z\u0085", "https://example.org/a//b?c=d&e=%20", "/* --- */ // ==== ####",
	"<|endoftext|> <|im_start|>user", "\x00\x01\x7f", "a\u0000b", "\ufeffbom", "\U00011f5a\U000143fa\U0001ccf0",
	"----------------------------------------------------------------", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
	"Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft",
	"a\u05b7\u1abf\u0301 \u1dfa\u0316\u0301 \U00011935\U00011930 \u0301\u0345\u10eab", "\xff", "a\xffb", "\xe4\xbd", "ok \xf0\x9f\x99 \xc0\x80 \xed\xa0\x80",
}

// fragments are combined at random.
var fragments = []string{
	" ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u3000", "'", "'s", "'LL", "'re", "'ſ", "the", " and", "ing", "A", "Z", "É", "ß", "ʰ", "ǅ", "\u0301", "\u093f",
	"1", "22", "٣", "Ⅷ", "½", "/", "//", ".", "...", "!", "_", "-", "----", "<", "<|", "|>", "你", "好", "北京", "赛车", "の", "한", "국", "д", "и", "α", "ש", "ا", "क", "ก", "🙂", "𠮷", "\u200d",
	"function", "return", "(", ")", "{", "}", "==", "\ufffd", "q", "x", "ab", "\u00c5", "\u212b", "A\u030a", "\u1100\u1161", "\u0958",
}

// randomText returns a text of about n fragments. Many fragments come from
// a small set.
func randomText(r *rand.Rand, n int) string {
	var b strings.Builder
	few := make([]string, 1+r.IntN(6))
	for i := range few {
		few[i] = fragments[r.IntN(len(fragments))]
	}
	for range r.IntN(n + 1) {
		switch r.IntN(12) {
		case 0:
			b.WriteString(fragments[r.IntN(len(fragments))])
		case 1:
			b.WriteString(strings.Repeat(few[r.IntN(len(few))], r.IntN(8)))
		case 2:
			// Any character, mostly from the first planes.
			if c := rune(r.IntN(1 << (7 + r.IntN(14)))); utf8.ValidRune(c) {
				b.WriteRune(c)
			}
		default:
			b.WriteString(few[r.IntN(len(few))])
		}
	}
	return b.String()
}

// newer reports whether a text has characters that Go's tables, and so regexp2,
// do not know, or ſ in a contraction, which regexp2 does not fold.
func newer(text string) bool {
	for _, r := range text {
		for _, span := range unicode16 {
			if r >= span.first && r <= span.last {
				return true
			}
		}
	}
	return strings.Contains(text, "'ſ") || unicode.Version != "15.0.0"
}
