package enginetest

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
)

// countedTexts are prompts whose tokens are easily counted wrong: white space that a
// template trims or that merges with the template's line breaks, markers that are one
// token, an empty text.
var countedTexts = []string{
	"Hello there.", "", " ", "\n", "\n\n two lines before and after \n\n", "\tGröße, 日本語 🦙", "<|im_end|> and </think>",
	`a "quoted" \ text`, "broken \xff bytes", strings.Repeat("word ", 300),
}

// chatThatEndsWith returns a chat with a text as its last message.
func chatThatEndsWith(t *testing.T, text string) string {
	t.Helper()
	last, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	return `[{"role":"user","content":"Is the sky blue?"},{"role":"assistant","content":"Yes."},{"role":"user","content":` + string(last) + `}]`
}

// testCounting checks that the server's count of a prompt's tokens equals the input tokens
// that the server reports after it has run the row.
func testCounting(t *testing.T, s Server) {
	const schema = `{"type": "object", "properties": {"sure": {"type": "boolean"}}, "required": ["sure"]}`
	if !s.Counts {
		for _, m := range s.models() {
			counter, ok := mustPrepare(t, s, engine.JobParams{Model: *m, MaxTokens: 1}).(engine.PromptCounter)
			if !ok {
				continue
			}
			if n, err := counter.CountPrompt(requestContext(t), engine.Row{Text: []byte("Hello.")}); !errors.Is(err, engine.ErrNoCounting) {
				t.Errorf("%s: CountPrompt returned %d, %v, want ErrNoCounting because Counts is false", m.ID, n, err)
			}
		}
		return
	}
	for _, m := range []*rowmill.Model{s.Generation, s.Reasoning} {
		if m == nil {
			continue
		}
		switched := *m
		switched.RequestExtras = map[string]any{"chat_template_kwargs": map[string]any{"enable_thinking": false}}
		for name, p := range map[string]engine.JobParams{
			"plain":                   {Model: *m},
			"with a system prompt":    {Model: *m, System: "  Weigh every single word. "},
			"with a schema":           {Model: *m, System: "Be brief.", Schema: json.RawMessage(schema)},
			"with thinking forbidden": {Model: switched},
			"a chat":                  {Model: *m, System: "Be brief.", Messages: true},
		} {
			t.Run(string(m.Kind)+" "+name, func(t *testing.T) {
				p.MaxTokens = 1
				c := mustPrepare(t, s, p)
				for _, text := range countedTexts {
					if p.Messages {
						text = chatThatEndsWith(t, text)
					}
					if got, want := mustCountPrompt(t, c, text), mustGenerate(t, c, text, nil).InputTokens; got != want {
						t.Errorf("%.30q: counted %d tokens, the usage says %d", text, got, want)
					}
				}
			})
		}
	}
	if s.Embedding != nil {
		t.Run("embedding", func(t *testing.T) {
			c := mustPrepare(t, s, engine.JobParams{Model: *s.Embedding})
			for _, text := range countedTexts[1:] {
				if strings.TrimSpace(text) == "" {
					continue // some servers refuse to embed an empty text
				}
				replies, faults, err := c.Embed(requestContext(t), []engine.Row{{Text: []byte(text)}})
				if err != nil || faults[0] != nil {
					t.Fatalf("embed %.30q: %v, %v", text, err, faults)
				}
				if got := mustCountPrompt(t, c, text); got != replies[0].InputTokens {
					t.Errorf("%.30q: counted %d tokens, the usage says %d", text, got, replies[0].InputTokens)
				}
			}
		})
	}
	t.Run("beyond the context", func(t *testing.T) {
		m := s.models()[0]
		n, err := mustPrepare(t, s, engine.JobParams{Model: *m}).(engine.PromptCounter).CountPrompt(requestContext(t), engine.Row{Text: overlongText(*m)})
		if err == nil && n <= m.ContextLength {
			t.Errorf("counted %d tokens of a prompt that does not fit %d", n, m.ContextLength)
		}
		if err != nil && !requireEngineError(t, err).TooLong {
			t.Errorf("got %v, want a count or a prompt that is too long", err)
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		c := mustPrepare(t, s, engine.JobParams{Model: *s.models()[0]})
		if _, err := c.(engine.PromptCounter).CountPrompt(gone, engine.Row{}); !errors.Is(err, context.Canceled) {
			t.Errorf("CountPrompt with a cancelled context returned %v, want context.Canceled", err)
		}
	})
}

// mustCountPrompt returns the server's count of the tokens of the prompt text.
func mustCountPrompt(t *testing.T, c engine.PreparedCall, text string) int64 {
	t.Helper()
	n, err := c.(engine.PromptCounter).CountPrompt(requestContext(t), engine.Row{Text: []byte(text)})
	if err != nil {
		t.Fatalf("count %.30q: %v", text, err)
	}
	return int64(n)
}
