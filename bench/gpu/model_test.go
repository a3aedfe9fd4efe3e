package gpu

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rowmill/rowmill/internal/must"
)

// A prompt has the intended number of tokens for a tokenizer that splits at blanks, and
// for one that first looks for special tokens: no word starts with a special token.
func TestShapeFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must.Succeed(t, Tiny.Write(dir, 172, 24))
	read := func(name string, into any) {
		t.Helper()
		data := must.Get(os.ReadFile(filepath.Join(dir, name)))(t)
		must.Succeed(t, json.Unmarshal(data, into))
	}
	var tokenizer struct {
		Model struct{ Vocab map[string]int }
	}
	var settings map[string]any
	var ends struct {
		EOS []int `json:"eos_token_id"`
	}
	read("tokenizer.json", &tokenizer)
	read("tokenizer_config.json", &settings)
	read("generation_config.json", &ends)
	vocabulary := tokenizer.Model.Vocab
	ids := make(map[int]bool)
	for _, id := range vocabulary {
		ids[id] = true
	}
	if len(vocabulary) != Tiny.Words || len(ids) != Tiny.Words || !ids[0] || !ids[Tiny.Words-1] {
		t.Errorf("%d words with %d ids, want %d of each", len(vocabulary), len(ids), Tiny.Words)
	}
	if share := float64(Tiny.Words) / float64(len(ends.EOS)); share < 24 || share > 25 {
		t.Errorf("one token of %.1f ends an answer, want one of 24", share)
	}
	special := []string{settings["unk_token"].(string), settings["bos_token"].(string), settings["eos_token"].(string)}
	for _, name := range special {
		if _, ok := vocabulary[name]; !ok {
			t.Errorf("the special token %s is not in the vocabulary", name)
		}
	}
	words := strings.Split(string(Tiny.AppendPrompt([]byte{}, rand.New(rand.NewPCG(1, 1)), 5000)), " ")
	if len(words) != 5000 {
		t.Errorf("a prompt of %d words, want 5000", len(words))
	}
	for _, word := range words {
		if _, ok := vocabulary[word]; !ok {
			t.Fatalf("the word %q of a prompt is not in the vocabulary", word)
		}
	}
	for word := range vocabulary {
		for _, name := range special {
			if word != name && strings.Contains(word, name) {
				t.Fatalf("the word %q holds the special token %s", word, name)
			}
		}
	}
}
