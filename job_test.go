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
		if got := (&rowmill.Spec{Sampling: c.sampling}).Deterministic(); got != c.want {
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
