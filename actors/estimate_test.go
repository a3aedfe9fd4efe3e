package actors

import (
	"math"
	"testing"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/shard"
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
func TestUnsampledEstimate(t *testing.T) {
	t.Parallel()
	spec := estimateSpec()
	usd, e := unsampledEstimate(spec, 10, shard.Size{Tokens: 5_000_000})
	if want := 5 + 1000*2/1e6; !near(usd, want) || e.OutputTokens != 1000 || e.Method != rowmill.EstimateUnsampled {
		t.Errorf("estimate = %v USD, %+v, want %v", usd, e, want)
	}
	if !near(e.Low, 5) || e.High < usd {
		t.Errorf("bounds %v to %v, want from the input alone to at least %v", e.Low, e.High, usd)
	}
	if usd, _ := unsampledEstimate(spec, 1_000_000, shard.Size{Tokens: 5_000_000}); !near(usd, 15) {
		t.Errorf("estimate of many short rows = %v, want output as long as the input: 15", usd)
	}
	spec.Model.Kind = rowmill.KindEmbedding
	if usd, e := unsampledEstimate(spec, 10, shard.Size{Tokens: 1_000_000}); !near(usd, 1) || e.OutputTokens != 0 {
		t.Errorf("estimate of an embedding job = %v, %+v, want its input", usd, e)
	}
}

func TestSampledEstimateExtrapolates(t *testing.T) {
	t.Parallel()
	spec := estimateSpec()
	var parts []store.Part
	for _, output := range []int64{4000, 5000, 6000, 5000} {
		parts = append(parts, store.Part{Totals: store.Totals{Rows: 100, InputTokens: 10_000, OutputTokens: output}})
	}
	usd, e := sampledEstimate(spec, 10_000, shard.Size{Tokens: 1_000_000}, parts)
	if want := 1 + 500_000*2/1e6; !near(usd, want) || e.OutputTokens != 500_000 || e.SampleRows != 400 || e.SampleInputTokens != 40_000 {
		t.Errorf("estimate = %v USD, %+v, want %v", usd, e, want)
	}
	// 50 tokens a row; of the part sums, squares of what they are off add up
	// to 2,000,000, and 4/3 of that is the variance of their sum.
	off := 1.96 * math.Sqrt(4.0/3*2_000_000) / 400
	if low := 1 + (50-off)*10_000*2/1e6; math.Abs(e.Low-low) > 1e-5 || math.Abs(e.High-usd-(usd-e.Low)) > 1e-5 {
		t.Errorf("bounds %v to %v, want %v below and as much above", e.Low, e.High, low)
	}
	whole, e := sampledEstimate(spec, 400, shard.Size{Tokens: 40_000}, parts)
	if !near(e.Low, whole) || !near(e.High, whole) {
		t.Errorf("a sample of every row leaves %v to %v open", e.Low, e.High)
	}
	if _, e := sampledEstimate(spec, 10_000, shard.Size{Tokens: 1_000_000}, parts[:2]); !near(e.Low, 1) {
		t.Errorf("two parts tell no spread, yet the lower bound is %v", e.Low)
	}
}

func TestASampleIsTheFirstRows(t *testing.T) {
	t.Parallel()
	m := shard.Manifest{Rows: 250, Shards: []shard.Info{{First: 0, Rows: 100, Bytes: 1000}, {First: 100, Rows: 100, Bytes: 1000}, {First: 200, Rows: 50, Bytes: 500}}}
	got := m.FirstRows(120)
	if got.Rows != 120 || len(got.Shards) != 2 || got.Shards[1] != (shard.Info{First: 100, Rows: 20, Bytes: 200}) {
		t.Errorf("first 120 rows = %+v", got)
	}
	if whole := m.FirstRows(250); whole.Rows != 250 || len(whole.Shards) != 3 {
		t.Errorf("all rows = %+v", whole)
	}
}
