package tokenize

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rowmill/rowmill/internal/must"
)

// trainedFile describes a tokenizer.json to be made.
type trainedFile struct {
	pattern string
	extra   map[string]any // fields of the top level that replace train's fields
	ignore  bool
	pairs   bool // merges as ["a", "b"], not "a b"
}

// train learns a byte-level vocabulary of a few hundred merges from the hard
// texts, like the tokenizers library, and returns its tokenizer.json.
func train(t testing.TB, f trainedFile) map[string]any {
	t.Helper()
	var pieces [][]string
	for _, text := range append(hardTexts, strings.Repeat("the cat and the hat ", 3), "北京赛车北京你好你好世界", "an internationale nation") {
		text, i := toValidUTF8(text), 0
		for _, end := range scannerFor(f.pattern).appendPieceEnds(nil, text, 0) {
			var piece []string
			for _, b := range []byte(text[i:end]) {
				piece = append(piece, string(byteCharacters[b]))
			}
			pieces = append(pieces, piece)
			i = end
		}
	}
	vocab := make(map[string]int)
	for _, r := range byteCharacters {
		vocab[string(r)] = len(vocab)
	}
	var merges []any
	for len(merges) < 400 {
		counts, best := make(map[[2]string]int), [2]string{}
		for _, piece := range pieces {
			for i := range len(piece) - 1 {
				pair := [2]string{piece[i], piece[i+1]}
				counts[pair]++
				if n, most := counts[pair], counts[best]; n > most || n == most && pair[0]+" "+pair[1] < best[0]+" "+best[1] {
					best = pair
				}
			}
		}
		if counts[best] < 2 {
			break
		}
		vocab[best[0]+best[1]] = len(vocab)
		if f.pairs {
			merges = append(merges, []string{best[0], best[1]})
		} else {
			merges = append(merges, best[0]+" "+best[1])
		}
		for p, piece := range pieces {
			var merged []string
			for i := 0; i < len(piece); i++ {
				if i+1 < len(piece) && piece[i] == best[0] && piece[i+1] == best[1] {
					merged = append(merged, best[0]+best[1])
					i++
				} else {
					merged = append(merged, piece[i])
				}
			}
			pieces[p] = merged
		}
	}
	if len(merges) < 100 {
		t.Fatalf("only %d merges", len(merges))
	}
	// A token that no merge makes, but ignore_merges finds it.
	vocab["Hello"] = len(vocab)
	file := map[string]any{
		"normalizer": nil,
		"pre_tokenizer": map[string]any{"type": "Sequence", "pretokenizers": []any{
			map[string]any{"type": "Split", "pattern": map[string]any{"Regex": f.pattern}, "behavior": "Isolated", "invert": false},
			map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
		}},
		"model": map[string]any{"type": "BPE", "ignore_merges": f.ignore, "vocab": vocab, "merges": merges},
	}
	for key, value := range f.extra {
		file[key] = value
	}
	return file
}

// open writes a tokenizer.json and opens it.
func open(t testing.TB, file map[string]any) (*Encoding, error) {
	t.Helper()
	text := must.Get(json.Marshal(file))(t)
	path := filepath.Join(t.TempDir(), "tokenizer.json")
	must.Succeed(t, os.WriteFile(path, text, 0o600))
	return Open(path)
}

// trained returns small vocabularies in the forms of real models.
func trained(t testing.TB) []*Encoding {
	t.Helper()
	added := []any{
		map[string]any{"id": 5000, "content": "<|im_start|>", "special": true},
		map[string]any{"id": 5001, "content": "<think>", "special": false},
		map[string]any{"id": 5002, "content": "<", "special": false},
	}
	byteLevel := map[string]any{"type": "ByteLevel", "add_prefix_space": true, "use_regex": true}
	var all []*Encoding
	for _, f := range []trainedFile{
		{pattern: patternCL100K, ignore: true},
		{pattern: patternCL100K, pairs: true},
		{pattern: patternQwen, pairs: true, extra: map[string]any{"normalizer": map[string]any{"type": "NFC"}}},
		{pattern: patternQwenMarks, extra: map[string]any{"added_tokens": added}},
		{pattern: patternGPT2, extra: map[string]any{"pre_tokenizer": byteLevel}},
		{pattern: patternGPT2, extra: map[string]any{"added_tokens": added, "pre_tokenizer": map[string]any{
			"type": "Sequence", "pretokenizers": []any{
				map[string]any{"type": "Digits", "individual_digits": true},
				map[string]any{"type": "Split", "pattern": map[string]any{"String": "--"}, "behavior": "Isolated"},
				map[string]any{"type": "Split", "pattern": map[string]any{"Regex": `[a-z]+|\s+`}, "behavior": "Isolated"},
				map[string]any{"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
			},
		}}},
	} {
		e := must.Get(open(t, train(t, f)))(t)
		all = append(all, e)
	}
	return all
}
