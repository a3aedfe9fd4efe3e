package work

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/fair"
)

func TestBudgetMakesCallersWaitAndWakesThem(t *testing.T) {
	t.Parallel()
	b := NewMemoryBudget(100, nil)
	woken := ""
	memory := func(p rowmill.Priority, name string) *WorkerMemory {
		return b.NewWorkerMemory("a", p, func() { woken += name })
	}
	normal, urgent := memory(rowmill.Production, "n"), memory(rowmill.Prototyping, "u")
	if got := normal.acquire(5, 30, toSend); got != 3 {
		t.Fatalf("%d units of 30 bytes in 100, want 3", got)
	}
	for range 2 { // a second request does not wake twice
		if got := normal.acquire(1, 30, toSend); got != 0 {
			t.Fatal("120 of 100 bytes granted")
		}
	}
	if got := urgent.acquire(2, 15, toSend); got != 2 {
		t.Errorf("%d units, want 2: an urgent caller has a quarter to itself", got)
	}
	if got := urgent.acquire(1, 15, toSend); got != 0 {
		t.Error("but no more than that")
	}
	normal.adjustBytes(-10)
	if woken != "u" {
		t.Errorf("%q is woken, want the urgent caller: for the other there is no room", woken)
	}
	normal.adjustBytes(-60)
	if woken != "un" {
		t.Errorf("woken in the order %q, want the urgent caller first", woken)
	}
	if b.InUse() != 50 {
		t.Errorf("%d bytes in use, want 50", b.InUse())
	}
	normal.Close()
	urgent.Close()
	if b.InUse() != 0 || len(b.accounts)+b.weight+len(b.waiting) > 0 {
		t.Errorf("%d bytes in use after all have given theirs back, and %d accounts", b.InUse(), len(b.accounts))
	}
}

func TestBudgetKeepsRoomForAnswers(t *testing.T) {
	t.Parallel()
	m := memory(100)
	if got := m.acquire(10, 10, toLoad); got != 5 {
		t.Errorf("loads took %d of 10 units, want half", got)
	}
	if got := m.acquire(10, 10, toSend); got != 5 {
		t.Errorf("answers got %d units, want what loads had to leave", got)
	}
}

// An account may exceed the budget, because each of its many jobs may always have one
// block and one answer in memory. It still leaves other accounts their share of a
// quarter. They also get the bytes that it gives back, until each account has its share.
func TestBudgetIsSharedByAccounts(t *testing.T) {
	t.Parallel()
	b := NewMemoryBudget(1200, fair.Weights{"heavy": 3})
	idle := func() {}
	greedy := b.NewWorkerMemory("greedy", rowmill.Prototyping, idle)
	for greedy.acquire(1, 10, toSend) > 0 {
	}
	greedy.adjustBytes(5000)
	modest, heavy := b.NewWorkerMemory("modest", rowmill.Production, idle), b.NewWorkerMemory("heavy", rowmill.Production, idle)
	if m, h := modest.acquire(100, 10, toSend), heavy.acquire(100, 10, toSend); m != 6 || h != 18 {
		t.Fatalf("the later accounts got %d and %d units, want 6 and 18 by their weights, of 30", m, h)
	}
	for _, m := range []*WorkerMemory{modest, heavy} {
		if m.acquire(1, 10, toSend) > 0 {
			t.Fatal("more than the quarter that is kept")
		}
	}
	greedy.adjustBytes(-5000)
	for range 200 { // the first account gives bytes back
		if greedy.held > 0 {
			greedy.adjustBytes(-10)
		}
		for _, m := range []*WorkerMemory{greedy, modest, heavy} {
			m.RepeatRequests(func() {
				for m.acquire(1, 10, toSend) > 0 {
				}
			})
		}
	}
	if g, m, h := greedy.held, modest.held, heavy.held; g < 240 || g > 250 || m != 240 || h != 720 {
		t.Errorf("they hold %d, %d and %d bytes, want them by their weights 1, 1 and 3", g, m, h)
	}
}

// Workers take and give back bytes in any order. A waiting worker is woken once there is
// room for it, no account overtakes a waiting account that has less, each account gets
// its share of the reserved quarter, and no bytes are lost.
func TestBudget(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		weights := fair.Weights{"b": 2}
		b := NewMemoryBudget(1000, weights)
		type caller struct {
			*WorkerMemory
			woken bool
		}
		var callers []*caller
		pick := func(t *rapid.T) *caller {
			if len(callers) == 0 {
				t.Skip("there is no memory")
			}
			return rapid.SampledFrom(callers).Draw(t, "who")
		}
		ask := func(t *rapid.T, c *caller) {
			size, p := int64(rapid.IntRange(1, 300).Draw(t, "size")), rapid.SampledFrom([]memoryPurpose{toLoad, toSend}).Draw(t, "purpose")
			own, behind := c.account.bytes+size <= c.guaranteedBytes(p), b.mustYield(c.account, p)
			room := b.used+size <= b.usageLimit(c.WorkerMemory, p)
			switch got := c.acquire(1, size, p); {
			case got == 1 && !own && (behind || !room):
				t.Fatalf("%s got %d bytes: behind %v, room %v", c.account.account, size, behind, room)
			case got == 0 && (own || room && !behind):
				t.Fatalf("%s did not get %d bytes that are free", c.account.account, size)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				var used int64
				waits := map[*accountUsage][2]int{}
				for _, c := range callers {
					used += c.held
					if c.waits != nothing {
						w := waits[c.account]
						w[c.waits]++
						waits[c.account] = w
					}
					if c.waits == nothing && slices.Contains(b.waiting, c.WorkerMemory) || c.waits != nothing && !c.woken && !c.asks {
						t.Fatalf("%s waits for %d and is forgotten", c.account.account, c.waits)
					}
				}
				for _, h := range b.accounts {
					if h.waits != waits[h] {
						t.Fatalf("%s waits %v, want %v", h.account, h.waits, waits[h])
					}
				}
				if b.InUse() != used {
					t.Fatalf("%d bytes are in use, want %d", b.InUse(), used)
				}
			},
			"come": func(t *rapid.T) {
				c := &caller{}
				c.WorkerMemory = b.NewWorkerMemory(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "account"), rapid.SampledFrom(rowmill.Priorities()).Draw(t, "priority"), func() { c.woken = true })
				callers = append(callers, c)
			},
			"ask": func(t *rapid.T) {
				if c := pick(t); c.waits == nothing {
					ask(t, c)
				}
			},
			"again": func(t *rapid.T) {
				if c := pick(t); c.woken {
					c.woken = false
					c.RepeatRequests(func() {
						if rapid.Bool().Draw(t, "still") {
							ask(t, c)
						}
					})
				}
			},
			"take": func(t *rapid.T) { pick(t).adjustBytes(int64(rapid.IntRange(0, 100).Draw(t, "bytes"))) },
			"give": func(t *rapid.T) { c := pick(t); c.adjustBytes(-rapid.Int64Range(0, c.held).Draw(t, "bytes")) },
			"leave": func(t *rapid.T) {
				c := pick(t)
				c.Close()
				callers = slices.DeleteFunc(callers, func(other *caller) bool { return other == c })
			},
		})
	})
}
