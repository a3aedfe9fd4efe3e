package placement_test

import (
	"cmp"
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
	nodes, gpus, models int
	copies              int     // number of servers of every third model
	span                float64 // arrivals are spread over this time in seconds; 0: all work is there from the start
	wrong               float64 // share by which the expected rates may be wrong
}

// simple is the mix of the offline optimum.
var simple = mix{nodes: 1, gpus: 8, models: 12}

// world returns a world of the mix.
func (x mix) world(t testing.TB, seed uint64) *world {
	r := rand.New(rand.NewPCG(seed, 0))
	w := &world{t: t, truth: map[string]truth{}, rules: placement.Rules{Hold: 10 * time.Minute, MaxWait: 1000 * time.Hour}}
	for n := range x.nodes {
		node := placement.Node{ID: string(rune('a' + n))}
		for g := range x.gpus {
			node.GPUs = append(node.GPUs, g)
		}
		w.nodes = append(w.nodes, node)
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
	slices.SortFunc(w.arrivals, func(a, b arrival) int { return cmp.Compare(a.at, b.at) })
	return w
}

// bound returns a lower bound of the makespan: the GPU time of all models, and the time of
// each model on all its servers.
func (w *world) bound() float64 {
	gpus, area, bound := 0, 0.0, 0.0
	for _, n := range w.nodes {
		gpus += len(n.GPUs)
	}
	for i, a := range w.arrivals {
		var rate, best float64
		var load float64
		w.each(func(s *placement.Server) {
			if s.Models[0] == a.model {
				tr := w.truth[s.Name]
				rate += tr.rate
				load = tr.load
				best = float64(s.GPUs) * (tr.load + a.tokens/tr.rate)
			}
		})
		bound = max(bound, a.at+load+a.tokens/rate)
		area += best
		_ = i
	}
	// Work that arrives after a time needs the GPUs after it.
	bound = max(bound, area/float64(gpus))
	return bound
}

func report(t *testing.T, x mix, count uint64) (worst float64) {
	var sum float64
	over, starts := 0, 0
	for seed := range count {
		w := x.world(t, seed)
		bound := w.bound()
		got := w.run(1e7)
		r := got / bound
		sum += r
		worst = max(worst, r)
		if r > 1.3 {
			over++
			t.Logf("seed %d: %.3f bound %.0f got %.0f starts %d", seed, r, bound, got, w.starts)
		}
		starts += w.starts
	}
	t.Logf("%+v: worst %.3f mean %.3f over %d starts %.1f", x, worst, sum/float64(count), over, float64(starts)/float64(count))
	return worst
}

func TestReport(t *testing.T) {
	for _, x := range []mix{
		{nodes: 1, gpus: 8, models: 12, copies: 8},
		{nodes: 2, gpus: 8, models: 12},
		{nodes: 1, gpus: 8, models: 12, wrong: 0.5},
		{nodes: 1, gpus: 8, models: 12, span: 3600},
	} {
		report(t, x, 30)
	}
}

func (w *world) rigids() []rigid {
	var all []rigid
	for _, a := range w.arrivals {
		w.each(func(s *placement.Server) {
			if s.Models[0] == a.model {
				tr := w.truth[s.Name]
				run := tr.load + a.tokens/tr.rate
				all = append(all, rigid{gpus: s.GPUs, run: run, free: run + tr.drain})
			}
		})
	}
	return all
}

func TestMixesNearOptimum(t *testing.T) {
	worst, sum, proven := 0.0, 0.0, 0
	over := 0
	for seed := range uint64(200) {
		w := simple.world(t, seed)
		jobs := w.rigids()
		got := w.run(1e7)
		opt, ok := solve(jobs, got, 100_000)
		if ok {
			proven++
		}
		ratio := got / opt
		if !ok {
			bound, ok := solve(jobs, got/1.1, 100_000)
			if !ok || bound < got/1.1 {
				over++
				t.Logf("seed %d: %.3f (%v) %.0f s, %d starts", seed, ratio, ok, got, w.starts)
			}
			ratio = min(ratio, 1.1)
		}
		sum += ratio
		worst = max(worst, ratio)
		if w.starts != 12 {
			t.Errorf("seed %d: starts %d", seed, w.starts)
		}
	}
	t.Logf("worst %.3f mean %.4f proven %d over %d", worst, sum/200, proven, over)
}
