package sim

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/rowmill/rowmill/spelling"
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
			end := nextToken(text, i)
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
			i = nextToken(text, i)
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
		if countTokens(w.text) != 1 {
			t.Errorf("%q is %d tokens", w.text, countTokens(w.text))
		}
	}
	for i := 1; i < len(v.logprobs); i++ {
		if v.logprobs[i] < v.logprobs[i-1] || v.logprobs[i][0] != '-' { // as text: "-0.1" < "-0.2"
			t.Errorf("level %d: %s after %s", i, v.logprobs[i], v.logprobs[i-1])
		}
	}
}

// FuzzScan compares the scanner with encoding/json.
func FuzzScan(f *testing.F) {
	for _, seed := range []string{
		`{"a":[1,-2.5e+3,true,false,null,"x\n\u00e9\ud83d\ude00"],"b":{}}`, `[`, `{"a":}`, `01`, `-`, `1.`, `1e`, `"\ud800"`, `"\ud800\u0041"`, `"\q"`,
		`[1,]`, `{"a":1,}`, `{,}`, ` [ ] `, `nul`, `"` + "\x01" + `"`, `"\u12g4"`, `"\u_123"`, `[1 2]`, `{"a" 1}`, `{1:2}`, `""""`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !utf8.ValidString(text) {
			return
		}
		s := &scanner{data: []byte(text)}
		s.skip()
		s.end()
		if depth := strings.Count(text, "[") + strings.Count(text, "{"); depth < maxDepth && (s.err == nil) != json.Valid([]byte(text)) {
			t.Fatalf("%q: %v, encoding/json says valid %v", text, s.err, json.Valid([]byte(text)))
		}
		var want string
		if json.Unmarshal([]byte(text), &want) == nil && strings.HasPrefix(strings.TrimLeft(text, " \t\r\n"), `"`) {
			got := (&scanner{data: []byte(text)}).text(nil)
			if string(got) != want {
				t.Fatalf("%q reads as %q, want %q", text, got, want)
			}
			var back string
			if err := json.Unmarshal(spelling.AppendString(nil, got), &back); err != nil || back != want {
				t.Fatalf("%q is written as %s", want, spelling.AppendString(nil, got))
			}
		}
	})
}

func TestDeepNesting(t *testing.T) {
	t.Parallel()
	s := &scanner{data: []byte(strings.Repeat("[", 1<<20))}
	s.skip()
	if s.err == nil || !strings.Contains(s.err.Error(), "nested too deep") {
		t.Errorf("got %v", s.err)
	}
}

// FuzzChat feeds arbitrary bodies: they are refused or answered, in JSON.
func FuzzChat(f *testing.F) {
	f.Add([]byte(body("plain", "x", "stop", []string{"a"}, "logprobs", true, "top_logprobs", 2)))
	f.Add([]byte(body("thinker", "x", "max_tokens", 3, "stop", "e", "stop_token_ids", []int{5})))
	f.Add([]byte(body("plain", "[[sim:violate]]", "response_format", map[string]any{"type": "json_object"})))
	f.Add([]byte(`{"model":"plain","messages":[{"role":"user","content":[{"type":"text","text":"\ud83d"}]}]}`))
	s, err := New(Config{Models: testModels(), Profile: Instant()})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		g := new(generation)
		if g.req.parse(data, s.find) != nil {
			return
		}
		generator, plain, err := s.generator(&g.req)
		if err != nil {
			return
		}
		s.compose(&g.answer, &g.req, shape{json: generator, plain: plain}, &directives{}, min(g.req.limit(), 500))
		if out := s.appendCompletion(nil, g); !json.Valid(out) {
			t.Fatalf("answer to %q is %s", data, out)
		}
	})
}
