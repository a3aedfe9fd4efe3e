package placement_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill/engine/placement"
)

// now is the time of the calls; servers began their phase two hours before.
var now = epoch.Add(100 * time.Hour)

var rules = placement.Rules{Hold: 10 * time.Minute, MaxWait: 30 * time.Minute}

// A change alters a server of a test.
type change func(*placement.Server)

// server returns a stopped server on one GPU. Its model has its name up to a dash.
func server(name string, changes ...change) placement.Server {
	model, _, _ := strings.Cut(name, "-")
	s := placement.Server{
		Name: name, Models: []string{model}, GPUs: 1, Phase: placement.Stopped, Since: now.Add(-2 * time.Hour),
		Load: 2 * time.Minute, Rate: 1000, Mode: placement.Auto,
	}
	for _, c := range changes {
		c(&s)
	}
	return s
}

func gpus(n int) change            { return func(s *placement.Server) { s.GPUs = n } }
func mode(m placement.Mode) change { return func(s *placement.Server) { s.Mode = m } }
func load(d time.Duration) change  { return func(s *placement.Server) { s.Load = d } }
func wakes(s *placement.Server)    { s.Wake = 5 * time.Second }
func since(d time.Duration) change { return func(s *placement.Server) { s.Since = now.Add(-d) } }
func idle(d, limit time.Duration) change {
	return func(s *placement.Server) { s.IdleSince, s.Idle = now.Add(-d), limit }
}

// is sets the phase and the GPUs of the process.
func is(p placement.Phase, on ...int) change {
	return func(s *placement.Server) { s.Phase, s.On, s.GPUs = p, on, len(on) }
}

func node(id string, gpus int, servers ...placement.Server) placement.Node {
	n := placement.Node{ID: id, Servers: servers}
	for g := range gpus {
		n.GPUs = append(n.GPUs, g)
	}
	return n
}

// rows returns a demand of minutes of work at 1,000 tokens per second.
func rows(model string, minutes float64) placement.Demand {
	return placement.Demand{Model: model, Tokens: minutes * 60_000}
}

func urgent(model string, minutes float64) placement.Demand {
	d := rows(model, minutes)
	d.Urgent = true
	return d
}

func waited(d placement.Demand, wait time.Duration) placement.Demand {
	d.Since = now.Add(-wait)
	return d
}

const (
	stopped  = placement.Stopped
	loading  = placement.Loading
	running  = placement.Running
	sleeping = placement.Sleeping
	stopping = placement.Stopping
)

// decide returns the actions as text: "start a [0 1]", with the node if it is not n.
func decide(t *testing.T, nodes []placement.Node, demand ...placement.Demand) []string {
	t.Helper()
	actions := placement.Decide(now, nodes, demand, rules)
	checkActions(t, now, nodes, actions)
	var all []string
	for _, a := range actions {
		text := fmt.Sprintf("%s %s", a.Do, a.Server)
		if a.Do == placement.Start {
			text += fmt.Sprint(" ", a.GPUs)
		}
		if a.Node != "n" {
			text += " on " + a.Node
		}
		all = append(all, text)
	}
	return all
}

// A decision is a state and the expected actions.
type decision struct {
	name   string
	gpus   int
	has    []placement.Server
	demand []placement.Demand
	want   []string
}

func check(t *testing.T, all []decision) {
	t.Helper()
	for _, d := range all {
		t.Run(d.name, func(t *testing.T) {
			got := decide(t, []placement.Node{node("n", d.gpus, d.has...)}, d.demand...)
			if !slices.Equal(got, d.want) {
				t.Errorf("got %q, want %q", got, d.want)
			}
		})
	}
}

type (
	servers = []placement.Server
	demands = []placement.Demand
	texts   = []string
)

func copies(n int) (all servers) {
	for i := range n {
		all = append(all, server(fmt.Sprintf("a-%d", i)))
	}
	return all
}

