package fair

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/rowmill/rowmill"
)

// The waiting work of an account delays another account's work by one turn, and work of
// priority 0 delays other work by three turns of four.
func TestGateGoesByTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, in := NewGate(1, 0), make(chan string, 100)
		if !g.Enter(t.Context(), "first", rowmill.Production) {
			t.Fatal("an empty gate is closed")
		}
		work := func(account string, p rowmill.Priority, times int) {
			for i := range times {
				go func() {
					if g.Enter(t.Context(), account, p) {
						in <- fmt.Sprintf("%s %d %d", account, p, i)
						g.Leave(account)
					}
				}()
				synctest.Wait()
			}
		}
		work("greedy", rowmill.Production, 4)
		work("modest", rowmill.Production, 1)
		work("greedy", rowmill.Prototyping, 4)
		work("modest", rowmill.Prototyping, 1)
		g.Leave("first")
		synctest.Wait()
		close(in)
		got := []string{}
		for who := range in {
			got = append(got, who)
		}
		want := []string{
			"greedy 0 0", "modest 0 0", "greedy 0 1", "greedy 1 0", "greedy 0 2", "greedy 0 3",
			"modest 1 0", "greedy 1 1", "greedy 1 2", "greedy 1 3",
		}
		if !slices.Equal(got, want) {
			t.Errorf("they went in as %q\nwant %q", got, want)
		}
	})
}

// Work that gives up keeps no place: neither the place that it waited for, nor a place
// that it got at that moment.
func TestGateForgetsCancelledWaits(t *testing.T) {
	t.Parallel()
	for range 100 {
		g := NewGate(1, 0)
		g.Enter(t.Context(), "a", rowmill.Prototyping)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan bool)
		go func() { ended <- g.Enter(ctx, "b", rowmill.Production) }()
		go cancel()
		g.Leave("a")
		if <-ended {
			g.Leave("b")
		}
		if g.taken != 0 || len(g.inside) != 0 || len(g.levels[0])+len(g.levels[1]) > 0 {
			t.Fatalf("%d places are taken, and %d accounts wait", g.taken, len(g.levels[0])+len(g.levels[1]))
		}
	}
}

// An account with no work inside finds a kept place, however long the other work runs.
// Leaving any place admits the next work that may use the place.
func TestGateKeepsPlaces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, in := NewGate(2, 1), make(chan string, 100)
		enter := func(account string) {
			go func() {
				if g.Enter(t.Context(), account, rowmill.Production) {
					in <- account
				}
			}()
			synctest.Wait()
		}
		want := func(accounts ...string) {
			t.Helper()
			synctest.Wait()
			got := []string{}
			for len(in) > 0 {
				got = append(got, <-in)
			}
			if !slices.Equal(got, accounts) {
				t.Fatalf("%q went in, want %q", got, accounts)
			}
		}
		for range 5 {
			enter("greedy")
		}
		want("greedy", "greedy")
		enter("modest")
		want("modest")
		enter("late")
		want()
		g.Leave("modest") // its kept place
		want("late")
		g.Leave("greedy")
		want()
		g.Leave("late")
		want("greedy")
		g.Leave("greedy")
		g.Leave("greedy")
		want("greedy", "greedy")
	})
}
