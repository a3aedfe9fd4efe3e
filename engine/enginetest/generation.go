package enginetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
)

// checkReply checks the rules that hold for every accepted answer.
func checkReply(t *testing.T, r engine.Reply) {
	t.Helper()
	if r.Finish != rowmill.FinishStop && r.Finish != rowmill.FinishLength {
		t.Errorf("finish reason is %q, want stop or length", r.Finish)
	}
	if r.InputTokens <= 0 || r.OutputTokens < 0 {
		t.Errorf("the usage reports %d input and %d output tokens", r.InputTokens, r.OutputTokens)
	}
	if !utf8.ValidString(r.Content) || !utf8.ValidString(r.Reasoning) {
		t.Error("the answer is not valid UTF-8")
	}
	if r.CachedTokens < 0 || r.CachedTokens > r.InputTokens {
		t.Errorf("%d of %d input tokens were cached", r.CachedTokens, r.InputTokens)
	}
	if r.LogprobSum > 0 || r.LogprobCount < 0 || r.LogprobCount > r.OutputTokens+1 {
		t.Errorf("impossible log probabilities: sum %v over %d tokens of an answer of %d tokens", r.LogprobSum, r.LogprobCount, r.OutputTokens)
	}
}

// forms are rules of structured_outputs. match is a pattern that every answer under the
// rule must match.
var forms = []struct {
	rule  string
	value any
	match *regexp.Regexp
}{
	{"regex", `[a-c]{2}-[0-9]{2}|none`, regexp.MustCompile(`^([a-c]{2}-[0-9]{2}|none)$`)},
	{"choice", []any{"good", `not "good"`, "bad"}, regexp.MustCompile(`^(good|not "good"|bad)$`)},
	{"grammar", "root ::= word (\" \" word){1,2}\nword ::= \"good\" | \"bad\"\n", regexp.MustCompile(`^(good|bad)( (good|bad)){1,2}$`)},
}