func TestFill(t *testing.T) {
	t.Parallel()
	check(t, []decision{
		{"a server that fits", 2, servers{server("a"), server("b")}, demands{rows("a", 60)}, texts{"start a [0]"}},
		{"no rows", 2, servers{server("a")}, demands{rows("a", 0), rows("unknown", 60)}, nil},
		{"two models", 2, servers{server("a"), server("b")}, demands{rows("a", 60), rows("b", 1)}, texts{"start a [0]", "start b [1]"}},
		{"the small server fits", 2, servers{server("a", gpus(3)), server("b")}, demands{rows("a", 60), rows("b", 1)}, texts{"start b [0]"}},
		{"beside a running server", 2, servers{server("a", is(running, 0)), server("b")}, demands{rows("a", 60), rows("b", 60)}, texts{"start b [1]"}},
		{"GPUs of a server that ends soon", 1, servers{server("a", is(stopping, 0), since(time.Second)), server("b")}, demands{rows("b", 60)}, nil},
		{"work for all copies", 4, copies(4), demands{rows("a", 60)}, texts{"start a-0 [0]", "start a-1 [1]", "start a-2 [2]", "start a-3 [3]"}},
		{"work for one copy", 4, copies(4), demands{rows("a", 3)}, texts{"start a-0 [0]"}},
		{"a second copy saves more than its load", 4, append(copies(2), server("a-9", is(running, 3))), demands{rows("a", 8)}, texts{"start a-0 [0]"}},
		{"a second copy saves less than its load", 4, append(copies(2), server("a-9", is(running, 3))), demands{rows("a", 5)}, nil},
		{"a running copy has no rows", 4, append(copies(2), server("a-8", is(running, 2), idle(time.Minute, 0)), server("a-9", is(running, 3))), demands{rows("a", 60)}, nil},
		{"a failed start", 1, servers{server("a", func(s *placement.Server) { s.RetryAt = now.Add(time.Minute) })}, demands{rows("a", 5)}, nil},
		{"a failed start leaves room", 1, servers{server("a", func(s *placement.Server) { s.RetryAt = now.Add(time.Minute) }), server("b")}, demands{rows("a", 60), rows("b", 5)}, texts{"start b [0]"}},
		{"a slow load", 1, servers{server("a", is(loading, 0))}, demands{rows("a", 5)}, nil},
		{"no GPUs", 0, servers{server("a", gpus(0)), server("b", is(running), idle(time.Hour, time.Minute))}, demands{rows("a", 5)}, texts{"start a []", "stop b"}},
		{"GPUs where nobody sleeps", 2, servers{server("a"), server("b", is(sleeping, 0), wakes)}, demands{rows("a", 5)}, texts{"start a [1]"}},
		{"many models of one server", 1, servers{server("a", func(s *placement.Server) { s.Models = texts{"x", "y"} })}, demands{rows("y", 5)}, texts{"start a [0]"}},
	})
}

