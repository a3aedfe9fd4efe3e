package prompt

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/tokenize"
)

// words is a vocabulary that merges as much as possible. A token is a run of
// letters with the blank before it, a run of line breaks with the blanks before
// it, a run of other blanks, or another character.
type words struct{}

var wordToken = regexp.MustCompile(`\s*[\r\n]+|\s?\pL+|\s+|.`)

func (words) Count(text string) int { return len(wordToken.FindAllStringIndex(text, -1)) }

func (words) Truncate(text string, n int) string {
	spans := wordToken.FindAllStringIndex(text, n)
	if n == 0 || len(spans) == 0 {
		return ""
	}
	return text[:spans[len(spans)-1][1]]
}

// rendering is a prompt rendered with the published template of a family. Jinja
// 3.1 wrote testdata/rendered.json with trim_blocks and lstrip_blocks, as
// Hugging Face's libraries use it, from the templates without their parts for
// tools. The date of harmony is 2025-08-05.
type rendering struct {
	Template, System, Text, Prompt string
	Extras                         map[string]any
}

func renderings(t *testing.T) (list []rendering) {
	t.Helper()
	data, err := os.ReadFile("testdata/rendered.json")
	check(t, err)
	check(t, json.Unmarshal(data, &list))
	return list
}

// assemble concatenates the pieces of a prompt.
func assemble(t Template, j JobPrompt, text string) string {
	var b strings.Builder
	if t.family.trims {
		text = trim(text)
	}
	for _, p := range t.family.render(j) {
		b.WriteString(p.special + p.text)
		if p.row {
			b.WriteString(text)
		}
	}
	return b.String()
}

func find(t *testing.T, name string) Template {
	t.Helper()
	found, err := FindTemplate(name)
	check(t, err)
	return found
}

func TestTemplates_AreThePublishedOnes(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, r := range renderings(t) {
		seen[r.Template] = true
		if got := assemble(find(t, r.Template), JobPrompt{System: r.System, Extras: r.Extras}, r.Text); got != r.Prompt {
			t.Errorf("%s, system prompt %q, extras %v, text %q:\n got %q\nwant %q", r.Template, r.System, r.Extras, r.Text, got, r.Prompt)
		}
	}
	for _, name := range []string{"chatml", "gemma", "harmony", "llama-3", "qwen-3", "qwen-3-thinking"} {
		if !seen[name] {
			t.Errorf("no rendering of %s", name)
		}
	}
}

// specials matches the special tokens at which servers split a prompt.
var specials = regexp.MustCompile(`<\|[a-z_]+\|>|</?think>|<bos>|<(?:start|end)_of_turn>`)

// countRendered counts a rendered prompt as a server does.
func countRendered(c Tokenizer, prompt string) int {
	tokens := len(specials.FindAllStringIndex(prompt, -1))
	for _, text := range specials.Split(prompt, -1) {
		tokens += c.Count(text)
	}
	return tokens
}

func TestMeasure_CountsTheWholePrompt(t *testing.T) {
	t.Parallel()
	for _, r := range renderings(t) {
		m := find(t, r.Template).Measure(words{}, JobPrompt{System: r.System, Extras: r.Extras})
		if got, want := m.Count(r.Text), countRendered(words{}, r.Prompt); got != want {
			t.Errorf("%s, system prompt %q, text %q: %d tokens, want %d", r.Template, r.System, r.Text, got, want)
		}
		if r.Text == "" && m.Overhead() != countRendered(words{}, r.Prompt) {
			t.Errorf("%s: overhead %d, want %d", r.Template, m.Overhead(), countRendered(words{}, r.Prompt))
		}
	}
}

// randomText returns a text that merges at its borders.
func randomText(rng *rand.Rand) string {
	parts := []string{"\n", "\n\n", " ", "  ", "\r\n", "\t", "word", "Ünï", ".", "日", "12", "\u001c"}
	var b strings.Builder
	for range rng.IntN(12) {
		b.WriteString(parts[rng.IntN(len(parts))])
	}
	return b.String()
}

func TestMeasure_BordersOfRandomTexts(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	for _, name := range Names() {
		if name == None {
			continue
		}
		template := find(t, name)
		for range 500 {
			j := JobPrompt{System: randomText(rng)}
			text := randomText(rng)
			m := template.Measure(words{}, j)
			want := countRendered(words{}, assemble(template, j, text))
			if got := m.Count(text); got != want {
				t.Fatalf("%s: %q after %q: %d tokens, want %d", name, text, j.System, got, want)
			}
			limit := rng.IntN(want + 3)
			cut, tokens, ok := m.TruncateToFit(text, limit)
			switch {
			case ok != (m.Overhead() <= limit):
				t.Fatalf("%s: %q in %d tokens: fits %t with an overhead of %d", name, text, limit, ok, m.Overhead())
			case !ok && cut != "", ok && tokens > limit, tokens != m.Count(cut):
				t.Fatalf("%s: %q in %d tokens: cut to %q with %d", name, text, limit, cut, tokens)
			case want <= limit && cut != text:
				t.Fatalf("%s: %q fits %d and was cut to %q", name, text, limit, cut)
			case ok && !strings.Contains(text, cut):
				t.Fatalf("%s: %q was cut to %q", name, text, cut)
			}
		}
	}
}

