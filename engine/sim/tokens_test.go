package sim

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/rowmill/rowmill/internal/must"
)

func TestTokenRule(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                    "",
		"one two":             "one| two",
		"  two":               " | two",
		"a-b, c":              "a|-|b|,| c",
		"abcdefghijklmnop":    "abcdefghijkl|mnop",
		" abcdefghijklmnop":   " abcdefghijkl|mnop",
		"é ü😀x":               "é| |ü|😀|x",
		`{"k": 12}`:           `{|"|k|"|:| 12|}`,
		"\n\tx ":              "\n|\t|x| ",
		"[simulated] The end": "[|simulated|]| The| end",
	} {
		var tokens []string
		for i := 0; i < len(text); {
			end := endOfToken(text, i)
			tokens = append(tokens, text[i:end])
			i = end
		}
		if got := strings.Join(tokens, "|"); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
		if countTokens(text) != len(tokens) || len(appendTokenIDs(nil, []byte(text))) != len(tokens) {
			t.Errorf("%q: counted %d", text, countTokens(text))
		}
	}
}

func TestTokensOfAPrefix(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOf(rapid.OneOf(rapid.RuneFrom([]rune(" ab1.,\n{\"é😀")), rapid.Rune())).Draw(t, "text")
		if !utf8.ValidString(text) {
			t.Skip("not UTF-8")
		}
		total := 0
		for i := 0; i < len(text); {
			i = endOfToken(text, i)
			if total++; countTokens(text[:i]) != total || !utf8.ValidString(text[:i]) {
				t.Fatalf("%q: the first %d tokens count as %d", text[:i], total, countTokens(text[:i]))
			}
		}
		if total < (len(text)+maxTokenBytes-1)/maxTokenBytes {
			t.Fatalf("%d tokens in %d bytes", total, len(text))
		}
	})
}

func TestVocabularyIsOneTokenAWord(t *testing.T) {
	t.Parallel()
	v := newVocabulary()
	for _, w := range v.words {
		if countTokens(w) != 1 {
			t.Errorf("%q is %d tokens", w, countTokens(w))
		}
	}
	for i := 1; i < len(v.logprobs); i++ {
		if v.logprobs[i] < v.logprobs[i-1] || v.logprobs[i][0] != '-' { // as text: "-0.1" < "-0.2"
			t.Errorf("level %d: %s after %s", i, v.logprobs[i], v.logprobs[i-1])
		}
	}
}

// FuzzChat feeds arbitrary bodies: they are refused or answered, in JSON.
func FuzzChat(f *testing.F) {
	f.Add([]byte(body("plain", "x", "stop", []string{"a"}, "logprobs", true, "top_logprobs", 2)))
	f.Add([]byte(body("thinker", "x", "max_tokens", 3, "stop", "e", "stop_token_ids", []int{5})))
	f.Add([]byte(body("plain", "[[sim:violate]]", "response_format", map[string]any{"type": "json_object"})))
	f.Add([]byte(`{"model":"plain","messages":[{"role":"user","content":[{"type":"text","text":"\ud83d"}]}]}`))
	s := must.Get(New(Config{Models: testModels(), Profile: InstantProfile()}))(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		g := new(chatGeneration)
		if g.req.parse(data, s.findModel) != nil {
			return
		}
		form, err := s.schemas.requiredForm(&g.req)
		if err != nil {
			return
		}
		s.writer.compose(&g.answer, &g.req, form, &directives{}, min(g.req.limit(), 500))
		if out := g.appendCompletion(nil); !json.Valid(out) {
			t.Fatalf("answer to %q is %s", data, out)
		}
	})
}
