package prompt

import (
	"math"
	"math/rand/v2"
	"testing"
)

// observe passes rows of 10 to 2000 tokens to a calibration.
func observe(c *Calibration, rng *rand.Rand, rows int, used func(counted int) int) {
	for range rows {
		counted := 10 + int(1990*math.Pow(rng.Float64(), 3)) // most are short
		c.AddSample(counted, used(counted))
	}
}

func source() *rand.Rand { return rand.New(rand.NewPCG(7, 11)) }

// Each case observes rows and then estimates a row of 1000 tokens.
func TestCalibration(t *testing.T) {
	t.Parallel()
	noisy := func(rng *rand.Rand, ratio float64) func(int) int {
		return func(n int) int { return int(ratio*float64(n)*(1+0.04*rng.NormFloat64()) + 20) }
	}
	for name, tt := range map[string]struct {
		observe     func(c *Calibration, rng *rand.Rand)
		least, most int     // estimate
		wrong       float64 // least mean error; 0 for none
	}{
		"nothing":            {func(*Calibration, *rand.Rand) {}, 1000, 1000, 0},
		"too few rows":       {func(c *Calibration, rng *rand.Rand) { observe(c, rng, minRows-1, func(n int) int { return n + 9 }) }, 1000, 1000, 9},
		"enough rows":        {func(c *Calibration, rng *rand.Rand) { observe(c, rng, minRows, func(n int) int { return n + 9 }) }, 1009, 1009, 9},
		"the right template": {func(c *Calibration, rng *rand.Rand) { observe(c, rng, 100, func(n int) int { return n }) }, 1000, 1000, 0},
		"a ratio below one":  {func(c *Calibration, rng *rand.Rand) { observe(c, rng, 200, noisy(rng, 0.6)) }, 570, 670, 1},
		"a ratio above one":  {func(c *Calibration, rng *rand.Rand) { observe(c, rng, 200, noisy(rng, 2.5)) }, 2400, 2640, 1},
		"rows of one length": {func(c *Calibration, rng *rand.Rand) {
			for range 100 {
				c.AddSample(50, 60+rng.IntN(9))
			}
		}, 1010, 1018, 1},
		"a server that changed": {func(c *Calibration, rng *rand.Rand) {
			observe(c, rng, 1000, func(n int) int { return n + 60 })
			observe(c, rng, window+refitEvery, func(n int) int { return n })
		}, 1000, 1000, 0},
		"odd reports": {func(c *Calibration, rng *rand.Rand) {
			c.AddSample(-1, 10)
			observe(c, rng, 200, func(n int) int {
				switch rng.IntN(10) {
				case 0:
					return -rng.IntN(2) // none
				case 1:
					return 1 + rng.IntN(5) // only tokens that were not cached
				}
				return n + 4
			})
		}, 1004, 1004, 4},
	} {
		var c Calibration
		tt.observe(&c, source())
		if got := c.Estimate(1000); got < tt.least || got > tt.most {
			t.Errorf("%s: %d tokens, want %d to %d", name, got, tt.least, tt.most)
		}
		if off, ok := c.MeanError(); off < tt.wrong || tt.wrong == 0 && off > 0 || ok != (name != "nothing") {
			t.Errorf("%s: a mean error of %v tokens (known: %t), want at least %v", name, off, ok, tt.wrong)
		}
	}
}

func BenchmarkObserve(b *testing.B) {
	rng := source()
	var c Calibration
	for i := range b.N {
		c.AddSample(i%1000, i%1000+rng.IntN(50)) // all different, so that the slow fit is used
	}
}
