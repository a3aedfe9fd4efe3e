package cluster

import (
	"context"
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
	{Roles: []string{"both", "both", "both"}, Sentinels: true},
}

// trialsEach is the number of trials of a cluster before the next cluster starts.
const trialsEach = 15

// TestSoak strikes at random for the duration ROWMILL_SOAK, and longer until every fault has
// struck.
func TestSoak(t *testing.T) {
	text := os.Getenv("ROWMILL_SOAK")
	if text == "" || text == "quick" {
		t.Skip("set ROWMILL_SOAK to a duration, such as 1h")
	}
	duration, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("ROWMILL_SOAK: %v", err)
	}
	first := seed.ForTest(t)
	random := rand.New(rand.NewPCG(first, 0))
	clusters := kinds(hosts(t))
	d := newDeck(random, slices.DeleteFunc(Faults(), func(f Fault) bool {
		return !slices.ContainsFunc(clusters, func(c Config) bool { return c.fits(f) })
	}))
	var all Summary
	begun := time.Now()
	enough := func() bool { return t.Context().Err() != nil || time.Since(begun) > duration && d.complete() }
	for round := 0; !enough(); round++ {
		config := clusters[round%len(clusters)]
		if len(d.left) > 0 && !slices.ContainsFunc(d.left, config.fits) {
			continue // the rest of this pass needs another topology
		}
		soak(t, &all, d, config, enough)
	}
	t.Logf("seed %d, %v: %v", first, time.Since(begun).Round(time.Second), &all)
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
func soak(t *testing.T, all *Summary, d *deck, config Config, enough func() bool) {
	t.Helper()
	name := strings.Join(config.Roles, "-")
	skipped := false
	t.Run(name, func(t *testing.T) {
		defer func() { skipped = t.Skipped() }()
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
			o, err := c.Try(ctx, "", d.random.Uint64(), rowsFor(c, faults), faults...)
			cancel()
			d.done(faults, o.Faults)
			if err != nil {
				o.Wrongs = append(o.Wrongs, err.Error())
			}
			all.Add(o)
			t.Log(o)
			for _, wrong := range o.Wrongs {
				t.Error(wrong)
			}
			if err != nil {
				return
			}
		}
	})
	if skipped { // the pass would never end
		t.Fatalf("the cluster %s needs a program that this machine does not have, see above", name)
	}
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

// Each fault can strike a cluster of the soak.
func TestFaultsFit(t *testing.T) {
	t.Parallel()
	for _, f := range Faults() {
		if !slices.ContainsFunc(kinds(true), func(c Config) bool { return c.fits(f) }) {
			t.Errorf("%s can strike no cluster of the soak", f.Name)
		}
	}
}
