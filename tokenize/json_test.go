package tokenize

import (
	"errors"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rowmill/rowmill/internal/must"
)

// TestBadJSON checks the errors for files that are not supported.
func TestBadJSON(t *testing.T) {
	t.Parallel()
	good := train(t, trainedFile{pattern: patternCL100K})
	model := good["model"].(map[string]any)
	with := func(key string, value any) map[string]any {
		file := maps.Clone(good)
		file[key] = value
		return file
	}
	withModel := func(key string, value any) map[string]any {
		changed := maps.Clone(model)
		changed[key] = value
		return with("model", changed)
	}
	vocabulary := func(change func(map[string]int)) map[string]any {
		changed := maps.Clone(model["vocab"].(map[string]int))
		change(changed)
		return withModel("vocab", changed)
	}
	sequence := func(parts ...any) map[string]any {
		return with("pre_tokenizer", map[string]any{"type": "Sequence", "pretokenizers": parts})
	}
	type part = map[string]any
	byteLevel := part{"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}
	tests := []struct {
		name string
		file map[string]any
		want error
		text string // part of the message
	}{
		{"another JSON", map[string]any{"model_type": "llama"}, ErrFormat, "no model"},
		{"Unigram", with("model", part{"type": "Unigram", "vocab": []any{[]any{"<unk>", 0.5}}}), ErrUnsupported, "Unigram"},
		{"WordPiece", with("model", part{"type": "WordPiece", "vocab": part{"a": 1}}), ErrUnsupported, "WordPiece"},
		{"no type", with("model", part{"vocab": part{"a": 1}}), ErrUnsupported, "without a type"},
		{"SentencePiece as BPE", withModel("byte_fallback", true), ErrUnsupported, "SentencePiece"},
		{"end of word", withModel("end_of_word_suffix", "</w>"), ErrUnsupported, "</w>"},
		{"dropout", withModel("dropout", 0.1), ErrUnsupported, "at random"},
		{"normalizer", with("normalizer", part{"type": "Lowercase"}), ErrUnsupported, "Lowercase"},
		{"normalizers", with("normalizer", part{"type": "Sequence", "normalizers": []any{part{"type": "NFC"}, part{"type": "NFKC"}}}), ErrUnsupported, "NFKC"},
		{"no pre-tokenizer", with("pre_tokenizer", nil), ErrUnsupported, "no pre-tokenizer"},
		{"Metaspace", with("pre_tokenizer", part{"type": "Metaspace"}), ErrUnsupported, "Metaspace"},
		{"not byte-level", sequence(part{"type": "Digits"}), ErrUnsupported, "ByteLevel"},
		{"late space", sequence(part{"type": "Digits"}, part{"type": "ByteLevel"}), ErrUnsupported, "add_prefix_space"},
		{"late Split", sequence(byteLevel, part{"type": "Split", "pattern": part{"Regex": "a"}, "behavior": "Isolated"}), ErrUnsupported, "after ByteLevel"},
		{"behavior", sequence(part{"type": "Split", "pattern": part{"Regex": "a"}, "behavior": "MergedWithNext"}, byteLevel), ErrUnsupported, "MergedWithNext"},
		{"gaps removed", sequence(part{"type": "Split", "pattern": part{"Regex": "a"}, "behavior": "Removed", "invert": true}, byteLevel), ErrUnsupported, "Removed"},
		{"pattern", sequence(part{"type": "Split", "pattern": part{"Regex": "("}, "behavior": "Isolated"}, byteLevel), ErrUnsupported, `"("`},
		{"no pattern", sequence(part{"type": "Split", "behavior": "Isolated"}, byteLevel), ErrFormat, "neither"},
		{"merge of one", withModel("merges", []any{"ab"}), ErrFormat, "no space"},
		{"merge of three", withModel("merges", []any{[]string{"a", "b", "c"}}), ErrFormat, "3 parts"},
		{"merge of unknown tokens", withModel("merges", []any{"a 你"}), ErrFormat, "merge 0"},
		{"a byte is missing", vocabulary(func(v map[string]int) { delete(v, "!") }), ErrFormat, "byte 0x21"},
		{"no vocab", withModel("vocab", nil), ErrFormat, "not in the vocab"},
		{"vocab of another kind", withModel("vocab", []int{1}), ErrFormat, "vocab"},
		{"an id twice", vocabulary(func(v map[string]int) { v["!"] = v["?"] }), ErrFormat, "have the id"},
		{"a negative id", vocabulary(func(v map[string]int) { v["!"] = -5 }), ErrFormat, "-5"},
		{"a huge id", vocabulary(func(v map[string]int) { v["!"] = 1 << 40 }), ErrFormat, "1099511627776"},
		{"an empty token", vocabulary(func(v map[string]int) { v[""] = 9999 }), ErrFormat, "empty"},
		{"added token", with("added_tokens", []any{part{"id": 3, "content": ""}}), ErrFormat, "added token"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, err := open(t, test.file)
			if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.text) || !strings.Contains(err.Error(), "tokenizer.json: ") {
				t.Errorf("error %v, want %v with %q", err, test.want, test.text)
			}
		})
	}
}

