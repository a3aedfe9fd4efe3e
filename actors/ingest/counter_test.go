package ingest

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/panics"
	"github.com/rowmill/rowmill/tokenize/prompt"
)

// words counts words; its counts are exact, like those of a vocabulary.
type words struct{}

func (words) Count(text string) int { return len(strings.Fields(text)) }

func (words) Truncate(text string, n int) string {
	fields := strings.Fields(text)
	return strings.Join(fields[:min(n, len(fields))], " ")
}

func TestInputCounter_CountsEveryRow(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		spec := &rowmill.Spec{Model: rowmill.Model{ID: "m", Kind: rowmill.KindGeneration}}
		m := tokenCounter(t, spec, words{})
		c := newInputCounter(m, spec).begin(context.Background())
		want := int64(0)
		for range rapid.IntRange(0, 2000).Draw(t, "rows") {
			n := rapid.IntRange(0, 9).Draw(t, "words")
			_ = c.add(strings.Repeat("word ", n))
			want += int64(n + m.Count(""))
		}
		if got, err := c.close(); err != nil || got != want {
			t.Fatalf("counted %d tokens, %v, want %d", got, err, want)
		}
	})
}

// counting begins to count rows for a job.
func counting(t tester, spec *rowmill.Spec, tokens prompt.Tokenizer) *inputTokenCounter {
	if spec.Model.ID == "" {
		spec.Model = rowmill.Model{ID: "m", Kind: rowmill.KindGeneration}
	}
	return newInputCounter(tokenCounter(t, spec, tokens), spec).begin(context.Background())
}

func TestInputCounter_TheTokenQuotaEndsTheReading(t *testing.T) {
	t.Parallel()
	c := counting(t, &rowmill.Spec{JobQuotas: rowmill.JobQuotas{TokenQuota: 5000}}, words{})
	read := 0
	for read < 10_000_000 && c.err() == nil {
		_ = c.add("one two three four five")
		read++
	}
	if _, err := c.close(); err == nil || !strings.Contains(err.Error(), "5000 tokens") {
		t.Fatalf("error = %v, want one that names the quota", err)
	}
	if read > 1000*8 {
		t.Errorf("%d rows were read to find out after 1000", read)
	}
}

func TestInputCounter_ARowTooLongIsNamedWhereItMayNotBeCut(t *testing.T) {
	t.Parallel()
	model := rowmill.Model{ID: "m", Kind: rowmill.KindGeneration, ContextLength: 100, Template: "chatml"}
	for _, truncate := range []bool{true, false} {
		c := counting(t, &rowmill.Spec{Model: model, Sampling: map[string]any{"max_tokens": int64(50)}, RowRules: rowmill.RowRules{TruncateRows: truncate}}, words{})
		_ = c.add("short")
		_ = c.add(strings.Repeat("word ", 60))
		tokens, err := c.close()
		switch {
		case truncate && (err != nil || tokens > 2*49):
			t.Errorf("truncated: %d tokens, %v, want the long row counted as far as it fits", tokens, err)
		case !truncate && (err == nil || !strings.Contains(err.Error(), "Row 1 ")):
			t.Errorf("error = %v, want one that names row 1", err)
		}
	}
}

// A row that cannot be counted is an error of the job, and does not end the node.
func TestInputCounter_ARowThatMakesItPanic(t *testing.T) {
	t.Parallel()
	c := counting(t, &rowmill.Spec{}, brittleWords{})
	for range 10_000 {
		_ = c.add("word")
	}
	_ = c.add("boom")
	for range 10_000 {
		_ = c.add("word")
	}
	var caught *panics.Panic
	if _, err := c.close(); !errors.As(err, &caught) {
		t.Errorf("error = %v, want a panic", err)
	}
}

// brittleWords panics on one text.
type brittleWords struct{ words }

func (w brittleWords) Count(text string) int {
	if text == "boom" {
		panic(text)
	}
	return w.words.Count(text)
}

// Only one long row is in memory at a time, even if counting is slow.
func TestInputCounter_ALongRowIsCountedBeforeTheNextIsRead(t *testing.T) {
	t.Parallel()
	count := &slowWords{}
	c := counting(t, &rowmill.Spec{}, count)
	long := strings.Repeat("word ", 300_000)
	for i := range int64(3) {
		_ = c.add(long)
		if n := count.long.Load(); n != i+1 {
			t.Fatalf("%d long rows are counted when %d were read", n, i+1)
		}
	}
	must.Get(c.close())(t)
}

// slowWords takes time for a long text.
type slowWords struct {
	words
	long atomic.Int64
}

func (w *slowWords) Count(text string) int {
	if len(text) > 1<<20 {
		time.Sleep(20 * time.Millisecond)
		w.long.Add(1)
	}
	return w.words.Count(text)
}
