package virtual

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/rowmill/rowmill/engine/sim/batching"
	"github.com/rowmill/rowmill/internal/must"
)

// prefixRows returns rows that start with one of several prefixes of 1,536 tokens, in
// random order.
func prefixRows(n, prefixes int, seed uint64) []row {
	random := rand.New(rand.NewPCG(seed, 2))
	rows := make([]row, n)
	for i := range rows {
		rows[i] = row{
			prefix: random.IntN(prefixes), prefixTokens: 1536,
			prompt: 1536 + 40 + random.IntN(120), output: 20 + random.IntN(80),
		}
	}
	return rows
}

// byPrefix returns the best order: all rows of a prefix on one GPU. Each GPU alternates
// between eight prefixes, so that no prefix is computed twice because its rows arrive
// at the same time.
func byPrefix(t testing.TB, c batching.Config, gpus int, rows []row) batching.Result {
	t.Helper()
	rows = slices.SortedStableFunc(slices.Values(rows), func(a, b row) int { return cmp.Compare(a.prefix, b.prefix) })
	var groups [][]row
	for i, r := range rows {
		if i == 0 || rows[i-1].prefix != r.prefix {
			groups = append(groups, nil)
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], r)
	}
	own := make([][][]row, gpus)
	turn := make([]int, gpus)
	result := must.Get(batching.Simulate(c, gpus, func(gpu int) *batching.Request {
		for len(own[gpu]) < 8 && len(groups) > 0 {
			own[gpu], groups = append(own[gpu], groups[0]), groups[1:]
		}
		from := gpu
		if len(own[gpu]) == 0 { // help the GPU with the most prefixes left
			for i := range own {
				if len(own[i]) > len(own[from]) {
					from = i
				}
			}
			if len(own[from]) == 0 {
				return nil
			}
		}
		turn[from] = (turn[from] + 1) % len(own[from])
		group := own[from][turn[from]]
		r := group[0]
		if own[from][turn[from]] = group[1:]; len(group) == 1 {
			own[from] = slices.Delete(own[from], turn[from], turn[from]+1)
		}
		return r.request()
	}, slots+32))(t)
	return result
}

// TestPrefix is B4: how many prompt tokens are computed for shared prefixes, compared with
// the best order and the order of arrival, for shuffled rows and for rows that come grouped
// by prefix.
func TestPrefix(t *testing.T) {
	full := measures(t)
	const gpus = 2
	profile := must.Get(batching.FindProfile("llama-3.1-8b/h100"))(t)
	c := batching.Config{Profile: profile, MaxSeqs: slots, Seed: 1}
	type size struct {
		n, prefixes int
		grouped     bool
		most        float64 // computed tokens and time, relative to the best order
	}
	// A worker has 1,700 rows at a time; more rows are partitioned by prefix. This few
	// rows make six partitions: for 800 prefixes the result depends on their hashes and
	// the schedule, about 1.06 of the best order, and 2.5 without partitions.
	sizes, seeds := []size{{2000, 400, false, 1.4}, {3600, 800, false, 1.15}, {6000, 300, true, 1.05}}, []uint64{21}
	if full {
		sizes, seeds = nil, []uint64{21, 22, 23}
		for _, prefixes := range []int{5, 50, 500, 5000} {
			sizes = append(sizes, size{10_000, prefixes, false, 1.05}, size{10_000, prefixes, true, 1.05})
		}
	}
	for _, s := range sizes {
		var tokens, spans, arrivalTokens, arrivalSpans []float64
		for _, seed := range seeds {
			rows := prefixRows(s.n, s.prefixes, seed)
			if s.grouped {
				slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(a.prefix, b.prefix) })
			}
			best, arrival := byPrefix(t, c, gpus, rows), alone(t, c, gpus, rows)
			took, stats := rowmillAlone(t, c, gpus, rows, false)
			tokens = append(tokens, float64(stats.Computed)/float64(best.Computed))
			spans = append(spans, took.Seconds()/best.Makespan.Seconds())
			arrivalTokens = append(arrivalTokens, float64(arrival.Computed)/float64(best.Computed))
			arrivalSpans = append(arrivalSpans, arrival.Makespan.Seconds()/best.Makespan.Seconds())
		}
		t.Logf("%d rows, %d prefixes, grouped %v: prompt tokens computed %.3f of the best order, makespan %.3f; in the order of arrival %.3f and %.3f",
			s.n, s.prefixes, s.grouped, middle(tokens), middle(spans), middle(arrivalTokens), middle(arrivalSpans))
		if middle(tokens) > middle(arrivalTokens) || middle(tokens) > s.most || middle(spans) > s.most {
			t.Errorf("prompt tokens computed %.3f of the best order, time %.3f; at most %.2f, and tokens at most those of arrival, %.3f",
				middle(tokens), middle(spans), s.most, middle(arrivalTokens))
		}
	}
}
