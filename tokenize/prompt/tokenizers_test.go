package prompt_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill/engine/catalog"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/tokenize"
	"github.com/rowmill/rowmill/tokenize/prompt"
)

// tiny returns a tokenizer.json with a token for each byte, in GPT-2's
// characters, and a token for "ab".
func tiny(t *testing.T) string {
	t.Helper()
	vocab, spare := map[string]int{"ab": 256}, rune(256)
	for b := range rune(256) {
		shown := b
		if b < '!' || b > '~' && b < '¡' || b == '\u00ad' {
			shown, spare = spare, spare+1
		}
		vocab[string(shown)] = int(b)
	}
	level := map[string]any{"type": "ByteLevel", "add_prefix_space": false, "use_regex": true}
	data := must.Get(json.Marshal(map[string]any{
		"added_tokens": []any{}, "pre_tokenizer": level,
		"model": map[string]any{"type": "BPE", "vocab": vocab, "merges": []string{"a b"}},
	}))(t)
	return string(data)
}

func TestTokenizers(t *testing.T) {
	t.Parallel()
	dir, good := t.TempDir(), tiny(t)
	for file, content := range map[string]string{
		"flat.json": good, "folder/tokenizer.json": good,
		"cut.json": good[:len(good)/2], "piece.json": `{"model":{"type":"Unigram","vocab":[["a",0]]},"added_tokens":[]}`,
		"page.json": "<html>", "empty.json": "",
	} {
		path := filepath.Join(dir, file)
		must.Succeed(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must.Succeed(t, os.WriteFile(path, []byte(content), 0o600))
	}
	in := prompt.Tokenizers{Dir: dir}
	for _, name := range []string{"o200k_harmony", "cl100k_base"} {
		if enc, warning, err := (prompt.Tokenizers{}).Find(name); enc == nil || warning != "" || err != nil {
			t.Errorf("%s: %v, %q, %v", name, enc, warning, err)
		} else if got := enc.Count("Hello world"); got != 2 {
			t.Errorf("%s counts %d tokens", name, got)
		}
	}
	for _, name := range []string{"flat", "folder"} {
		enc, warning, err := in.Find(name)
		if enc == nil || warning != "" || err != nil {
			t.Errorf("%s: %v, %q, %v", name, enc, warning, err)
		} else if got := enc.Count("ab"); got != 1 {
			t.Errorf("%s counts %d tokens of ab", name, got)
		}
	}
	for name, want := range map[string]string{
		"absent": filepath.Join(dir, "absent.json"), "": "names no tokenizer",
	} {
		if enc, warning, err := in.Find(name); enc != nil || err != nil || !strings.Contains(warning, want) {
			t.Errorf("%s: %v, %q, %v", name, enc, warning, err)
		}
	}
	if enc, warning, err := (prompt.Tokenizers{}).Find("flat"); enc != nil || err != nil || !strings.Contains(warning, "flat.json") {
		t.Errorf("without a directory: %v, %q, %v", enc, warning, err)
	}
	for name, want := range map[string]error{
		"cut": tokenize.ErrFormat, "page": tokenize.ErrFormat, "empty": tokenize.ErrFormat, "piece": tokenize.ErrUnsupported,
	} {
		if enc, _, err := in.Find(name); enc != nil || !errors.Is(err, want) || !strings.Contains(err.Error(), filepath.Join(dir, name)) {
			t.Errorf("%s: %v, %v, want an error %q that names the file", name, enc, err, want)
		}
	}
}

// A model that names no tokenizer must be counted with a file of its name.
func TestTokenizers_FindOf(t *testing.T) {
	t.Parallel()
	dir, good := t.TempDir(), tiny(t)
	for file, content := range map[string]string{
		"Flat.json": good, "Folder/tokenizer.json": good, "acme/Own/tokenizer.json": good, "acme/Flat-7B.json": good,
		"Piece.json": `{"model":{"type":"Unigram","vocab":[["a",0]]},"added_tokens":[]}`, "Above.json": good,
	} {
		path := filepath.Join(dir, file)
		must.Succeed(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must.Succeed(t, os.WriteFile(path, []byte(content), 0o600))
	}
	in := prompt.Tokenizers{Dir: dir}
	for _, id := range []string{"Flat", "acme/Flat", "Folder", "acme/Own", "acme/Flat-7B"} {
		if enc, warning := in.FindForModel(id); enc == nil || warning != "" {
			t.Errorf("%s: %v, %q", id, enc, warning)
		}
	}
	for id, want := range map[string]string{
		"acme/None":  "copy the model's tokenizer.json to " + filepath.Join(dir, "acme", "None", "tokenizer.json"),
		"Piece":      "Piece.json",
		"../Above":   "cannot be a file name",
		"a/../Above": "cannot be a file name",
		"/Above":     "cannot be a file name",
		"qwen3:4b":   "cannot be a file name",
		"":           "cannot be a file name",
	} {
		if enc, warning := in.FindForModel(id); enc != nil || !strings.Contains(warning, want) {
			t.Errorf("%q: %v, %q, want %q", id, enc, warning, want)
		}
	}
	if enc, warning := (prompt.Tokenizers{}).FindForModel("acme/Own"); enc != nil || !strings.Contains(warning, "name a directory with Own.json") {
		t.Errorf("without a directory: %v, %q", enc, warning)
	}
}

// Every template that a model of the catalog names must exist, and the catalog
// must accept only these templates.
func TestCatalog_NamesTheTemplates(t *testing.T) {
	t.Parallel()
	if diff := cmp.Diff(prompt.Names(), catalog.PromptTemplates()); diff != "" {
		t.Errorf("templates of prompt (-) and of catalog (+):\n%s", diff)
	}
	for _, m := range catalog.Default().All() {
		if _, err := prompt.FindTemplate(m.Template); err != nil {
			t.Errorf("%s: template %q, %v", m.ID, m.Template, err)
		}
	}
}

// All dates in templates must have the same number of tokens, and so must all
// efforts.
func TestHarmony_OverheadIsConstant(t *testing.T) {
	t.Parallel()
	enc := must.Get(tokenize.Load("o200k_harmony"))(t)
	line := func(day time.Time) string { return fmt.Sprintf("Current date: %s\n\n", day.Format(time.DateOnly)) }
	first := time.Date(2025, 8, 5, 0, 0, 0, 0, time.UTC)
	for day := first; day.Year() < 2036; day = day.AddDate(0, 0, 1) {
		if got, want := enc.Count(line(day)), enc.Count(line(first)); got != want {
			t.Fatalf("%q has %d tokens, %q %d", line(day), got, line(first), want)
		}
	}
	template := must.Get(prompt.FindTemplate("harmony"))(t)
	bare := template.Measure(enc, prompt.JobPrompt{}).Overhead()
	for _, effort := range []string{"low", "medium", "high"} {
		job := prompt.JobPrompt{Extras: map[string]any{"reasoning_effort": effort}}
		if got := template.Measure(enc, job).Overhead(); got != bare {
			t.Errorf("effort %s has %d tokens, want %d", effort, got, bare)
		}
	}
	full := template.Measure(template.Encoding(enc), prompt.JobPrompt{System: "Be kind."})
	if got, want := full.Count("Hello there."), enc.WithSpecials().Count(harmonyPrompt); got != want {
		t.Errorf("counted %d tokens of a prompt of %d", got, want)
	}
	if got, want := full.Count("a <|end|> b"), full.Count("a  b")+3; got < want {
		t.Errorf("the name of a special token in a row counts as one: %d, want at least %d", got, want)
	}
}

// harmonyPrompt is a whole prompt with its special tokens.
const harmonyPrompt = "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\n" +
	"Knowledge cutoff: 2024-06\nCurrent date: 2027-11-30\n\nReasoning: high\n\n" +
	"# Valid channels: analysis, commentary, final. Channel must be included for every message.<|end|>" +
	"<|start|>developer<|message|># Instructions\n\nBe kind.\n\n<|end|>" +
	"<|start|>user<|message|>Hello there.<|end|><|start|>assistant"
