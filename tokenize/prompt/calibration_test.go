package prompt

import (
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// observe passes rows of 10 to 2000 tokens to a calibration.
func observe(c *Calibration, rng *rand.Rand, rows int, used func(counted int) int) {
	for range rows {
		counted := 10 + int(1990*math.Pow(rng.Float64(), 3)) // most are short
		c.Observe(counted, used(counted))
	}
}

func source() *rand.Rand { return rand.New(rand.NewPCG(7, 11)) }

func TestCalibration_TheRightTemplate(t *testing.T) {
	t.Parallel()
	var c Calibration
	observe(&c, source(), 100, func(n int) int { return n })
	if diff := cmp.Diff(Report{Rows: 100, Exact: true, Ratio: 1}, c.Report()); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
	if tokens, within, learned := c.Estimate(700); tokens != 700 || within != 0 || !learned {
		t.Errorf("estimate %d ± %d, %t", tokens, within, learned)
	}
}

func TestCalibration_AWrongTemplateIsAnOffset(t *testing.T) {
	t.Parallel()
	var c Calibration
	observe(&c, source(), 20, func(n int) int { return n + 37 })
	want := Report{Rows: 20, Exact: true, Offset: 37, Ratio: 1, MeanError: 37, MaxError: 37}
	if diff := cmp.Diff(want, c.Report(), approximately); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
	if tokens, within, _ := c.Estimate(1_000_000); tokens != 1_000_037 || within != 0 {
		t.Errorf("estimate %d ± %d", tokens, within)
	}
}

var approximately = cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-9 })

func TestCalibration_AnotherVocabularyIsARatio(t *testing.T) {
	t.Parallel()
	for _, ratio := range []float64{0.6, 1.0, 1.3, 2.5} {
		rng := source()
		var c Calibration
		noisy := func(n int) int { return int(ratio*float64(n)*(1+0.04*rng.NormFloat64()) + 20) }
		observe(&c, rng, 200, noisy)
		r := c.Report()
		if r.Exact || math.Abs(r.Ratio-ratio) > 0.08*ratio || math.Abs(r.Offset-20) > 15 || r.MeanError == 0 {
			t.Errorf("ratio %v: learned %+v", ratio, r)
		}
		beyond := 0
		for range 1000 {
			counted := 10 + rng.IntN(4000) // twice as long as any row before
			tokens, within, _ := c.Estimate(counted)
			if math.Abs(float64(tokens-noisy(counted))) > float64(within) {
				beyond++
			}
		}
		if beyond > 150 {
			t.Errorf("ratio %v: %d of 1000 rows are further off than the bound for 19 of 20", ratio, beyond)
		}
	}
}

func TestCalibration_OddReports(t *testing.T) {
	t.Parallel()
	rng := source()
	var c Calibration
	observe(&c, rng, 200, func(n int) int {
		switch rng.IntN(10) {
		case 0:
			return 0 // none
		case 1:
			return 1 + rng.IntN(5) // only tokens that were not cached
		}
		return n + 4
	})
	r := c.Report()
	if !r.Exact || r.Offset != 4 || r.Ratio != 1 || r.Ignored == 0 || r.Rows+r.Ignored != 200 {
		t.Errorf("learned %+v", r)
	}
	if r.MaxError < 100 {
		t.Errorf("the odd reports do not show in the errors: %+v", r)
	}
	for _, pair := range [][2]int{{10, 0}, {10, -1}, {-1, 10}} {
		if diff, ok := c.Observe(pair[0], pair[1]); ok || diff != 0 {
			t.Errorf("%v was accepted, with a difference of %d", pair, diff)
		}
	}
	if diff, ok := c.Observe(0, 3); !ok || diff != 3 {
		t.Errorf("an empty row was not accepted: %d, %t", diff, ok)
	}
}

func TestCalibration_KnowsNothingAtFirst(t *testing.T) {
	t.Parallel()
	var c Calibration
	for i := range minRows {
		if tokens, within, learned := c.Estimate(50); tokens != 50 || within != 0 || learned {
			t.Fatalf("after %d rows: estimate %d ± %d, %t", i, tokens, within, learned)
		}
		if r := c.Report(); r.Exact || r.Ratio != 1 || i > 0 && r.MeanError != 9 {
			t.Fatalf("after %d rows: %+v", i, r)
		}
		c.Observe(50, 59) // all have the same length
	}
	if tokens, _, learned := c.Estimate(50); tokens != 59 || !learned {
		t.Errorf("estimate %d, %t", tokens, learned)
	}
}

// Rows of equal length give no ratio, and must not break the fit.
func TestCalibration_RowsOfOneLength(t *testing.T) {
	t.Parallel()
	rng := source()
	var c Calibration
	for range 100 {
		c.Observe(50, 60+rng.IntN(9))
	}
	if r := c.Report(); r.Exact || r.Ratio != 1 || r.Offset < 10 || r.Offset > 18 || r.Within > 8 {
		t.Errorf("learned %+v", r)
	}
}

func TestCalibration_ForgetsAServerThatChanged(t *testing.T) {
	t.Parallel()
	rng := source()
	var c Calibration
	observe(&c, rng, 1000, func(n int) int { return n + 60 })
	observe(&c, rng, window+refitEvery, func(n int) int { return n })
	if r := c.Report(); !r.Exact || r.Offset != 0 || r.MaxError != 0 {
		t.Errorf("after a restart: %+v", r)
	}
}

func TestCalibration_Concurrent(t *testing.T) {
	t.Parallel()
	var c Calibration
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for n := range 200 {
				c.Observe(n, n+2)
				c.Estimate(n)
				c.Report()
			}
		})
	}
	wg.Wait()
	if r := c.Report(); r.Rows != 1600 || !r.Exact || r.Offset != 2 {
		t.Errorf("learned %+v", r)
	}
}

func BenchmarkObserve(b *testing.B) {
	rng := source()
	var c Calibration
	for i := range b.N {
		c.Observe(i%1000, i%1000+rng.IntN(50)) // all different, so that the slow fit is used
	}
}
