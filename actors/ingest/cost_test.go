package ingest

import (
	"errors"
	"math"
	"testing"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/shard"
	"github.com/rowmill/rowmill/store"
)

func estimateSpec() *rowmill.Spec {
	return &rowmill.Spec{
		Model:    rowmill.Model{ID: "m", Kind: rowmill.KindGeneration, ContextLength: 8192, InputPrice: 1, OutputPrice: 2},
		Sampling: map[string]any{"max_tokens": int64(100)}, Estimate: true, Priority: 1,
	}
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9*(1+math.Abs(b)) }

// decisions.md: input tokens × input price + min(input tokens, rows ×
// max_tokens) × output price; embeddings have no output.
func TestUnsampled(t *testing.T) {
	t.Parallel()
	spec := estimateSpec()
	usd, e := EstimateFromInput(spec, 10, shard.TokenCounts{Tokens: 5_000_000})
	if want := 5 + 1000*2/1e6; !near(usd, want) || e.OutputTokens != 1000 || e.Method != rowmill.EstimateUnsampled {
		t.Errorf("estimate = %v USD, %+v, want %v", usd, e, want)
	}
	if !near(e.Low, 5) || e.High < usd {
		t.Errorf("bounds %v to %v, want from the input alone to at least %v", e.Low, e.High, usd)
	}
	if usd, _ := EstimateFromInput(spec, 1_000_000, shard.TokenCounts{Tokens: 5_000_000}); !near(usd, 15) {
		t.Errorf("estimate of many short rows = %v, want output as long as the input: 15", usd)
	}
	spec.Model.Kind = rowmill.KindEmbedding
	if usd, e := EstimateFromInput(spec, 10, shard.TokenCounts{Tokens: 1_000_000}); !near(usd, 1) || e.OutputTokens != 0 {
		t.Errorf("estimate of an embedding job = %v, %+v, want its input", usd, e)
	}
}

func TestSampled_Extrapolates(t *testing.T) {
	t.Parallel()
	spec := estimateSpec()
	var parts []store.Part
	for _, output := range []int64{4000, 5000, 6000, 5000} {
		parts = append(parts, store.Part{Totals: store.RowTotals{Rows: 100, InputTokens: 10_000, OutputTokens: output}})
	}
	usd, e := EstimateFromSample(spec, 10_000, shard.TokenCounts{Tokens: 1_000_000}, parts)
	if want := 1 + 500_000*2/1e6; !near(usd, want) || e.OutputTokens != 500_000 || e.SampleRows != 400 || e.SampleInputTokens != 40_000 {
		t.Errorf("estimate = %v USD, %+v, want %v", usd, e, want)
	}
	// 50 tokens a row; the squared deviations of the part sums add up to 2,000,000, and
	// 4/3 of that is the variance of their sum.
	off := 1.96 * math.Sqrt(4.0/3*2_000_000) / 400
	if low := 1 + (50-off)*10_000*2/1e6; math.Abs(e.Low-low) > 1e-5 || math.Abs(e.High-usd-(usd-e.Low)) > 1e-5 {
		t.Errorf("bounds %v to %v, want %v below and as much above", e.Low, e.High, low)
	}
	whole, e := EstimateFromSample(spec, 400, shard.TokenCounts{Tokens: 40_000}, parts)
	if !near(e.Low, whole) || !near(e.High, whole) {
		t.Errorf("a sample of every row leaves %v to %v open", e.Low, e.High)
	}
	if _, e := EstimateFromSample(spec, 10_000, shard.TokenCounts{Tokens: 1_000_000}, parts[:2]); !near(e.Low, 1) {
		t.Errorf("two parts tell no spread, yet the lower bound is %v", e.Low)
	}
}

func TestSamples(t *testing.T) {
	t.Parallel()
	cfg, size := Config{SampleFrom: 1000}, shard.TokenCounts{Tokens: 1000}
	for name, change := range map[string]func(*rowmill.Spec, *shard.TokenCounts){
		"a job":       func(spec *rowmill.Spec, _ *shard.TokenCounts) { spec.Estimate = false },
		"priority 0":  func(spec *rowmill.Spec, _ *shard.TokenCounts) { spec.Priority = 0 },
		"few tokens":  func(_ *rowmill.Spec, size *shard.TokenCounts) { size.Tokens-- },
		"an estimate": func(*rowmill.Spec, *shard.TokenCounts) {},
	} {
		spec, size := estimateSpec(), size
		change(spec, &size)
		if got := cfg.ShouldSample(spec, size); got != (name == "an estimate") {
			t.Errorf("%s runs its first rows: %t", name, got)
		}
	}
}

func TestReserve(t *testing.T) {
	t.Parallel()
	r := setup(t)
	limit := 20.0
	input := shard.Manifest{Rows: 2, Size: shard.TokenCounts{Tokens: 6}} // 6 USD for the prompts, 6 for the answers
	for _, test := range []struct {                                      // in this order: each job reserves a part of the quota
		name     string
		change   func(*rowmill.Spec)
		reserved float64
		fails    string
	}{
		{"without a quota", func(s *rowmill.Spec) { s.CostQuota = nil }, 0, ""},
		{"an estimate", func(s *rowmill.Spec) { s.Estimate = true }, 0, ""},
		{"the first job", func(*rowmill.Spec) {}, 12, ""},
		{"beyond the quota", func(*rowmill.Spec) {}, 0, "20 USD"},
		// A job without a known price cannot be compared with a quota.
		{"without a price", func(s *rowmill.Spec) { s.Model = rowmill.Model{ID: "own", NoPrice: true} }, 0, "20 USD a month, and own has no price"},
		{"without a price and a quota", func(s *rowmill.Spec) { s.Model, s.CostQuota = rowmill.Model{ID: "own", NoPrice: true}, nil }, 0, ""},
	} {
		spec := rowmill.Spec{Inline: []string{"one two three", "four five six"}, CostQuota: &limit, Sampling: map[string]any{"max_tokens": int64(10)}}
		test.change(&spec)
		rec, fence := r.job(t, spec)
		lost := fence
		lost.Epoch++
		if err := ReserveCost(t.Context(), r.store, rec, lost, input); test.reserved > 0 && !errors.Is(err, rowmill.ErrLeaseLost) {
			t.Errorf("%s, without the lease: %v", test.name, err)
		}
		err := ReserveCost(t.Context(), r.store, rec, fence, input)
		if test.fails != "" {
			fails(t, err, rowmill.CodeCostQuota, test.fails)
		} else if err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		if rec.Reserved != rowmill.MoneyFromUSD(test.reserved) {
			t.Errorf("%s: %v set aside, want %v", test.name, rec.Reserved, test.reserved)
		}
	}
}
