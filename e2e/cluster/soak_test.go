package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill/internal/seed"
)

// topologies are the clusters of the soak, one after the other: all nodes do everything, or
// owners and workers are separate; with and without encryption between nodes.
var topologies = []Config{
	{Roles: []string{"both", "both", "both"}},
	{Roles: []string{"api", "api", "engines", "engines"}, Secure: true},
	{Roles: []string{"both", "both", "both", "both"}},
	{Roles: []string{"both", "both", "both"}, Secure: true},
	{Roles: []string{"api", "api", "engines", "engines"}},
}

// trialsEach is the number of trials of a cluster before the next cluster starts.
const trialsEach = 15

// TestSoak strikes at random for the duration ROWMILL_SOAK, and longer until every fault has
// struck, and prints a table.
func TestSoak(t *testing.T) {
	text := os.Getenv("ROWMILL_SOAK")
	if text == "" || text == "quick" {
		t.Skip("set ROWMILL_SOAK to a duration, such as 1h")
	}
	duration, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("ROWMILL_SOAK: %v", err)
	}
	first := seed.Of(t)
	random := rand.New(rand.NewPCG(first, 0))
	all := kinds(hosts(t))
	d := newDeck(random, slices.DeleteFunc(Faults(), func(f Fault) bool {
		return !slices.ContainsFunc(all, func(c Config) bool { return c.fits(f) })
	}))
	var table Table
	begun := time.Now()
	enough := func() bool { return t.Context().Err() != nil || time.Since(begun) > duration && d.complete() }
	for round := 0; !enough(); round++ {
		config := all[round%len(all)]
		if len(d.left) > 0 && !slices.ContainsFunc(d.left, config.fits) {
			continue // the rest of this pass needs another topology
		}
		soak(t, &table, d, config, enough)
	}
	fmt.Printf("\nSeed %d, %v:\n\n%s\n", first, time.Since(begun).Round(time.Second), table.Markdown()) // unchanged, for pasting
}

// kinds returns the topologies, with hosts of their own if possible.
func kinds(hosts bool) []Config {
	all := slices.Clone(topologies)
	for i := range all {
		all[i].Hosts = hosts
	}
	return all
}

// soak runs the trials of a cluster while a fault of the pass fits it. A broken cluster
// is replaced.
func soak(t *testing.T, table *Table, d *deck, config Config, enough func() bool) {
	t.Helper()
	name := strings.Join(config.Roles, "-")
	t.Run(name, func(t *testing.T) {
		c := start(t, config)
		for range trialsEach {
			if enough() {
				return
			}
			faults := choose(c, d)
			if len(faults) == 0 {
				return
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*jobWithin)
			o, err := c.Try(ctx, d.random.Uint64(), rowsFor(c, faults), faults...)
			cancel()
			d.done(faults, o.Faults)
			if err != nil {
				o.Wrongs = append(o.Wrongs, err.Error())
			}
			table.Add(o)
			t.Log(o)
			for _, wrong := range o.Wrongs {
				t.Error(wrong)
			}
			if err != nil {
				return
			}
		}
	})
}

// choose draws one fault or two, or none if no fault of this pass fits the cluster.
func choose(c *Cluster, d *deck) []Fault {
	first, ok := d.draw(c.config.fits)
	if !ok {
		return nil
	}
	if d.random.IntN(3) > 0 {
		return []Fault{first}
	}
	second, ok := d.draw(c.config.fits)
	if !ok {
		return []Fault{first}
	}
	return []Fault{first, second}
}

// A deck deals each fault once in a pass, in an order that depends on the seed only, and deals
// faults again that did not strike.
func TestDeck(t *testing.T) {
	t.Parallel()
	everywhere := Config{Hosts: true, Secure: true}
	pass := func(seed uint64) (names []string) {
		d := newDeck(rand.New(rand.NewPCG(seed, 0)), Faults())
		for !d.complete() {
			f, ok := d.draw(everywhere.fits)
			if !ok {
				t.Fatalf("nothing fits of %d that are left", len(d.left))
			}
			if len(names) == 7 { // this fault does not strike and comes again
				d.done([]Fault{f}, nil)
				again, _ := d.draw(func(Fault) bool { return true })
				if again.Name != f.Name {
					t.Errorf("%s comes before %s, which did not strike", again.Name, f.Name)
				}
			}
			d.done([]Fault{f}, []string{f.Name})
			names = append(names, f.Name)
		}
		if len(d.left) > 0 {
			t.Errorf("each has struck, and %d are left", len(d.left))
		}
		return names
	}
	first, other := pass(1), pass(2)
	if !slices.Equal(first, pass(1)) || slices.Equal(first, other) {
		t.Errorf("the seed does not make the order: %q, %q", first, other)
	}
	slices.Sort(first)
	if n := len(slices.Compact(first)); n != len(Faults()) {
		t.Errorf("%d faults of %d were dealt", n, len(Faults()))
	}
	for _, kind := range kinds(true) {
		d := newDeck(rand.New(rand.NewPCG(3, 0)), Faults())
		for range Faults() {
			f, ok := d.draw(kind.fits)
			if !ok {
				break
			}
			if f.Keys && !kind.Secure {
				t.Errorf("%s is dealt to %+v", f.Name, kind)
			}
		}
	}
	for _, f := range Faults() {
		if !slices.ContainsFunc(kinds(true), func(c Config) bool { return c.fits(f) }) {
			t.Errorf("%s can strike no cluster of the soak as it begins", f.Name)
		}
	}
}
