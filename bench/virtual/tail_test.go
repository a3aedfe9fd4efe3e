package virtual

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowmill/rowmill/engine/sim/batching"
	"github.com/rowmill/rowmill/internal/must"
)

// tailRows returns rows with answers of lognormal length (median 134 tokens, spread
// 1.1, at most 4,096). With hints, the length of the prompt predicts the length of the
// answer, with an error of spread 0.8; without hints nothing does.
func tailRows(n int, seed uint64, hints bool) []row {
	random := rand.New(rand.NewPCG(seed, 1))
	rows := make([]row, n)
	for i := range rows {
		z := random.NormFloat64()
		output := math.Exp(4.9 + 1.1*z)
		guess := random.NormFloat64() * 0.8
		if hints {
			guess += 1.1 * z
		}
		rows[i] = row{
			prompt: int(min(max(300*math.Exp(0.5*guess-0.1), 30), 4000)),
			output: int(min(max(output, 1), 4096)),
		}
	}
	return rows
}

// alone returns the makespan of rows on GPUs without Rowmill. Each GPU with a free slot
// takes the next row in the given order.
func alone(t testing.TB, c batching.Config, gpus int, rows []row) batching.Result {
	t.Helper()
	next := 0
	result := must.Get(batching.Simulate(c, gpus, func(int) *batching.Request {
		if next == len(rows) {
			return nil
		}
		next++
		return rows[next-1].request()
	}, slots+32))(t)
	return result
}

func longestFirst(rows []row) []row {
	return slices.SortedFunc(slices.Values(rows), func(a, b row) int { return cmp.Compare(b.output, a.output) })
}

// rowmillAlone returns the time of a job on an idle node.
func rowmillAlone(t *testing.T, c batching.Config, gpus int, rows []row, dedup bool) (took time.Duration, stats batching.Stats) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, c, gpus)
		n.dedup = dedup
		defer n.close()
		time.Sleep(2 * time.Second) // until the node has found the engines
		begun := time.Now()
		took = n.await(n.submit(rows, 1)).Sub(begun)
		stats = n.stats()
	})
	return took, stats
}

// middle returns the median.
func middle(of []float64) float64 {
	sorted := slices.Sorted(slices.Values(of))
	return sorted[len(sorted)/2]
}

// settled reports whether the median of the wanted number of values is within the bound
// for all possible remaining values. At full size all values are measured, for a table.
func settled(values []float64, least int, bound float64, full bool) bool {
	within := 0
	for _, v := range values {
		if v <= bound {
			within++
		}
	}
	return within > max(len(values), least)/2 && (len(values) >= least || !full)
}

// TestTail is B3: a job's time compared with an oracle that knows the length of each
// answer and sends the longest first.
func TestTail(t *testing.T) {
	full := measures(t)
	const (
		gpus  = 4
		bound = 1.10
		// A single seed varies by a tenth, and one in ten by a quarter, with the order
		// in which goroutines run. If the median of a few seeds is above the bound, the
		// median of more seeds counts.
		most = 11
	)
	profile := must.Get(batching.FindProfile("llama-3.1-8b/h100"))(t)
	c := batching.Config{Profile: profile, MaxSeqs: slots, Seed: 1}
	sizes, seeds := []int{1500}, []uint64{11, 12, 13}
	if full {
		sizes, seeds = []int{1500, 3000, 12000}, []uint64{11, 12, 13, 14, 15}
	}
	orders := []struct {
		name string
		sort func([]row) []row
	}{
		{"random", slices.Clone[[]row]},
		{"descending", longestFirst},
		{"ascending", func(rows []row) []row {
			rows = longestFirst(rows)
			slices.Reverse(rows)
			return rows
		}},
	}
	for _, hints := range []bool{true, false} {
		for _, size := range sizes {
			for _, order := range orders {
				var ratios, arrival []float64
				for n := 0; n < most && !settled(ratios, len(seeds), bound, full); n++ {
					rows := tailRows(gpus*size, seeds[0]+uint64(n), hints)
					oracle := alone(t, c, gpus, longestFirst(rows)).Makespan
					arrival = append(arrival, alone(t, c, gpus, order.sort(rows)).Makespan.Seconds()/oracle.Seconds())
					took, _ := rowmillAlone(t, c, gpus, order.sort(rows), false)
					ratios = append(ratios, took.Seconds()/oracle.Seconds())
				}
				slices.Sort(ratios)
				slices.Sort(arrival)
				t.Logf("%d rows per GPU, %s, hints %v: %.3f (%.3f–%.3f) of the oracle; in the order of arrival %.3f (%.3f–%.3f)",
					size, order.name, hints, ratios[len(ratios)/2], ratios[0], ratios[len(ratios)-1],
					arrival[len(arrival)/2], arrival[0], arrival[len(arrival)-1])
				if got := middle(ratios); got > bound {
					t.Errorf("%.3f of the oracle's time, want at most %.2f", got, bound)
				}
			}
		}
	}
}
