package virtual

import (
	"slices"
	"testing"
	"time"

	"github.com/rowmill/rowmill/engine/sim/batching"
	"github.com/rowmill/rowmill/internal/must"
)

// differentRows returns the rows of the tail test, each with a different beginning.
func differentRows(n int, seed uint64) []row {
	rows := tailRows(n, seed, true)
	for i := range rows {
		rows[i].prefix, rows[i].prefixTokens = i, 3
	}
	return rows
}

// everyTenth lists each row once in order, and after each row nine repeats of earlier
// rows.
func everyTenth(rows []row) (repeated []row) {
	for i := range rows {
		repeated = append(repeated, rows[i])
		for j := range 9 {
			repeated = append(repeated, rows[(i*7919+j*104_729)%(i+1)])
		}
	}
	return repeated
}

// inNoOrder lists each row ten times in random order.
func inNoOrder(rows []row) (repeated []row) {
	for i := range 10 * len(rows) {
		repeated = append(repeated, rows[i*7_368_787%(10*len(rows))/10])
	}
	return repeated
}

// repeats are orders of jobs in which nine of ten rows are repeats.
var repeats = map[string]func([]row) []row{"every tenth is new": everyTenth, "each ten times, in no order": inNoOrder}

// equalRows runs a job with these rows.
func equalRows(t *testing.T, rows []row, dedup bool) (took time.Duration, stats batching.Stats) {
	t.Helper()
	profile := must.Get(batching.FindProfile("llama-3.1-8b/h100"))(t)
	return rowmillAlone(t, batching.Config{Profile: profile, MaxSeqs: slots, Seed: 1}, equalGPUs, rows, dedup)
}

const equalGPUs = 4

// Each different row is sent once.
func TestEqualRowsAreSentOnce(t *testing.T) {
	for name, repeat := range repeats {
		rows := differentRows(equalGPUs*500, 11)
		if _, stats := equalRows(t, repeat(rows), true); int(stats.Finished) != len(rows) {
			t.Errorf("%s: %d requests for %d different rows", name, stats.Finished, len(rows))
		}
	}
}

// TestEqualRows is B5: the time of a job in which nine of ten rows are repeats,
// compared with a job of only the different rows.
func TestEqualRows(t *testing.T) {
	full := measures(t)
	const (
		bound = 1.20
		// Both times vary by a tenth per seed, as in the tail test. As there, use the
		// median of more seeds if the median of a few is above the bound.
		most = 11
	)
	size, seeds := 500, []uint64{11, 12, 13}
	if full {
		size, seeds = 2500, []uint64{11, 12, 13, 14, 15}
	}
	for name, repeat := range repeats {
		var ratios []float64
		for k := 0; k < most && !settled(ratios, len(seeds), bound, full); k++ {
			rows := differentRows(equalGPUs*size, seeds[0]+uint64(k))
			alone, _ := equalRows(t, rows, false)
			took, stats := equalRows(t, repeat(rows), true)
			ratios = append(ratios, took.Seconds()/alone.Seconds())
			if int(stats.Finished) != len(rows) {
				t.Errorf("%d requests for %d different rows", stats.Finished, len(rows))
			}
		}
		got := middle(ratios)
		t.Logf("%d different rows per GPU, %s: %.3f (%.3f–%.3f) of the time of those alone", size, name, got, slices.Min(ratios), slices.Max(ratios))
		if got > bound {
			t.Errorf("%.3f of the time of the different rows alone, want at most %.2f", got, bound)
		}
	}
}
