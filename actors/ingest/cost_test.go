package ingest

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/shard"
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
func TestEstimateFromInput(t *testing.T) {
	t.Parallel()
	spec := estimateSpec()
	usd, e := EstimateFromInput(spec, shard.InputSize{Rows: 10, Tokens: 5_000_000})
	if want := 5 + 1000*2/1e6; !near(usd, want) || e.OutputTokens != 1000 || e.Method != rowmill.EstimateUnsampled {
		t.Errorf("estimate = %v USD, %+v, want %v", usd, e, want)
	}
	if !near(e.Low, 5) || e.High < usd {
		t.Errorf("bounds %v to %v, want from the input alone to at least %v", e.Low, e.High, usd)
	}
	if usd, _ := EstimateFromInput(spec, shard.InputSize{Rows: 1_000_000, Tokens: 5_000_000}); !near(usd, 15) {
		t.Errorf("estimate of many short rows = %v, want output as long as the input: 15", usd)
	}
	spec.Model.Kind = rowmill.KindEmbedding
	if usd, e := EstimateFromInput(spec, shard.InputSize{Rows: 10, Tokens: 1_000_000}); !near(usd, 1) || e.OutputTokens != 0 {
		t.Errorf("estimate of an embedding job = %v, %+v, want its input", usd, e)
	}
}

func TestEstimateFromSample(t *testing.T) {
	t.Parallel()
	spec := estimateSpec()
	m := shard.Manifest{Rows: 5, Tokens: 150, Estimated: shard.InputSize{Rows: 10_000, Tokens: 8_000_000}} // the server counts an eighth of these tokens
	answers := []AnsweredRow{{3, 40, 1}, {1, 20, 1}, {2, 30, 1}, {9, 110, 1}}
	usd, e := EstimateFromSample(spec, m, answers, Queue{})
	if want := 1 + 500_000*2/1e6; !near(usd, want) || e.OutputTokens != 500_000 || e.SampleRows != 4 || e.SampleInputTokens != 15 || e.Method != rowmill.EstimateSampled {
		t.Errorf("estimate = %v USD, %+v, want %v", usd, e, want)
	}
	// In the order of the prompts, the differences of the answers are 10, 10 and 70. The 90 %
	// quantile of Student's distribution with 3 degrees of freedom is 1.638.
	off := 1.638 * math.Sqrt((10*10+10*10+70*70)/6.0/4*(1-4.0/10_000))
	if low := 1 + (50-off)*10_000*2/1e6; math.Abs(e.Low/low-1) > 0.03 || math.Abs(e.High-usd-(usd-e.Low)) > 1e-5 {
		t.Errorf("bounds %v to %v, want %v below and as much above", e.Low, e.High, low)
	}
	whole, e := EstimateFromSample(spec, shard.Manifest{Rows: 4, Tokens: 15, Estimated: shard.InputSize{Rows: 4, Tokens: 15}}, answers, Queue{})
	if !near(e.Low, whole) || !near(e.High, whole) {
		t.Errorf("a sample of all rows leaves %v to %v open", e.Low, e.High)
	}
	if usd, e := EstimateFromSample(spec, m, answers[:1], Queue{}); !near(e.Low, 0.8) || e.High < usd {
		t.Errorf("after a single row, the bounds are %v to %v", e.Low, e.High)
	}
	if _, e := EstimateFromSample(spec, m, nil, Queue{}); e.Method != rowmill.EstimateUnsampled {
		t.Errorf("without an answer, the estimate is %+v", e)
	}
}

