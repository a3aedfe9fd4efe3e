package fair

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/rowmill/rowmill"
)

// Accounts take and return places in any order. No place is given twice. No place stays
// free if an account may have it. No account gets a general place while another account
// with fewer places for its weight waits. An account without a place gets one, as long
// as there are fewer such accounts than kept places.
func TestShares(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		accounts := []string{"a", "b", "c", "d"}
		weights := Weights{"b": 2, "c": 5}
		cfg := Config{Places: rapid.IntRange(0, 6).Draw(t, "places"), Kept: rapid.IntRange(0, 6).Draw(t, "kept"), Weights: weights, Patience: time.Second}
		s, now := NewSlotPool(cfg), time.Now()
		held, waits := map[string]int{}, map[string]time.Time{}
		total := func() (n int) {
			for _, h := range held {
				n += h
			}
			return n
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				if s.Held() != total() || s.Held() > cfg.Places+cfg.Kept || s.ordinaryInUse() > cfg.Places || len(s.kept) > cfg.Kept {
					t.Fatalf("%d places are held, %d of them kept, want %d of %d and %d", s.Held(), len(s.kept), total(), cfg.Places, cfg.Kept)
				}
				if s.Free() != cfg.Places+cfg.Kept-total() {
					t.Fatalf("%d places are free, want %d", s.Free(), cfg.Places+cfg.Kept-total())
				}
				of := map[string]int{}
				calm := 0
				for _, k := range s.kept {
					if of[k.account]++; of[k.account] > 1 || held[k.account] == 0 {
						t.Fatalf("account %s has %d kept places of %d", k.account, of[k.account], held[k.account])
					}
					if !k.urgent {
						calm++
					}
				}
				if calm > cfg.Kept/2 {
					t.Fatalf("%d kept places of %d are not urgent", calm, cfg.Kept)
				}
			},
			"take": func(t *rapid.T) {
				account, p := rapid.SampledFrom(accounts).Draw(t, "account"), rapid.SampledFrom(rowmill.Priorities()).Draw(t, "priority")
				room, kept := s.ordinaryInUse() < cfg.Places, len(s.kept)
				worse := ""
				for other, until := range waits {
					if other != account && !now.After(until) && (held[other]+1)*weights.Of(account) < (held[account]+1)*weights.Of(other) {
						worse = other
					}
				}
				got := s.Take(account, p, now)
				switch {
				case got && len(s.kept) == kept && worse != "":
					t.Fatalf("%s with %d got a place before %s with %d", account, held[account], worse, held[worse])
				case !got && room && worse == "":
					t.Fatalf("a place stays free that %s may have", account)
				case !got && p.IsUrgent() && held[account] == 0 && kept < cfg.Kept:
					t.Fatalf("%s has none, and none is kept for it: %d of %d are taken", account, kept, cfg.Kept)
				}
				if got {
					held[account]++
					delete(waits, account)
				} else {
					waits[account] = now.Add(cfg.Patience)
				}
			},
			"leave": func(t *rapid.T) {
				account := rapid.SampledFrom(accounts).Draw(t, "account")
				if held[account] == 0 {
					t.Skip("it has none")
				}
				s.Leave(account)
				held[account]--
			},
			"wait":   func(*rapid.T) { now = now.Add(700 * time.Millisecond) },
			"forget": func(*rapid.T) { s.ForgetWaiting(); clear(waits) },
		})
	})
}

// If an account takes all places that it can get, each later account still gets one. The
// places that it returns go to these accounts until each has its share.
func TestSharesComeToBeEven(t *testing.T) {
	t.Parallel()
	s, now := NewSlotPool(Config{Places: 12, Kept: 4, Weights: Weights{"c": 2}, Patience: time.Second}), time.Now()
	ask := func(account string, p rowmill.Priority) int {
		got := 0
		for s.Take(account, p, now) {
			got++
		}
		return got
	}
	if got := ask("a", rowmill.Prototyping); got != 13 {
		t.Fatalf("the first account got %d places, want all 12 and one of those kept", got)
	}
	if b, c := ask("b", rowmill.Production), ask("c", rowmill.Prototyping); b != 1 || c != 1 {
		t.Fatalf("the later accounts got %d and %d places, want one each", b, c)
	}
	if ask("d", rowmill.Production) != 1 || ask("e", rowmill.Production) != 0 {
		t.Fatal("half of the kept places are for urgent jobs alone")
	}
	if got := s.CountWithoutPlace(); got != 1 {
		t.Fatalf("%d accounts wait and have nothing, want the last", got)
	}
	s.Leave("d")
	s.ForgetWaiting() // the other accounts no longer wait
	for range 12 {    // the first account returns one place after another
		s.Leave("a")
		for _, account := range []string{"a", "b", "c"} {
			ask(account, rowmill.Production)
		}
	}
	got := fmt.Sprint(s.held["a"], s.held["b"], s.held["c"])
	if got != "3 3 6" {
		t.Fatalf("the accounts have %s places, want them by their weights: 3 3 6", got)
	}
}
