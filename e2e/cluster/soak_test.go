package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill/internal/seed"
)

// topologies are the clusters that the soak takes in turn: all nodes do
// everything, or owners and workers are apart; what they tell each other is
// open, or encrypted; all begin with this version, or some or all with the one
// before.
var topologies = []Config{
	{Roles: []string{"both", "both", "both"}},
	{Roles: []string{"api", "api", "engines", "engines"}, Secure: true},
	{Roles: []string{"both", "both", "both", "both"}},
	{Roles: []string{"both", "both", "both"}, Secure: true, Old: 1},
	{Roles: []string{"api", "api", "engines", "engines"}, Old: 3},
	{Roles: []string{"both", "both", "both", "both"}, Old: 4},
}

// trialsEach is how many trials a cluster lives through before the next one is
// started.
const trialsEach = 15

// TestSoak strikes at random for ROWMILL_SOAK, a duration, and then until each fault
// has struck, and prints a table.
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
	former, err := buildPrevious(t.Context())
	if errors.Is(err, errNoHistory) {
		t.Logf("two versions are NOT TESTED: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	all := kinds(former, hosts(t))
	d := newDeck(random, slices.DeleteFunc(Faults(), func(f Fault) bool {
		return !slices.ContainsFunc(all, func(c Config) bool { return c.fits(f, false) })
	}))
	var table Table
	begun := time.Now()
	enough := func() bool { return t.Context().Err() != nil || time.Since(begun) > duration && d.complete() }
	for round := 0; !enough(); round++ {
		config := all[round%len(all)]
		if len(d.left) > 0 && !slices.ContainsFunc(d.left, func(f Fault) bool { return config.fits(f, config.Old > 0) }) {
			continue // another kind has what is left of this pass
		}
		soak(t, &table, d, config, enough)
	}
	fmt.Printf("\nSeed %d, %v:\n\n%s\n", first, time.Since(begun).Round(time.Second), table.Markdown()) // as it is, to be pasted
}

// kinds are the topologies as they can be here: with the program of the version before,
// where there is one, and with hosts of their own.
func kinds(previous string, hosts bool) []Config {
	all := slices.Clone(topologies)
	for i := range all {
		all[i].Previous, all[i].Hosts = previous, hosts
		if previous == "" {
			all[i].Old = 0
		}
	}
	return all
}

// soak holds the trials of one cluster, as long as something of the pass fits it. One
// that cannot go on is replaced.
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

// choose draws one fault, or two; none where nothing of this pass can strike the
// cluster as it is.
func choose(c *Cluster, d *deck) []Fault {
	older := slices.ContainsFunc(c.nodes(), func(n *Node) bool { return n.Previous })
	fits := func(f Fault) bool { return c.config.fits(f, older) }
	first, ok := d.draw(fits)
	if !ok {
		return nil
	}
	if d.random.IntN(3) > 0 {
		return []Fault{first}
	}
	second, ok := d.draw(func(f Fault) bool { return fits(f) && !(f.New && first.Both) && !(f.Both && first.New) })
	if !ok {
		return []Fault{first}
	}
	return []Fault{first, second}
}

// A deck deals each fault once in a pass, the same of the same seed, and those again
// that did not come to strike.
func TestDeck(t *testing.T) {
	t.Parallel()
	everywhere := Config{Hosts: true, Old: 1, Secure: true}
	pass := func(seed uint64) (names []string) {
		d := newDeck(rand.New(rand.NewPCG(seed, 0)), Faults())
		for !d.complete() {
			f, ok := d.draw(func(f Fault) bool { return everywhere.fits(f, false) })
			if !ok {
				t.Fatalf("nothing fits of %d that are left", len(d.left))
			}
			if len(names) == 7 { // is not struck by it, and comes again
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
	for _, kind := range kinds("previous", true) {
		d := newDeck(rand.New(rand.NewPCG(3, 0)), Faults())
		older := kind.Old > 0
		for range Faults() {
			f, ok := d.draw(func(f Fault) bool { return kind.fits(f, older) })
			if !ok {
				break
			}
			if f.New && older || f.Both && kind.Old == 0 || f.Keys && !kind.Secure {
				t.Errorf("%s is dealt to %+v", f.Name, kind)
			}
		}
	}
	for _, f := range Faults() {
		if !slices.ContainsFunc(kinds("previous", true), func(c Config) bool { return c.fits(f, c.Old > 0) }) {
			t.Errorf("%s can strike no cluster of the soak as it begins", f.Name)
		}
	}
}