// The stated interval holds for about 80 % of the samples, also if answers depend on the prompts.
func TestEstimateFromSample_Interval(t *testing.T) {
	t.Parallel()
	const samples, rows, size = 2000, 5000, 100
	for name, answer := range map[string]func(random *rand.Rand, prompt float64) float64{
		"independent": func(random *rand.Rand, _ float64) float64 { return 200 * random.ExpFloat64() },
		"dependent":   func(random *rand.Rand, prompt float64) float64 { return prompt * (0.5 + random.Float64()) },
		"equal":       func(*rand.Rand, float64) float64 { return 10 },
	} {
		random := rand.New(rand.NewPCG(1, 2)) // fixed, so the counts are always the same
		all, total, input := make([]AnsweredRow, rows), int64(0), int64(0)
		for i := range all {
			prompt := math.Exp(5 + random.NormFloat64())
			all[i] = AnsweredRow{InputTokens: int64(prompt), OutputTokens: int64(answer(random, prompt))}
			total += all[i].OutputTokens
			input += all[i].InputTokens
		}
		spec, held := estimateSpec(), 0
		for seed := range int64(samples) {
			sampler := newLengthSampler(size, seed)
			for i, row := range all {
				sampler.add(int64(i), int(row.InputTokens))
			}
			in := shard.InputSize{Rows: rows, Tokens: input}
			var answers []AnsweredRow
			for _, row := range sampler.choose(1<<40, in).ToArray() {
				answers = append(answers, all[row])
			}
			if len(answers) != size {
				t.Fatalf("%s: a sample has %d rows, want %d", name, len(answers), size)
			}
			_, e := EstimateFromSample(spec, shard.Manifest{Estimated: in}, answers, Queue{})
			if cost := spec.Model.TokenCost(input, total).USD(); e.Low <= cost+1e-6 && cost <= e.High+1e-6 {
				held++
			}
		}
		if share := float64(held) / samples; name != "equal" && (share < 0.7 || share > 0.9) || name == "equal" && share < 1 {
			t.Errorf("%s answers: the interval holds for %.0f %% of the samples", name, 100*share)
		}
	}
}

// A sample of long rows has few tokens, but at least 20 rows.
func TestLengthSampler_LimitsTokens(t *testing.T) {
	t.Parallel()
	for tokens, want := range map[int64]uint64{0: 20, 3000: 30, 1 << 40: 100} {
		sampler := newLengthSampler(100, 1)
		for row := range int64(1000) {
			sampler.add(row, 100)
		}
		if got := sampler.choose(tokens, shard.InputSize{Rows: 1000, Tokens: 100_000}).GetCardinality(); got != want {
			t.Errorf("with %d tokens, the sample has %d rows, want %d", tokens, got, want)
		}
	}
}

func TestDollars(t *testing.T) {
	t.Parallel()
	for usd, want := range map[float64]string{0: "$0.00", 0.00258438: "$0.00258", 0.25: "$0.250", 12: "$12.00"} {
		if got := dollars(rowmill.MoneyFromUSD(usd)); got != want {
			t.Errorf("%v USD: %s, want %s", usd, got, want)
		}
	}
}

func TestReserve(t *testing.T) {
	t.Parallel()
	r := setup(t)
	limit := 20.0
	input := shard.Manifest{Rows: 2, Tokens: 6} // 6 USD for the prompts, 6 for the answers
	for _, test := range []struct {             // in this order: each job reserves a part of the quota
		name     string
		change   func(*rowmill.Spec)
		reserved float64
		fails    string
	}{
		{"without a quota", func(s *rowmill.Spec) { s.CostQuota = nil }, 0, ""},
		{"an estimate", func(s *rowmill.Spec) { s.Estimate = true }, 0, ""},
		{"the first job", func(*rowmill.Spec) {}, 12, ""},
		{"beyond the quota", func(*rowmill.Spec) {}, 0, "The job can cost up to $12.00. $0.00 of the account's monthly $20.00 are spent and $12.00 are reserved for jobs that run. Wait"},
		// A job without a known price cannot be compared with a quota.
		{"without a price", func(s *rowmill.Spec) { s.Model = rowmill.Model{ID: "own", NoPrice: true} }, 0, "20 USD a month, and own has no price"},
		{"without a price and a quota", func(s *rowmill.Spec) { s.Model, s.CostQuota = rowmill.Model{ID: "own", NoPrice: true}, nil }, 0, ""},
	} {
		spec := rowmill.Spec{Inline: []string{"one two three", "four five six"}, JobQuotas: rowmill.JobQuotas{CostQuota: &limit}, Sampling: map[string]any{"max_tokens": int64(10)}}
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