// TestMergeOrder checks the error for a merge that comes before the merges of
// its parts, and that merges no text can reach change nothing.
func TestMergeOrder(t *testing.T) {
	t.Parallel()
	file := func(merges ...string) map[string]any {
		good := train(t, trainedFile{pattern: patternCL100K})
		vocab := make(map[string]int)
		for _, r := range byteCharacters {
			vocab[string(r)] = len(vocab)
		}
		for _, m := range merges {
			if key := strings.ReplaceAll(m, " ", ""); vocab[key] == 0 {
				vocab[key] = len(vocab)
			}
		}
		good["model"] = map[string]any{"type": "BPE", "vocab": vocab, "merges": merges}
		return good
	}
	if _, err := open(t, file("ab c", "a b")); !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), `"abc"`) {
		t.Errorf("error %v", err)
	}
	// As in Llama 3, which lists every pair of tokens that makes a token.
	e := must.Get(open(t, file("i n", "i ng", "in g", "n g", "x i", "x ing")))(t)
	for text, want := range map[string][]string{"ing": {"ing"}, "ng": {"ng"}, "xin": {"x", "in"}, "xing": {"xing"}, "xi": {"xi"}} {
		var got []string
		for _, id := range e.Encode(nil, text) {
			got = append(got, decoded(t, e, []int{id}))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// TestFullSize writes cl100k_base as a tokenizer.json in the form of Llama 3,
// with every pair of tokens that makes a token among its merges. The tokens
// must be the same.
func TestFullSize(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	want := load(t, "cl100k_base")
	v := want.vocabulary
	key := func(n token) string {
		var b strings.Builder
		for _, c := range v.text(n) {
			b.WriteRune(byteCharacters[c])
		}
		return b.String()
	}
	vocab, merges := make(map[string]int), []any{}
	for n := range token(len(v.ids)) {
		vocab[key(n)] = int(v.ids[n])
	}
	for n := token(256); n < token(len(v.ids)); n++ {
		text := key(n)
		for cut := range text {
			_, left := vocab[text[:cut]]
			_, right := vocab[text[cut:]]
			if left && right {
				merges = append(merges, text[:cut]+" "+text[cut:])
			}
		}
	}
	file := train(t, trainedFile{pattern: patternCL100K})
	file["model"] = map[string]any{"type": "BPE", "ignore_merges": true, "vocab": vocab, "merges": merges}
	e := must.Get(open(t, file))(t)
	r := rand.New(rand.NewPCG(11, 12))
	for i := range 2000 {
		text := randomText(r, 40)
		if i < len(hardTexts) {
			text = hardTexts[i]
		}
		if got, want := e.Encode(nil, text), want.Encode(nil, text); !slices.Equal(got, want) {
			t.Fatalf("%q: tokens %d, want %d", text, got, want)
		}
	}
	t.Logf("%d tokens, %d merges", len(vocab), len(merges))
}

func TestBadFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"empty": "", "ranks": "YQ== 0\n", "binary": "\x00\x01\x02 \n\xff"} {
		path := filepath.Join(dir, name)
		must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
		if _, err := Open(path); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if _, err := Open(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if _, err := rankEncoding("ranks", new(vocabulary), "(", nil); !errors.Is(err, ErrUnsupported) {
		t.Errorf("a bad pattern: %v", err)
	}
	if _, err := Load("o300k"); !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "o200k_base") {
		t.Errorf("an unknown name: %v", err)
	}
}

// TestRegexp uses a pattern without a scanner that does not match all text.
func TestRegexp(t *testing.T) {
	t.Parallel()
	e := must.Get(rankEncoding("ranks", load(t, "cl100k_base").vocabulary, `[a-z]`, map[string]int{"<s>": 200_000}))(t)
	if got := e.WithSpecials().Encode(nil, "ab <s>"); !slices.Equal(got, []int{64, 65, 220, 200_000}) {
		t.Errorf("tokens %d", got)
	}
}

// FuzzJSON searches for files that make the reader panic.
func FuzzJSON(f *testing.F) {
	f.Add([]byte(`{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a a"]}, "pre_tokenizer": {"type": "ByteLevel"}}`))
	f.Add([]byte(`{"added_tokens": [{"id": 1, "content": "x"}], "model": null}`))
	f.Add([]byte(`[`))
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := parseJSON("fuzz", data)
		if err != nil {
			return
		}
		e.Encode(nil, "some text")
	})
}
