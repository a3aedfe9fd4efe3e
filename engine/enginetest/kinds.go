package enginetest

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
)

// testReasoning checks that the server separates reasoning from answers.
func testReasoning(t *testing.T, s Server) {
	c := mustPrepare(t, s, engine.JobParams{
		Model: *s.Reasoning, MaxTokens: s.Reasoning.ContextLength / 4, Logprobs: true,
		Sampling: map[string]any{"temperature": 0.8},
	})
	reasoned, answered := false, false
	for i := range 6 {
		r := mustGenerate(t, c, fmt.Sprintf("Think about riddle %d.", i), new(int64(i)))
		if strings.Contains(r.Content, "</think>") && r.Finish == rowmill.FinishStop ||
			strings.Contains(r.Reasoning, "</think>") {
			t.Errorf("row %d: the answer contains the tag </think>, want answer and reasoning without it", i)
		}
		reasoned = reasoned || r.Reasoning != ""
		answered = answered || r.Content != ""
		if r.Reasoning != "" && r.Content != "" && r.LogprobCount >= r.OutputTokens {
			t.Errorf("row %d: %d log probabilities of %d tokens, want none for the reasoning", i, r.LogprobCount, r.OutputTokens)
		}
		if r.Content == "" && r.Finish == rowmill.FinishLength && r.LogprobCount != 0 {
			t.Errorf("row %d was cut off while thinking and has log probabilities, want none", i)
		}
	}
	if !reasoned || !answered {
		t.Errorf("six rows: some reasoning: %v, some answer: %v, want both", reasoned, answered)
	}
}

// testEmbedding checks the server with the model Embedding.
func testEmbedding(t *testing.T, s Server) {
	m := *s.Embedding
	c := mustPrepare(t, s, engine.JobParams{Model: m})
	texts := []string{"first of all", "a red house", "x", "lines\nand \"quotes\"", strings.Repeat("longer ", 40)}

	t.Run("a group comes back in order", func(t *testing.T) {
		group := mustEmbed(t, s, c, texts)
		for i, text := range texts {
			alone := mustEmbed(t, s, c, []string{text})[0]
			if len(group[i].Embedding) != m.Dimension {
				t.Fatalf("text %d: %d numbers, want %d", i, len(group[i].Embedding), m.Dimension)
			}
			if like := cosine(group[i].Embedding, alone.Embedding); like < 0.999 {
				t.Errorf("text %d: its embedding in a group and its embedding alone have similarity %.4f, want at least 0.999", i, like)
			}
		}
		if like := cosine(group[0].Embedding, group[1].Embedding); like > 0.999 {
			t.Errorf("different texts have embeddings of similarity %.4f, want at most 0.999", like)
		}
	})

	t.Run("a bad text fails alone", func(t *testing.T) { testBadTextFailsAlone(t, s, c) })
	t.Run("no rows, no request", func(t *testing.T) {
		if replies, faults, err := c.Embed(requestContext(t), nil); err != nil || len(replies) != 0 || len(faults) != 0 {
			t.Errorf("embed no rows: %v, %v, %v, want nothing", replies, faults, err)
		}
	})
}

// testBadTextFailsAlone embeds a group in which one text is too long, and checks that only this
// text fails.
func testBadTextFailsAlone(t *testing.T, s Server, c engine.PreparedCall) {
	s.skipUnlessSupported(t, Limits)
	if s.TruncatesPrompts {
		t.Skip("the server truncates the prompt")
	}
	rows := make([]engine.Row, 0, 9)
	for i := range 9 {
		rows = append(rows, engine.Row{Text: fmt.Appendf(nil, "text %d", i)})
	}
	rows[5].Text = overlongText(*s.Embedding)
	replies, faults, err := c.Embed(requestContext(t), rows)
	if err != nil {
		t.Fatalf("embed: %v", err)
	}
	for i := range rows {
		switch {
		case i != 5 && (faults[i] != nil || len(replies[i].Embedding) != s.Embedding.Dimension):
			t.Errorf("row %d failed together with the bad row: %v, want an embedding", i, faults[i])
		case i == 5 && (faults[i] == nil || faults[i].Class != engine.RowFault || !faults[i].TooLong):
			t.Errorf("the bad row has %v, want a RowFault that is TooLong", faults[i])
		}
	}
}

// mustEmbed embeds texts in one group and returns the replies. It fails the test on an
// error.
func mustEmbed(t *testing.T, s Server, c engine.PreparedCall, texts []string) []engine.Reply {
	t.Helper()
	rows := make([]engine.Row, len(texts))
	for i, text := range texts {
		rows[i].Text = []byte(text)
	}
	replies, faults, err := c.Embed(requestContext(t), rows)
	if err != nil {
		t.Fatalf("embed: %v", err)
	}
	var tokens int64
	for i := range rows {
		if faults[i] != nil {
			t.Fatalf("embed text %d: %v", i, faults[i])
		}
		tokens += replies[i].InputTokens
	}
	if tokens <= 0 && !slices.Contains(s.Ignores, Usage) {
		t.Errorf("a group of %d texts counts %d tokens", len(texts), tokens)
	}
	return replies
}

// cosine returns the cosine similarity of two vectors: 1 means the same direction.
func cosine(a, b []float32) float64 {
	var ab, aa, bb float64
	for i := range min(len(a), len(b)) {
		x, y := float64(a[i]), float64(b[i])
		ab, aa, bb = ab+x*y, aa+x*x, bb+y*y
	}
	return ab / math.Sqrt(aa*bb)
}
