package tokenize

import (
	"bytes"
	"encoding/json"
	"flag"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/pythontest"
)

var (
	oracleTexts = flag.Int("oracle.texts", 4000, "random texts that the Python tokenizers are asked about")
	oracleSeed  = flag.Uint64("oracle.seed", 1, "seed of these texts")
)

// TestOriginals compares IDs with the original tiktoken and the tokenizers
// library, and compares the classes of all characters with theirs.
func TestOriginals(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: run without it to test the originals")
	}
	t.Parallel()
	program := pythontest.FindPython(t, "our tokens are not compared with the original tokenizers", "tiktoken", "tokenizers")
	dir := t.TempDir()
	ranks := make(map[string]string)
	for _, name := range []string{"o200k_base", "cl100k_base", "p50k_base", "r50k_base"} {
		ranks[name] = filepath.Join(dir, name)
		must.Succeed(t, os.WriteFile(ranks[name], published(t, name), 0o600))
	}
	var texts []string
	for _, text := range hardTexts {
		texts = append(texts, toValidUTF8(text))
	}
	texts = append(texts, strings.Repeat("a", 3000), strings.Repeat(" ", 3000)+"x", strings.Repeat("北京赛车", 300),
		"so<think> a<tool_call><tool [left] [left][right]  x word sword word", "<|start|>user<|message|>hi<|end|><|endofprompt|>")
	r := rand.New(rand.NewPCG(*oracleSeed, 10))
	for range *oracleTexts {
		text := randomText(r, 30)
		if r.IntN(8) == 0 {
			extras := []string{"<think>", "<tool", "<tool_call>", " [left]", "[right] ", " word ", "word", "<|start|>", "<|end|>"}
			at := r.IntN(len(text) + 1)
			text = toValidUTF8(text[:at]) + extras[r.IntN(len(extras))] + toValidUTF8(text[at:])
		}
		texts = append(texts, text)
	}
	request, err := json.Marshal(map[string]any{"ranks": ranks, "texts": texts, "dir": dir, "patterns": map[string]string{
		"cl100k": patternCL100K, "qwen": patternQwen, "qwen-marks": patternQwenMarks, "o200k": patternO200K, "gpt2": patternGPT2,
	}})
	must.Succeed(t, err)
	ask, answer := filepath.Join(dir, "request"), filepath.Join(dir, "result")
	must.Succeed(t, os.WriteFile(ask, request, 0o600))
	out, err := exec.Command(program, filepath.Join("testdata", "oracle.py"), ask, answer).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Logf("%d texts, %s", len(texts), bytes.TrimSpace(out))
	data, err := os.ReadFile(answer)
	must.Succeed(t, err)
	var result struct {
		Tiktoken map[string][][]int
		Special  [][]int
		Trained  []struct {
			File string
			IDs  [][]int
		}
		Classes map[string]map[string][][2]rune
		NFC     []string
		Digits  [][2]rune
	}
	must.Succeed(t, json.Unmarshal(data, &result))
	compare := func(e *Encoding, name string, want [][]int) {
		wrong := 0
		for i, text := range texts {
			if got := e.Encode(nil, text); !slices.Equal(got, want[i]) || e.Count(text) != len(want[i]) {
				if wrong++; wrong <= 3 {
					t.Errorf("%s, %q: tokens %d, want %d", name, text, got, want[i])
				}
			}
		}
		if len(want) != len(texts) || wrong > 0 {
			t.Errorf("%s: %d of %d texts differ", name, wrong, len(texts))
		}
	}
	if len(result.Tiktoken) != 5 || len(result.Trained) < 8 {
		t.Fatalf("answers for %d and %d encodings", len(result.Tiktoken), len(result.Trained))
	}
	for name, want := range result.Tiktoken {
		compare(load(t, name), "tiktoken "+name, want)
	}
	compare(load(t, "o200k_harmony").WithSpecials(), "tiktoken o200k_harmony with special tokens", result.Special)
	for _, file := range result.Trained {
		e, err := Open(file.File)
		if err != nil {
			t.Error(err)
			continue
		}
		compare(e, filepath.Base(file.File), file.IDs)
	}
	for r, next := rune(0), 0; r <= unicode.MaxRune; r++ {
		for next < len(result.Digits) && r > result.Digits[next][1] {
			next++
		}
		want := next < len(result.Digits) && r >= result.Digits[next][0]
		if got, _ := (digitSplitter{table: classes()}).isNumberAt(string(r), 0); got != want {
			t.Errorf("%U is a number: %v, want %v", r, got, want)
		}
	}
	next := 0
	for r := range rune(unicode.MaxRune + 1) {
		if !utf8.ValidRune(r) {
			continue
		}
		var text string
		for _, m := range []string{"a\u05b7", "a\u0301", "\u0345", "\U00011935", "\u1100"} {
			text += m + string(r)
		}
		if got := normalizeNFC(text); got != result.NFC[next] || composeSlowly(text) != got {
			t.Errorf("%+q becomes %+q, want %+q", text, got, result.NFC[next])
		}
		next++
	}
	for library, sets := range result.Classes {
		checkClasses(t, library, sets)
	}
}

// checkClasses compares the class of every character with a library's sets.
func checkClasses(t *testing.T, library string, sets map[string][][2]rune) {
	t.Helper()
	want := make([]charClass, unicode.MaxRune+1)
	for name, spans := range sets {
		c := map[string]charClass{"Lu": upper, "Lt": upper, "Ll": lower, "Lm": other, "Lo": other, "M": mark, "N": number, "s": space}[name]
		for _, span := range spans {
			for r := span[0]; r <= span[1]; r++ {
				want[r] |= c
			}
		}
	}
	for r := range want {
		if got := classes().classOf(rune(r)) &^ line; got != want[r] {
			t.Errorf("%U is of class %b, for %s of %b", r, got, library, want[r])
		}
	}
}
