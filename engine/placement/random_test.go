package placement_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/rowmill/rowmill/engine/placement"
)

// randomState returns any state of a cluster, also one that no history leads to.
func randomState(r *rand.Rand) ([]placement.Node, []placement.Demand, placement.Rules) {
	span := func(d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }
	ago := func() time.Time {
		if r.IntN(4) == 0 {
			return time.Time{}
		}
		return now.Add(time.Minute - span(3*time.Hour))
	}
	var nodes []placement.Node
	for n := range r.IntN(4) {
		node := placement.Node{ID: fmt.Sprintf("n%d", n), GPUs: r.Perm(r.IntN(9))}
		free := slices.Clone(node.GPUs)
		for i := range r.IntN(10) {
			s := placement.Server{
				Name: fmt.Sprintf("s%d-%d", n, i), GPUs: r.IntN(5), Since: ago(), IdleSince: ago(), RetryAt: ago(),
				Load: span(5 * time.Minute), Wake: time.Duration(r.IntN(2)) * span(time.Minute), Rate: 1000 * r.Float64(), Idle: span(2 * time.Hour),
				Phase: []placement.Phase{stopped, loading, running, sleeping, stopping}[r.IntN(5)],
				Mode:  []placement.Mode{"", placement.Auto, placement.Auto, placement.On, placement.Off}[r.IntN(5)],
			}
			for range 1 + r.IntN(2) {
				s.Models = append(s.Models, fmt.Sprintf("m%d", r.IntN(8)))
			}
			switch {
			case s.Phase == sleeping:
				s.Wake++
				s.On = slices.Clone(node.GPUs[:min(s.GPUs, len(node.GPUs))])
			case s.Phase != stopped && s.GPUs > len(free):
				s.Phase = stopped
			case s.Phase != stopped:
				s.On, free = slices.Clone(free[:s.GPUs]), free[s.GPUs:]
			}
			node.Servers = append(node.Servers, s)
		}
		nodes = append(nodes, node)
	}
	var demand []placement.Demand
	for m := range 9 {
		demand = append(demand, placement.Demand{
			Model: fmt.Sprintf("m%d", m), Urgent: r.IntN(5) == 0, Since: ago(), Tokens: float64(r.IntN(3)) * 1e6 * r.Float64(),
		})
	}
	return nodes, demand, placement.Rules{Hold: span(time.Hour), MaxWait: span(3 * time.Hour)}
}

// shuffled returns the same nodes in another order.
func shuffled(r *rand.Rand, nodes []placement.Node) []placement.Node {
	nodes = slices.Clone(nodes)
	for i := range nodes {
		s := slices.Clone(nodes[i].Servers)
		r.Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] })
		nodes[i].Servers = s
	}
	r.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
	return nodes
}

func checkState(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 2))
	nodes, demand, rules := randomState(r)
	actions := placement.Decide(now, nodes, demand, rules)
	checkActions(t, now, nodes, actions)
	r.Shuffle(len(demand), func(i, j int) { demand[i], demand[j] = demand[j], demand[i] })
	if again := placement.Decide(now, shuffled(r, nodes), demand, rules); !reflect.DeepEqual(actions, again) {
		t.Fatalf("seed %d: got %v, then %v for the same state", seed, actions, again)
	}
}

func TestRandomStates(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3000) {
		checkState(t, seed)
	}
}

// If no rows arrive or end, the actions end: nothing goes back and forth.
func TestActionsEnd(t *testing.T) {
	t.Parallel()
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 3))
		w := &world{t: t, truth: map[string]truth{}}
		var demand []placement.Demand
		w.nodes, demand, w.rules = randomState(r)
		w.rules.MaxWait = 1000 * time.Hour
		for _, d := range demand {
			m := w.model(d.Model)
			m.left, m.urgent = 1e12*d.Tokens, d.Urgent && d.Tokens > 0
		}
		w.start = now
		w.each(func(s *placement.Server) {
			w.truth[s.Name] = truth{load: s.Load.Seconds(), wake: s.Wake.Seconds(), drain: 20 * r.Float64(), rate: s.Rate}
		})
		w.run(4 * 3600)
		if len(w.log) > 0 && w.logged > 3*3600 {
			t.Errorf("seed %d: an action after %.0f s: %v", seed, w.logged, w.log)
		}
	}
}

func BenchmarkDecide(b *testing.B) {
	for _, x := range []mix{{nodes: 1, models: 12}, {nodes: 1, models: 12, copies: 8}, {nodes: 64, models: 12}} {
		b.Run(fmt.Sprintf("%dnodes-%dcopies", x.nodes, x.copies), func(b *testing.B) {
			w := x.world(b, 1)
			w.each(func(s *placement.Server) { s.Phase = stopped })
			w.arrive()
			for b.Loop() {
				placement.Decide(epoch, w.nodes, w.demand(), w.rules)
			}
		})
	}
}