func TestFit_UsesAllTokens(t *testing.T) {
	t.Parallel()
	for _, name := range Names() {
		m := find(t, name).Measure(words{}, JobPrompt{System: "Be kind."})
		text := strings.Repeat("word ", 100) // each word is a token, and the last blank is one
		if cut, tokens, ok := m.TruncateToFit(text, m.Overhead()+40); !ok || tokens != m.Overhead()+40 {
			t.Errorf("%s: cut to %d bytes with %d tokens, want %d", name, len(cut), tokens, m.Overhead()+40)
		}
	}
}

func TestNone_CountsTheTexts(t *testing.T) {
	t.Parallel()
	m := Template{}.Measure(words{}, JobPrompt{System: "Be kind."})
	if got := m.Count("Hello there."); got != 3+3 {
		t.Errorf("counted %d tokens", got)
	}
	if m.IsExact("Hello there.") {
		t.Error("a count without a template is exact")
	}
}

func TestQwen_EffortNoneIsNoThinking(t *testing.T) {
	t.Parallel()
	qwen := find(t, "qwen-3")
	thinks := qwen.Measure(words{}, JobPrompt{}).Overhead()
	off := qwen.Measure(words{}, JobPrompt{Extras: map[string]any{"reasoning_effort": "none"}}).Overhead()
	if off != thinks+4 {
		t.Errorf("%d tokens without thinking, %d with it", off, thinks)
	}
}

func TestExact_NamesOfSpecialTokens(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"harmony": "a <|end|> b", "llama-3": "<|eot_id|>", "qwen-3": "no </think> here", "gemma": "<end_of_turn>", "chatml": "<|im_start|>",
		"qwen-3-embedding": "<|endoftext|>",
	} {
		m := find(t, name).Measure(words{}, JobPrompt{})
		if m.IsExact(text) || !m.IsExact("a < b | c > d") {
			t.Errorf("%s: exact for %q: %t, for an ordinary text: %t", name, text, m.IsExact(text), m.IsExact("a < b"))
		}
		if m.Count(text) < countRendered(words{}, assemble(m.template, JobPrompt{}, text)) {
			t.Errorf("%s: too few tokens for %q", name, text)
		}
	}
}

func TestFind_NamesTheTemplates(t *testing.T) {
	t.Parallel()
	if _, err := FindTemplate("llama-33"); err == nil || !strings.Contains(err.Error(), `"llama-33" is not known: use one of chatml, `) {
		t.Errorf("error %v", err)
	}
	if got := find(t, ""); got.Name() != None || (Template{}).Name() != None {
		t.Errorf("no name is %q", got.Name())
	}
	for _, name := range Names() {
		if got := find(t, name).Name(); got != name {
			t.Errorf("%s is called %q", name, got)
		}
	}
}

func TestMeasure_AtMost(t *testing.T) {
	t.Parallel()
	o200k, err := tokenize.Load("o200k_base")
	check(t, err)
	for _, tokens := range []Tokenizer{words{}, o200k} {
		for _, r := range renderings(t) {
			m := find(t, r.Template).Measure(tokens, JobPrompt{System: r.System, Extras: r.Extras})
			for _, text := range []string{"", "x", "\n", "\n\n\n", r.Text, "\u0344\uFB2C\u1FB7", "a\u0301\x00!?"} {
				if n, most := m.Count(text), m.CountUpperBound(text); n > most {
					t.Errorf("%s: %q has %d tokens, at most %d were possible", r.Template, text, n, most)
				}
			}
		}
	}
}

func TestASCII(t *testing.T) {
	t.Parallel()
	for n := range 40 {
		text := []byte(strings.Repeat("x", n))
		if !isASCII(string(text)) {
			t.Errorf("%d letters are taken for others", n)
		}
		for i := range text {
			text[i] = 0x80
			if isASCII(string(text)) {
				t.Errorf("byte %d of %d is not detected", i, n)
			}
			text[i] = 0x7F
		}
	}
}

// check ends the test after an error.
func check(t interface {
	Helper()
	Fatal(args ...any)
}, err error,
) {
	t.Helper()
	must.Succeed(t, err)
}
