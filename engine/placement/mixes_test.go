package placement_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/rowmill/rowmill/engine/placement"
)

// A mix describes random worlds.
type mix struct {
	nodes, models int     // each node has 8 GPUs
	copies        int     // number of servers of every third model
	span          float64 // arrivals are spread over this time in seconds; 0: all work is there from the start
	wrong         float64 // share by which the expected rates may be wrong
}

// world returns a world of the mix.
func (x mix) world(t testing.TB, seed uint64) *world {
	r := rand.New(rand.NewPCG(seed, 0))
	w := &world{t: t, truth: map[string]truth{}, rules: placement.Rules{Hold: 10 * time.Minute, MaxWait: 1000 * time.Hour}}
	for n := range x.nodes {
		w.nodes = append(w.nodes, node(fmt.Sprintf("n%02d", n), 8))
	}
	for i := range x.models {
		name := fmt.Sprintf("m%02d", i)
		s := placement.Server{Models: []string{name}, GPUs: []int{1, 1, 1, 1, 2, 2, 4}[r.IntN(7)]}
		tr := truth{load: 30 + 270*r.Float64(), drain: 20 * r.Float64(), rate: 500 * math.Exp(2*r.Float64())}
		s.Load, s.Rate = seconds(tr.load), tr.rate
		// Work of 1 to 100 minutes for 95 % of the models.
		work := tr.rate * 600 * math.Exp(r.NormFloat64()*math.Log(10)/1.96)
		copies := 1
		if x.copies > 0 && i%3 == 0 {
			copies, s.GPUs, work = x.copies, 1, 3*work
		}
		if x.wrong > 0 {
			s.Rate *= 1 + x.wrong*(2*r.Float64()-1)
			w.learn = 60
		}
		for n := range w.nodes {
			for k := range copies {
				s.Name = fmt.Sprintf("%s-%d-%d", name, n, k)
				w.truth[s.Name] = tr
				w.nodes[n].Servers = append(w.nodes[n].Servers, s)
			}
		}
		w.arrivals = append(w.arrivals, arrival{at: x.span * r.Float64(), model: name, tokens: work})
	}
	sortArrivals(w.arrivals)
	return w
}

// bound returns a lower bound of the makespan: the GPU time of the models that arrive at a
// time or later, and the time of each model on all its servers.
func (w *world) bound() float64 {
	gpus, area, bound := 0.0, 0.0, 0.0
	for _, n := range w.nodes {
		gpus += float64(len(n.GPUs))
	}
	for _, a := range slices.Backward(w.arrivals) {
		rate, load, least := 0.0, 0.0, 0.0
		w.each(func(s *placement.Server) {
			if tr := w.truth[s.Name]; s.Models[0] == a.model {
				rate, load, least = rate+tr.rate, tr.load, float64(s.GPUs)*(tr.load+a.tokens/tr.rate)
			}
		})
		area += least
		bound = max(bound, a.at+load+a.tokens/rate, a.at+area/gpus)
	}
	return bound
}

// rigids returns the jobs of an offline schedule.
func (w *world) rigids() []rigid {
	var all []rigid
	for _, a := range w.arrivals {
		tr := w.truth[a.model+"-0-0"]
		run := tr.load + a.tokens/tr.rate
		all = append(all, rigid{gpus: w.server(a.model + "-0-0").GPUs, run: run, free: run + tr.drain})
	}
	return all
}

// If all work is known, the makespan is near that of the best offline schedule, which knows
// all times, and each model starts once.
func TestNearOptimum(t *testing.T) {
	t.Parallel()
	const mixes, allowed = 200, 1.10
	worst, sum := 0.0, 0.0
	for seed := range uint64(mixes) {
		w := mix{nodes: 1, models: 12}.world(t, seed)
		jobs := w.rigids()
		end := w.run(math.Inf(1))
		best, proven := solve(jobs, end, 2000)
		if !proven { // a smaller claim needs a smaller search
			best, proven = solve(jobs, end/allowed, 100_000)
		}
		ratio := end / best
		if worst, sum = max(worst, ratio), sum+ratio; ratio > allowed+1e-9 || !proven {
			t.Errorf("seed %d: %.0f s, best %.0f s, proven %t", seed, end, best, proven)
		}
		if w.starts != len(jobs) {
			t.Errorf("seed %d: %d starts of %d servers", seed, w.starts, len(jobs))
		}
	}
	t.Logf("makespan ÷ optimum: mean at most %.3f, worst at most %.3f", sum/mixes, worst)
}

// Other mixes are compared with a lower bound, which no schedule may reach.
func TestNearLowerBound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		mix     mix
		allowed float64
	}{
		{"copies", mix{nodes: 1, models: 12, copies: 8}, 1.5},
		{"two nodes", mix{nodes: 2, models: 12}, 1.5},
		// Any list schedule needs up to twice the optimum, also if work arrives over time
		// and its times are unknown (Naroska and Schwiegelshohn 2002).
		{"wrong rates", mix{nodes: 1, models: 12, wrong: 0.5}, 2},
		{"arrivals", mix{nodes: 1, models: 12, span: 3600}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			const mixes = 25
			worst, sum, starts := 0.0, 0.0, 0
			for seed := range uint64(mixes) {
				w := c.mix.world(t, seed)
				bound := w.bound()
				ratio := w.run(math.Inf(1)) / bound
				worst, sum, starts = max(worst, ratio), sum+ratio, starts+w.starts
				if ratio > c.allowed {
					t.Errorf("seed %d: %.3f of the lower bound, want at most %.2f", seed, ratio, c.allowed)
				}
			}
			t.Logf("makespan ÷ lower bound: mean %.3f, worst %.3f, %.1f starts", sum/mixes, worst, float64(starts)/mixes)
		})
	}
}
