package rowmill_test

import (
	"encoding/json"
	"testing"

	"github.com/rowmill/rowmill"
)

func TestDeterministicSpecs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		sampling map[string]any
		want     bool
	}{
		{nil, false},
		{map[string]any{"temperature": 0.7}, false},
		{map[string]any{"temperature": 0.0}, true},
		{map[string]any{"temperature": int64(0)}, true},
		{map[string]any{"temperature": json.Number("0")}, true},
		{map[string]any{"temperature": json.Number("0.5")}, false},
		{map[string]any{"seed": int64(1)}, true},
	} {
		if got := (&rowmill.Spec{Sampling: c.sampling}).IsDeterministic(); got != c.want {
			t.Errorf("%v: deterministic %v, want %v", c.sampling, got, c.want)
		}
	}
}

func TestMaxTokensBeforeAndAfterStorage(t *testing.T) {
	t.Parallel()
	for _, v := range []any{int64(512), json.Number("512"), 512.0} {
		if got := (&rowmill.Spec{Sampling: map[string]any{"max_tokens": v}}).MaxTokens(); got != 512 {
			t.Errorf("max_tokens %T: %d", v, got)
		}
	}
}

func TestPromptLimit(t *testing.T) {
	t.Parallel()
	asking := func(n int64) map[string]any { return map[string]any{"max_tokens": n} }
	for _, test := range []struct {
		name           string
		spec           rowmill.Spec
		context        int
		reserve, limit int
	}{
		{"unknown context length", rowmill.Spec{}, 0, 4096, 0},
		{"max_tokens", rowmill.Spec{Sampling: asking(100)}, 1000, 100, 899},
		{"max_tokens above the context", rowmill.Spec{Sampling: asking(5000)}, 1000, 5000, 1},
		{"a quarter of a small context", rowmill.Spec{}, 1000, 250, 749},
		{"the maximum for a large context", rowmill.Spec{}, 100_000, 4096, 100_000 - 4097},
		{"embeddings have no answer", rowmill.Spec{Model: rowmill.Model{Kind: rowmill.KindEmbedding}, Sampling: asking(100)}, 1000, 0, 999},
	} {
		if got := test.spec.AnswerReserve(test.context); got != test.reserve {
			t.Errorf("%s: %d tokens are kept for the answer, want %d", test.name, got, test.reserve)
		}
		if got := test.spec.PromptLimit(test.context); got != test.limit {
			t.Errorf("%s: a prompt may have %d tokens, want %d", test.name, got, test.limit)
		}
	}
}