func TestNodesShareTheWork(t *testing.T) {
	t.Parallel()
	nodes := []placement.Node{node("n2", 1, server("a-2")), node("n1", 1, server("a-1"))}
	if got, want := decide(t, nodes, rows("a", 60)), (texts{"start a-1 [0] on n1", "start a-2 [0] on n2"}); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := decide(t, nodes, rows("a", 4)), (texts{"start a-1 [0] on n1"}); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestRoomForAnotherModel(t *testing.T) {
	t.Parallel()
	a, b := server("a", is(running, 0)), server("b")
	check(t, []decision{
		{"rows stay", 1, servers{a, b}, demands{rows("a", 600), waited(rows("b", 1), 29*time.Minute)}, nil},
		{"no rows make room", 1, servers{a, b}, demands{rows("b", 1)}, texts{"stop a"}},
		{"no rows stay without need", 2, servers{a, b}, demands{rows("b", 1)}, texts{"start b [1]"}},
		{"no rows make room while loading", 1, servers{server("a", is(loading, 0)), b}, demands{rows("b", 1)}, texts{"stop a"}},
		{"idle for long", 1, servers{server("a", is(running, 0), idle(time.Hour, time.Hour)), b}, nil, texts{"stop a"}},
		{"idle for a while", 1, servers{server("a", is(running, 0), idle(59*time.Minute, time.Hour)), b}, nil, nil},
		{"idle without a limit", 1, servers{server("a", is(running, 0), idle(100*time.Hour, 0)), b}, nil, nil},
		{"idle for long in a model with rows", 1, servers{server("a", is(running, 0), idle(time.Hour, time.Hour))}, demands{rows("a", 1)}, nil},
		{"a copy without rows", 2, servers{server("a-1", is(running, 0), idle(time.Minute, 0)), server("a-2", is(running, 1)), b}, demands{rows("a", 60), rows("b", 1)}, texts{"stop a-1"}},
		{"a copy without rows for a moment", 2, servers{server("a-1", is(running, 0), idle(time.Second, 0)), server("a-2", is(running, 1)), b}, demands{rows("a", 60), rows("b", 1)}, nil},
		{"all copies without rows", 2, servers{server("a-1", is(running, 0), idle(time.Minute, 0)), server("a-2", is(running, 1), idle(time.Minute, 0)), b}, demands{rows("a", 60), rows("b", 1)}, nil},
	})
}

func TestMaxWait(t *testing.T) {
	t.Parallel()
	a, b, c := server("a", is(running, 0)), server("b"), server("c")
	long, longer := 31*time.Minute, 32*time.Minute
	check(t, []decision{
		{"makes room", 1, servers{a, b}, demands{rows("a", 600), waited(rows("b", 1), long)}, texts{"stop a"}},
		{"after Hold", 1, servers{server("a", is(running, 0), since(9*time.Minute)), b}, demands{rows("a", 600), waited(rows("b", 1), long)}, nil},
		{"after the load and Hold", 1, servers{server("a", is(loading, 0), since(9*time.Minute)), b}, demands{rows("a", 600), waited(rows("b", 1), long)}, nil},
		{"the oldest first", 1, servers{b, c}, demands{waited(rows("b", 600), long), waited(rows("c", 1), longer)}, texts{"start c [0]"}},
		{"keeps GPUs for a large server", 2, servers{server("a", is(running, 0), since(9*time.Minute)), server("b", gpus(2)), c}, demands{rows("a", 600), waited(rows("b", 1), long), rows("c", 600)}, nil},
		{"takes the GPUs of several servers", 2, servers{a, server("b", gpus(2)), server("c", is(running, 1))}, demands{rows("a", 600), waited(rows("b", 1), long), rows("c", 600)}, texts{"stop a", "stop c"}},
		{"takes the GPUs of no urgent server", 1, servers{a, b}, demands{urgent("a", 600), waited(rows("b", 1), long)}, nil},
		{"takes the GPUs of no operator", 1, servers{server("a", is(running, 0), mode(placement.On)), b}, demands{rows("a", 600), waited(rows("b", 1), long)}, nil},
		{"takes GPUs that become free", 2, servers{a, b, server("c", is(stopping, 1), since(time.Second))}, demands{rows("a", 600), waited(rows("b", 1), long)}, nil},
		{"a server loads", 2, servers{a, server("b", is(loading, 1))}, demands{rows("a", 600), waited(rows("b", 1), long)}, nil},
		{"a failed start takes nothing", 1, servers{a, server("b", func(s *placement.Server) { s.RetryAt = now.Add(time.Second) })}, demands{rows("a", 600), waited(rows("b", 1), long)}, nil},
	})
}

func TestUrgent(t *testing.T) {
	t.Parallel()
	a, b, u := server("a", is(running, 0), since(time.Second)), server("b", is(running, 1)), server("u")
	check(t, []decision{
		{"makes room at once", 1, servers{a, u}, demands{rows("a", 600), urgent("u", 1)}, texts{"stop a"}},
		{"from a loading server", 1, servers{server("a", is(loading, 0)), u}, demands{rows("a", 600), urgent("u", 1)}, texts{"stop a"}},
		{"from the server with the shortest load", 2, servers{a, server("b", is(running, 1), load(time.Minute)), u}, demands{rows("a", 600), rows("b", 600), urgent("u", 1)}, texts{"stop b"}},
		{"from the server that wakes", 2, servers{a, server("b", is(running, 1), wakes), u}, demands{rows("a", 600), rows("b", 600), urgent("u", 1)}, texts{"sleep b"}},
		{"from the server without rows", 2, servers{server("a", is(running, 0), load(time.Minute)), b, u}, demands{rows("a", 600), urgent("u", 1)}, texts{"stop b"}},
		{"from a large server", 4, servers{server("a", is(running, 0, 1, 2), load(3*time.Minute)), server("b", is(running, 3), load(50*time.Second)), server("u", gpus(3))}, demands{rows("a", 600), rows("b", 600), urgent("u", 1)}, texts{"stop a"}},
		{"from small servers", 4, servers{server("a", is(running, 0, 1), load(time.Hour)), server("b", is(running, 2)), server("c", is(running, 3)), server("u", gpus(2))}, demands{rows("a", 600), rows("b", 600), rows("c", 600), urgent("u", 1)}, texts{"stop b", "stop c"}},
		{"from one of several servers", 3, servers{server("a-1", is(running, 0)), server("a-2", is(running, 1)), server("b", is(running, 2), load(90*time.Second)), u}, demands{rows("a", 600), rows("b", 600), urgent("u", 1)}, texts{"stop a-1"}},
		{"not from an urgent server", 1, servers{a, u}, demands{urgent("a", 600), urgent("u", 1)}, nil},
		{"not from an urgent server after Hold", 1, servers{server("a", is(running, 0)), u}, demands{urgent("a", 600), waited(urgent("u", 1), time.Minute)}, nil},
		{"not from an operator", 1, servers{server("a", is(running, 0), mode(placement.On)), u}, demands{rows("a", 600), urgent("u", 1)}, nil},
		{"from an urgent server after MaxWait", 1, servers{server("a", is(running, 0)), u}, demands{urgent("a", 600), waited(urgent("u", 1), time.Hour)}, texts{"stop a"}},
		{"from an urgent server after Hold", 1, servers{a, u}, demands{urgent("a", 600), waited(urgent("u", 1), time.Hour)}, nil},
		{"the oldest first", 1, servers{server("v"), u}, demands{waited(urgent("u", 1), time.Minute), waited(urgent("v", 1), time.Second)}, texts{"start u [0]"}},
		{"before MaxWait", 1, servers{server("b"), u}, demands{waited(rows("b", 1), time.Hour), waited(urgent("u", 1), time.Second)}, texts{"start u [0]"}},
		{"on a free GPU", 2, servers{a, u, server("c")}, demands{rows("a", 600), rows("c", 600), urgent("u", 1)}, texts{"start u [1]"}},
		{"on a GPU that becomes free", 2, servers{a, server("b", is(stopping, 1), since(time.Second)), u}, demands{rows("a", 600), urgent("u", 1)}, nil},
		{"a server of the model runs", 2, servers{a, b, server("a-2")}, demands{urgent("a", 600), rows("b", 600)}, nil},
		{"a sleeping server wakes", 2, servers{a, b, server("u", is(sleeping, 1), wakes)}, demands{rows("a", 600), rows("b", 600), urgent("u", 1)}, texts{"stop b"}},
		{"two models", 2, servers{a, b, u, server("v")}, demands{rows("a", 600), rows("b", 600), urgent("u", 1), urgent("v", 1)}, texts{"stop a", "stop b"}},
	})
}

func TestSleep(t *testing.T) {
	t.Parallel()
	asleep := server("a", is(sleeping, 0), wakes)
	check(t, []decision{
		{"instead of Stop", 1, servers{server("a", is(running, 0), wakes), server("b")}, demands{rows("b", 1)}, texts{"sleep a"}},
		{"after Idle", 1, servers{server("a", is(running, 0), wakes, idle(time.Hour, time.Minute))}, nil, texts{"sleep a"}},
		{"wakes", 1, servers{asleep}, demands{rows("a", 1)}, texts{"wake a"}},
		{"stays without rows", 1, servers{asleep, server("b")}, demands{rows("b", 1)}, texts{"start b [0]"}},
		{"moves", 2, servers{asleep, server("b", is(running, 0))}, demands{rows("a", 1), rows("b", 60)}, texts{"stop a"}},
		{"does not move without room", 1, servers{asleep, server("b", is(running, 0))}, demands{rows("a", 1), rows("b", 60)}, nil},
		{"ends on a GPU with a running server", 1, servers{server("a", is(stopping, 0), since(time.Second)), server("b", is(running, 0)), server("u")}, demands{rows("b", 60), urgent("u", 1)}, texts{"stop b"}},
		{"wakes when its GPUs are free again", 2, servers{asleep, server("b", is(running, 0))}, demands{rows("a", 1)}, texts{"stop b"}},
		{"loads, so it stops", 1, servers{server("a", is(loading, 0), wakes), server("b")}, demands{rows("b", 1)}, texts{"stop a"}},
		{"one of two on a GPU", 1, servers{asleep, server("b", is(sleeping, 0), wakes)}, demands{rows("a", 60), rows("b", 1)}, texts{"wake b"}},
	})
}

func TestModes(t *testing.T) {
	t.Parallel()
	on, off := mode(placement.On), mode(placement.Off)
	check(t, []decision{
		{"on starts without rows", 1, servers{server("a", on)}, nil, texts{"start a [0]"}},
		{"on makes room", 1, servers{server("a", on), server("b", is(running, 0), since(time.Second))}, demands{urgent("b", 60)}, texts{"stop b"}},
		{"on stays", 1, servers{server("a", on, is(running, 0), idle(time.Hour, time.Minute)), server("b")}, demands{urgent("b", 60)}, nil},
		{"the first name wins", 1, servers{server("b", on), server("a", on)}, nil, texts{"start a [0]"}},
		{"the first name wins from a running server", 1, servers{server("b", on, is(running, 0)), server("a", on)}, nil, texts{"stop b"}},
		{"a name that does not fit", 1, servers{server("b", on), server("a", on, gpus(2))}, nil, texts{"start b [0]"}},
		{"on wakes", 1, servers{server("a", on, is(sleeping, 0), wakes)}, nil, texts{"wake a"}},
		{"off stops", 3, servers{server("a", off, is(running, 0), wakes), server("b", off, is(loading, 1)), server("c", off, is(sleeping, 2))}, demands{urgent("a", 60)}, texts{"stop a", "stop b", "stop c"}},
		{"off does not start", 1, servers{server("a", off)}, demands{urgent("a", 60)}, nil},
		{"off leaves room", 1, servers{server("a", off, is(running, 0)), server("b")}, demands{rows("a", 60), rows("b", 60)}, texts{"stop a"}},
	})
}