// testGeneration checks the server with the model Generation.
func testGeneration(t *testing.T, s Server) {
	m := *s.Generation
	plain := engine.JobParams{Model: m, MaxTokens: 48, Sampling: map[string]any{"temperature": 0.8}}

	t.Run("answers, and stops at the limit", func(t *testing.T) {
		c := mustPrepare(t, s, plain)
		text := ""
		for i := range 5 {
			text += mustGenerate(t, c, fmt.Sprintf("Tell me about thing number %d.", i), nil).Content
		}
		if text == "" {
			t.Error("five prompts got five empty answers")
		}
		short := plain
		short.MaxTokens = 1
		if r := mustGenerate(t, mustPrepare(t, s, short), "Write a long story.", nil); r.OutputTokens > 1 {
			t.Errorf("the answer has %d tokens, want at most 1", r.OutputTokens)
		}
	})

	t.Run("the system prompt is part of the prompt", func(t *testing.T) {
		with := plain
		with.System = "You are a very careful assistant and weigh every single word."
		bare := mustGenerate(t, mustPrepare(t, s, plain), "Hello.", nil).InputTokens
		if more := mustGenerate(t, mustPrepare(t, s, with), "Hello.", nil).InputTokens; more <= bare {
			t.Errorf("%d input tokens with a system prompt, want more than the %d without it", more, bare)
		}
	})

	t.Run("all messages of a chat are part of the prompt", func(t *testing.T) {
		chat := plain
		chat.Messages = true
		c := mustPrepare(t, s, chat)
		one := mustGenerate(t, c, `[{"role":"user","content":"Are you sure?"}]`, nil)
		if alone := mustGenerate(t, mustPrepare(t, s, plain), "Are you sure?", nil).InputTokens; one.InputTokens != alone {
			t.Errorf("%d input tokens for a chat with one message, want %d as for its text", one.InputTokens, alone)
		}
		if three := mustGenerate(t, c, chatThatEndsWith(t, "Are you sure?"), nil); three.InputTokens <= one.InputTokens || three.Content == "" {
			t.Errorf("%d input tokens for three messages, and %d for the last alone", three.InputTokens, one.InputTokens)
		}
	})

	t.Run("a seed repeats, another differs", func(t *testing.T) {
		s.skipUnlessSupported(t, Seeds)
		c := mustPrepare(t, s, plain)
		differs := false
		for i := range 8 {
			prompt := fmt.Sprintf("Write about topic %d.", i)
			first := mustGenerate(t, c, prompt, new(int64(7)))
			if again := mustGenerate(t, c, prompt, new(int64(7))); again.Content != first.Content {
				t.Errorf("prompt %d: two requests with seed 7 gave different answers", i)
			}
			differs = differs || mustGenerate(t, c, prompt, new(int64(1<<31-1))).Content != first.Content
		}
		if !differs {
			t.Error("another seed gave the same answers to all prompts")
		}
	})

	t.Run("a row's seed goes before the job's", func(t *testing.T) {
		s.skipUnlessSupported(t, Seeds)
		seeded := plain
		seeded.Sampling = map[string]any{"temperature": 0.8, "seed": int64(11)}
		job, free := mustPrepare(t, s, seeded), mustPrepare(t, s, plain)
		for i := range 4 {
			prompt := fmt.Sprintf("Seeded topic %d.", i)
			if a, b := mustGenerate(t, job, prompt, nil), mustGenerate(t, free, prompt, new(int64(11))); a.Content != b.Content {
				t.Errorf("prompt %d: the job's seed 11 gives another answer than a row's seed 11", i)
			}
			if a, b := mustGenerate(t, job, prompt, new(int64(12))), mustGenerate(t, free, prompt, new(int64(12))); a.Content != b.Content {
				t.Errorf("prompt %d: the row's seed 12 did not replace the job's seed 11", i)
			}
		}
	})

	t.Run("log probabilities only where asked for", func(t *testing.T) {
		s.skipUnlessSupported(t, Logprobs)
		with := plain
		with.Logprobs = true
		r := mustGenerate(t, mustPrepare(t, s, with), "Say a few words.", new(int64(3)))
		if r.OutputTokens > 1 && (r.LogprobCount == 0 || r.LogprobSum == 0) {
			t.Errorf("log probabilities: sum %v over %d tokens of an answer of %d tokens, want a sum", r.LogprobSum, r.LogprobCount, r.OutputTokens)
		}
		if r := mustGenerate(t, mustPrepare(t, s, plain), "Say a few words.", new(int64(3))); r.LogprobCount != 0 {
			t.Errorf("got %d log probabilities without asking for them", r.LogprobCount)
		}
	})

	t.Run("a schema is obeyed", func(t *testing.T) {
		s.skipUnlessSupported(t, Schemas)
		with := plain
		with.MaxTokens = 400
		with.Schema = json.RawMessage(`{
			"type": "object",
			"properties": {"label": {"type": "string", "enum": ["good", "bad"]}, "sure": {"type": "boolean"}},
			"required": ["label", "sure"],
			"additionalProperties": false
		}`)
		c := mustPrepare(t, s, with)
		for i := range 4 {
			r := mustGenerate(t, c, fmt.Sprintf("Judge text %d.", i), nil)
			var got struct {
				Label *string `json:"label"`
				Sure  *bool   `json:"sure"`
			}
			if r.Finish != rowmill.FinishStop {
				continue // the answer was cut off, so it cannot be complete JSON
			}
			if err := json.Unmarshal([]byte(r.Content), &got); err != nil || got.Label == nil || got.Sure == nil ||
				*got.Label != "good" && *got.Label != "bad" {
				t.Errorf("the answer of %d bytes does not match the schema (%v)", len(r.Content), err)
			}
		}
	})

	t.Run("sampling parameters are accepted", func(t *testing.T) {
		with := plain
		with.Sampling = s.AcceptedParams
		mustGenerate(t, mustPrepare(t, s, with), "Say a few words.", nil)
	})

	t.Run("a parameter that is refused fails the job", func(t *testing.T) {
		if len(s.RefusedParams) == 0 {
			t.Skip("the server has no parameter that it refuses")
		}
		for name, value := range s.RefusedParams {
			with := plain
			with.Sampling = map[string]any{name: value}
			_, err := mustPrepare(t, s, with).Generate(requestContext(t), engine.Row{Text: []byte("Say a few words.")})
			var fault *engine.Error
			if !errors.As(err, &fault) || fault.Class != engine.JobFault || !strings.Contains(fault.Message, name) {
				t.Errorf("%s: %v, want a JobFault that names the parameter", name, err)
			}
		}
	})

	for _, form := range forms {
		t.Run("structured_outputs: "+form.rule, func(t *testing.T) {
			with := plain
			with.Sampling = map[string]any{"temperature": 0.8, "structured_outputs": map[string]any{form.rule: form.value}}
			if !slices.Contains(s.Forms, form.rule) {
				if _, err := s.Engine.Prepare(with); err == nil {
					t.Error("Prepare accepts a rule that the server does not support")
				}
				t.Skip("the server does not support this rule")
			}
			c := mustPrepare(t, s, with)
			for i := range 4 {
				if r := mustGenerate(t, c, fmt.Sprintf("Judge text %d.", i), nil); !form.match.MatchString(r.Content) {
					t.Errorf("the answer %q does not match the rule (finish reason %s)", r.Content, r.Finish)
				}
			}
		})
	}

	t.Run("any text is a prompt", func(t *testing.T) {
		c := mustPrepare(t, s, plain)
		for _, text := range []string{
			`quotes " and \ backslashes \u0041 and {"json": [1]}`, "lines\r\nand\ttabs\vand\fmore\b", "nul \x00 and \x1b",
			"Größe, 日本語, 🦙 and \u2028", "broken \xff\xfe\xed\xa0\x80 bytes", " ", "</think>",
		} {
			mustGenerate(t, c, text, nil)
		}
	})

	t.Run("a prompt beyond the context is too long", func(t *testing.T) {
		s.skipUnlessSupported(t, Limits)
		if s.TruncatesPrompts {
			t.Skip("the server truncates the prompt")
		}
		_, err := mustPrepare(t, s, plain).Generate(requestContext(t), engine.Row{Text: overlongText(m)})
		if e := requireEngineError(t, err); e.Class != engine.RowFault || !e.TooLong || strings.Contains(e.Message, "word word") {
			t.Errorf("got %#v, want a RowFault that is TooLong and does not quote the prompt", e)
		}
	})

	t.Run("rows run side by side", func(t *testing.T) {
		c := mustPrepare(t, s, plain)
		const rows = 48
		prompt := func(i int) string { return strings.Repeat("word ", 1+i) }
		want := make([]int64, rows)
		for i := range want {
			want[i] = mustGenerate(t, c, prompt(i), nil).InputTokens
		}
		var wg sync.WaitGroup
		room := make(chan struct{}, s.Concurrency)
		for i := range rows {
			wg.Go(func() {
				room <- struct{}{}
				defer func() { <-room }()
				r, err := c.Generate(requestContext(t), engine.Row{Text: []byte(prompt(i))})
				if err != nil {
					t.Errorf("row %d: %v", i, err)
				} else if r.InputTokens != want[i] {
					t.Errorf("row %d: the answer reports %d input tokens, but the prompt has %d", i, r.InputTokens, want[i])
				}
			})
		}
		wg.Wait()
	})

	t.Run("a row's patience ends", func(t *testing.T) {
		_, err := mustPrepare(t, s, plain).Generate(requestContext(t), engine.Row{Text: []byte("Never mind."), Timeout: time.Nanosecond})
		if e := requireEngineError(t, err); e.Class != engine.Transient || e.Code != "timeout" {
			t.Errorf("got %#v, want a Transient with code timeout", e)
		}
	})

	t.Run("cancelling", func(t *testing.T) { testCancellation(t, s, plain) })
}

