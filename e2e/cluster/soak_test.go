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

// TestSoak strikes at random for ROWMILL_SOAK, a duration, and prints a table.
func TestSoak(t *testing.T) {
	text := os.Getenv("ROWMILL_SOAK")
	if text == "" {
		t.Skip("set ROWMILL_SOAK to a duration, such as 1h")
	}
	duration, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("ROWMILL_SOAK: %v", err)
	}
	first := seed(t)
	random := rand.New(rand.NewPCG(first, 0))
	var table Table
	for end, round := time.Now().Add(duration), 0; time.Now().Before(end); round++ {
		soak(t, &table, random, topologies[round%len(topologies)], end)
	}
	fmt.Printf("\nSeed %d, %v:\n\n%s\n", first, duration, table.Markdown()) // as it is, to be pasted
}

// soak holds the trials of one cluster. One that cannot go on is replaced.
func soak(t *testing.T, table *Table, random *rand.Rand, config Config, end time.Time) {
	t.Helper()
	name := strings.Join(config.Roles, "-")
	t.Run(name, func(t *testing.T) {
		var err error
		if config.Previous, err = buildPrevious(t.Context()); errors.Is(err, errNoHistory) {
			t.Logf("two versions are NOT TESTED: %v", err)
			config.Old = 0
		} else if err != nil {
			t.Fatal(err)
		}
		c := start(t, config)
		for range trialsEach {
			if time.Now().After(end) || t.Context().Err() != nil {
				return
			}
			faults := choose(c, random)
			ctx, cancel := context.WithTimeout(t.Context(), 2*jobWithin)
			o, err := c.Try(ctx, random.Uint64(), rowsFor(c, faults), faults...)
			cancel()
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

// choose returns one fault, or two. What the version before may not survive does
// not strike where it runs, or is about to; and it does not begin where this one
// did, whose objects it cannot read.
func choose(c *Cluster, random *rand.Rand) []Fault {
	older := slices.ContainsFunc(c.nodes(), func(n *Node) bool { return n.Previous })
	possible := slices.DeleteFunc(Faults(), func(f Fault) bool {
		return c.network == nil && (f.Hosts || f.Root) || c.config.Old == 0 && f.Both || !c.config.Secure && f.Keys || older && f.New
	})
	chosen := []Fault{possible[random.IntN(len(possible))]}
	if random.IntN(3) == 0 {
		first := chosen[0]
		possible = slices.DeleteFunc(possible, func(f Fault) bool { return f.New && first.Both || f.Both && first.New })
		chosen = append(chosen, possible[random.IntN(len(possible))])
	}
	return chosen
}
