package placement_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rowmill/rowmill/engine/placement"
)

// endless returns a world of one node with 4 GPUs whose models have more rows than they
// can run. A server needs one of the numbers of GPUs in widths.
func endless(t *testing.T, seed uint64, models int, widths []int) *world {
	r := rand.New(rand.NewPCG(seed, 1))
	w := &world{t: t, truth: map[string]truth{}, rules: placement.Rules{Hold: 10 * time.Minute, MaxWait: 30 * time.Minute}}
	n := placement.Node{ID: "a", GPUs: []int{0, 1, 2, 3}}
	for i := range models {
		name := fmt.Sprintf("m%02d", i)
		s := placement.Server{Name: name, Models: []string{name}, GPUs: widths[r.IntN(len(widths))]}
		tr := truth{load: 30 + 270*r.Float64(), drain: 20 * r.Float64(), rate: 1000}
		if r.IntN(3) == 0 {
			tr.wake = 5
		}
		s.Load, s.Wake, s.Rate = seconds(tr.load), seconds(tr.wake), tr.rate
		w.truth[name] = tr
		n.Servers = append(n.Servers, s)
		w.arrivals = append(w.arrivals, arrival{at: 7200 * r.Float64() * float64(i%2), model: name, tokens: 1e12})
	}
	w.nodes = []placement.Node{n}
	sortArrivals(w.arrivals)
	return w
}

// No model waits longer than Decide promises, although all models always have rows.
func TestNoModelStarves(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		models, widths := 3+int(seed/2), []int{1, 1, 2, 4}
		if seed%2 == 0 {
			widths = []int{4} // the models take turns
		}
		w := endless(t, seed, models, widths)
		w.run(12 * 3600)
		var load float64
		for _, tr := range w.truth {
			load = max(load, tr.load)
		}
		turn := load + w.rules.Hold.Seconds() + 20
		bound := w.rules.MaxWait.Seconds() + float64(models)*turn + load
		var longest float64
		for _, m := range w.models {
			if m.waiting >= 0 {
				m.longest = max(m.longest, w.now-m.waiting)
			}
			longest = max(longest, m.longest)
		}
		if longest > bound {
			t.Errorf("seed %d: a model waited %.0f s, want at most %.0f s", seed, longest, bound)
		}
		t.Logf("seed %d: %d models, %d starts, longest wait %.0f s, bound %.0f s", seed, models, w.starts, longest, bound)
	}
}

// Urgent rows start within the load and 30 s, although all GPUs have other rows.
func TestUrgentRowsStartSoon(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		w := endless(t, seed, 8, []int{1, 1, 2, 4})
		for i := range 10 {
			w.arrivals = append(w.arrivals, arrival{at: 10_000 + 1_000*float64(i), model: "urgent", tokens: 1000})
		}
		s := placement.Server{Name: "urgent", Models: []string{"urgent"}, GPUs: 1 + int(seed%4), Load: time.Minute, Rate: 1000}
		w.truth["urgent"] = truth{load: 60, drain: 20, rate: 1000}
		w.nodes[0].Servers = append(w.nodes[0].Servers, s)
		for i := range w.arrivals {
			w.arrivals[i].urgent = w.arrivals[i].model == "urgent"
		}
		w.run(21_000)
		if m := w.model("urgent"); m.longest > 90 || m.longest < 60 || m.left > 0 {
			t.Errorf("seed %d: urgent rows waited %.0f s, want 60 to 90 s", seed, m.longest)
		}
	}
}