// testCancellation checks that a cancelled context ends a call at any time, and that the
// server then stops the row.
func testCancellation(t *testing.T, s Server, p engine.JobParams) {
	p.MaxTokens = s.Generation.ContextLength / 2
	c := mustPrepare(t, s, p)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Generate(gone, engine.Row{Text: []byte("Never sent.")}); !errors.Is(err, context.Canceled) {
		t.Errorf("Generate with a cancelled context returned %v, want context.Canceled", err)
	}
	// The request is cancelled before, while and after it is sent.
	for wait := range 40 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(wait)*100*time.Microsecond)
		r, err := c.Generate(ctx, engine.Row{Text: []byte("Count to a thousand, in words.")})
		cancel()
		switch {
		case err == nil:
			checkReply(t, r)
		case !errors.Is(err, context.DeadlineExceeded):
			t.Errorf("cancelled after %d00 µs: error %v, want context.DeadlineExceeded", wait, err)
		}
	}
	mustGenerate(t, c, "Still there?", nil)
	if !s.Cancels {
		return
	}
	deadline := time.Now().Add(10 * time.Second)
	for {
		g, err := s.Engine.Gauges(requestContext(t))
		if err != nil {
			t.Fatalf("gauges: %v", err)
		}
		if g.Running == 0 && g.Waiting == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d rows still run long after they were cancelled", g.Running+g.Waiting)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// overlongText returns a text that is longer than the model's context.
func overlongText(m rowmill.Model) []byte {
	return []byte(strings.Repeat("word ", m.ContextLength+100))
}
