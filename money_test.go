package rowmill_test

import (
	"encoding/json"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/rowmill/rowmill"
)

func TestMoneyOf(t *testing.T) {
	t.Parallel()
	for usd, want := range map[float64]rowmill.Money{
		0: 0, 1: 1e12, 0.1: 1e11, 1e-12: 1, 4e-13: 0, -0.5: -5e11, 9e6: 9e18,
		1e7: math.MaxInt64, math.Inf(1): math.MaxInt64, math.Inf(-1): math.MinInt64, math.NaN(): 0,
	} {
		if got := rowmill.MoneyFromUSD(usd); got != want {
			t.Errorf("%v USD is %d, want %d", usd, got, want)
		}
	}
	for m, want := range map[rowmill.Money]string{0: "0 USD", 25e10: "0.25 USD", 1: "0.000000000001 USD", 12e12: "12 USD"} {
		if got := m.String(); got != want {
			t.Errorf("%d is %q, want %q", int64(m), got, want)
		}
	}
}

// The charge of all tokens at once equals the sum of partial charges.
func TestChargesSum(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		price := func(name string) float64 { return float64(rapid.IntRange(0, 100_000_000).Draw(t, name)) / 1e6 }
		m := rowmill.Model{InputPrice: price("input price"), OutputPrice: price("output price")}
		var in, out int64
		var sum rowmill.Money
		for range rapid.IntRange(1, 20).Draw(t, "parts") {
			i, o := rapid.Int64Range(0, 1e7).Draw(t, "input"), rapid.Int64Range(0, 1e7).Draw(t, "output")
			in, out, sum = in+i, out+o, sum.Plus(m.TokenCost(i, o))
		}
		if whole := m.TokenCost(in, out); whole != sum {
			t.Fatalf("%d and %d tokens at %v and %v cost %v, their parts %v", in, out, m.InputPrice, m.OutputPrice, whole, sum)
		}
		want := (float64(in)*m.InputPrice + float64(out)*m.OutputPrice) / 1e6
		if got := sum.USD(); math.Abs(got-want) > 1e-9*want+1e-12 {
			t.Fatalf("%v USD, want about %v", got, want)
		}
	})
}

func TestChargesStayInRange(t *testing.T) {
	t.Parallel()
	for _, m := range []rowmill.Model{{InputPrice: 1e300}, {InputPrice: 1000, OutputPrice: 1000}, {InputPrice: math.Inf(1)}} {
		if got := m.TokenCost(math.MaxInt64, math.MaxInt64); got != math.MaxInt64 {
			t.Errorf("%v: %d, want the largest amount", m, int64(got))
		}
	}
	if got := (rowmill.Model{InputPrice: 1}).TokenCost(-5, 0); got != 0 {
		t.Errorf("a negative count costs %v", got)
	}
	if got := (rowmill.Model{InputPrice: -1, OutputPrice: math.NaN()}).TokenCost(5, 5); got != 0 {
		t.Errorf("an invalid price costs %v", got)
	}
}

func TestCostOfJobs(t *testing.T) {
	t.Parallel()
	m := rowmill.Model{InputPrice: 0.1, OutputPrice: 0.3}
	in, out := int64(1), int64(3)
	used := rowmill.JobUsage{InputTokens: &in, OutputTokens: &out}
	for name, tt := range map[string]struct {
		job  rowmill.Job
		want string
	}{
		"nothing committed": {rowmill.Job{}, "0"},
		"input alone":       {rowmill.Job{JobUsage: rowmill.JobUsage{InputTokens: &in}}, "1e-7"},
		"both":              {rowmill.Job{JobUsage: used}, "0.000001"}, // in floats 9.999999999999999e-7
		"estimate":          {rowmill.Job{RunType: rowmill.RunEstimate, JobUsage: used}, "0"},
	} {
		text, err := json.Marshal(m.Cost(&tt.job))
		if err != nil || string(text) != tt.want {
			t.Errorf("%s: %s, want %s, %v", name, text, tt.want, err)
		}
	}
}

// Without a price the cost of a job is unknown, not 0. An estimate costs 0 anyway.
func TestCostWithoutAPrice(t *testing.T) {
	t.Parallel()
	m := rowmill.Model{NoPrice: true}
	n := int64(3)
	if cost := m.Cost(&rowmill.Job{JobUsage: rowmill.JobUsage{InputTokens: &n, OutputTokens: &n}}); cost != nil {
		t.Errorf("a job costs %v", *cost)
	}
	if cost := m.Cost(&rowmill.Job{RunType: rowmill.RunEstimate}); cost == nil || *cost != 0 {
		t.Errorf("an estimate costs %v", cost)
	}
	if charge := m.TokenCost(n, n); charge != 0 {
		t.Errorf("tokens add %v to usage", charge)
	}
}
