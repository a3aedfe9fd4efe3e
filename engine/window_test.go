package engine_test

import (
	"testing"
	"time"

	"github.com/rowmill/rowmill/engine"
)

func TestWindowStartsWithTheServersSlots(t *testing.T) {
	t.Parallel()
	w := engine.NewWindow(8)
	if got := w.RowLimit(false); got != 10 {
		t.Errorf("limit with 8 slots = %d, want the slots and a queue of 2", got)
	}
	if got := w.RowLimit(true); got != 12 {
		t.Errorf("limit of urgent rows with 8 slots = %d, want 12", got)
	}
	w = engine.NewWindow(0)
	w.RecordGauges(engine.Gauges{}, 0, 0, time.Unix(0, 0))
	if got := w.RowLimit(false); got != 64 {
		t.Errorf("limit of a server with gauges = %d, want 64 at once", got)
	}
}

func TestWindowKeepsASmallQueue(t *testing.T) {
	t.Parallel()
	w, now := engine.NewWindow(64), time.Unix(0, 0)
	for range 100 { // a server with 64 slots queues further rows
		now = now.Add(time.Second)
		waiting := max(0, w.RowLimit(false)-64)
		w.RecordGauges(engine.Gauges{Running: int64(min(64, w.RowLimit(false))), Waiting: int64(waiting)}, w.RowLimit(false), 0, now)
	}
	if got := w.RowLimit(false); got < 66 || got > 80 {
		t.Errorf("limit settles at %d, want 64 slots and a queue of about 8", got)
	}
}

func TestWindowShrinksWhenTheServerPreempts(t *testing.T) {
	t.Parallel()
	w, now := engine.NewWindow(100), time.Unix(0, 0)
	w.RecordGauges(engine.Gauges{Running: 100, Preemptions: 0}, 100, 0, now)
	before := w.RowLimit(false)
	w.RecordGauges(engine.Gauges{Running: 60, Preemptions: 7}, 100, 0, now.Add(time.Second))
	if got := w.RowLimit(false); got >= before {
		t.Errorf("limit after preemptions = %d, want below %d", got, before)
	}
}

func TestWindowReturnsToItsSlotsAfterPreemptions(t *testing.T) {
	t.Parallel()
	w, now := engine.NewWindow(64), time.Unix(0, 0)
	w.RecordGauges(engine.Gauges{Running: 64}, 64, 0, now)
	w.RecordGauges(engine.Gauges{Running: 40, Preemptions: 50}, 64, 0, now.Add(time.Second))
	if got := w.RowLimit(false); got >= 72 {
		t.Fatalf("limit after preemptions = %d", got)
	}
	for range 600 {
		now = now.Add(time.Second)
		w.RecordGauges(engine.Gauges{Running: int64(min(64, w.RowLimit(false))), Preemptions: 50}, w.RowLimit(false), 0, now)
	}
	if got := w.RowLimit(false); got != 72 {
		t.Errorf("limit = %d, want 64 slots and a queue of 8", got)
	}
}

func TestWindowGrowsBeyondTheFirstGuess(t *testing.T) {
	t.Parallel()
	w, now := engine.NewWindow(0), time.Unix(0, 0)
	for range 20 { // a server that never queues
		now = now.Add(time.Second)
		w.RecordGauges(engine.Gauges{Running: int64(w.RowLimit(false)), KVUse: 0.1}, w.RowLimit(false), 0, now)
	}
	if got := w.RowLimit(false); got < 512 || got > 1088 {
		t.Errorf("limit = %d, want more than the guess of 256, up to 1024 and a queue", got)
	}
}

// serve answers rows for some seconds like a server without gauges that runs slots rows
// at once, one second per row.
func serve(w *engine.Window, slots int, now time.Time, seconds int) {
	due := 0.0
	for range seconds * 100 {
		now = now.Add(time.Second / 100)
		inFlight := w.RowLimit(false)
		for due += float64(min(inFlight, slots)) / 100; due >= 1; due-- {
			w.RecordAnswers(1, 5, 5, inFlight, now)
		}
	}
}

func TestWindowWithoutGaugesFindsTheSlots(t *testing.T) {
	t.Parallel()
	for _, slots := range []int{20, 100} {
		w := engine.NewWindow(0)
		serve(w, slots, time.Unix(100, 0), 120)
		if got := w.RowLimit(false); got < slots*9/10 || got > slots*9/4 {
			t.Errorf("limit after two minutes = %d, want about the %d slots", got, slots)
		}
	}
}

func TestWindowHalvesOnRefusals(t *testing.T) {
	t.Parallel()
	w := engine.NewWindow(62)
	now := time.Unix(100, 0)
	before := w.RowLimit(false)
	w.RecordRefusal(now)
	w.RecordRefusal(now.Add(time.Millisecond)) // the same burst
	if got := w.RowLimit(false); got != before/2 {
		t.Errorf("limit after a burst of refusals = %d, want half of %d", got, before)
	}
	for range 100 {
		now = now.Add(2 * time.Second)
		w.RecordRefusal(now)
	}
	if got := w.RowLimit(false); got != 1 {
		t.Errorf("limit after lasting refusals = %d, want 1", got)
	}
}

// After refusals, or after rows of very different lengths, a window without gauges soon
// reaches the size of a new one. The known case window-stays-at-one is "shorter rows,
// three refusals".
func TestWindowRecoversAfterRefusals(t *testing.T) {
	t.Parallel()
	// answer has rows answered one after the other; each row takes took.
	answer := func(w *engine.Window, now time.Time, rows int, took time.Duration, tokens int64) time.Time {
		for range rows {
			n := w.RowLimit(false)
			now = now.Add(took / time.Duration(n))
			w.RecordAnswers(1, tokens, tokens, n, now)
		}
		return now
	}
	for name, before := range map[string]func(w *engine.Window, now time.Time) time.Time{
		"three refusals": func(w *engine.Window, now time.Time) time.Time {
			for range 3 {
				now = now.Add(2 * time.Second)
				w.RecordRefusal(now)
			}
			return now
		},
		"shorter rows": func(w *engine.Window, now time.Time) time.Time {
			return answer(w, now, 300, 20*time.Millisecond, 10)
		},
		"shorter rows, three refusals": func(w *engine.Window, now time.Time) time.Time {
			now = answer(w, now, 300, 20*time.Millisecond, 10)
			for range 3 {
				now = now.Add(2 * time.Second)
				w.RecordRefusal(now)
			}
			return now
		},
		// platinummonkey/go-concurrency-limits 117: rows of 10 ms and of 2 s alternate.
		"rows of all lengths, a refusal": func(w *engine.Window, now time.Time) time.Time {
			for range 20 {
				now = answer(w, now, 20, 10*time.Millisecond, 10)
				now = answer(w, now, 5, 2*time.Second, 1500)
			}
			w.RecordRefusal(now.Add(2 * time.Second))
			return now.Add(2 * time.Second)
		},
		// vectordotdev/vector 3255: the server is away for ten minutes.
		"away for a while": func(w *engine.Window, now time.Time) time.Time {
			now = answer(w, now, 300, 100*time.Millisecond, 50)
			for range 120 {
				now = now.Add(5 * time.Second)
				w.RecordRefusal(now)
			}
			return now
		},
		// sgl-project/sglang 39464: a full server refuses in bursts and then runs
		// empty.
		"bursts of refusals": func(w *engine.Window, now time.Time) time.Time {
			for range 5 {
				now = answer(w, now, 50, 100*time.Millisecond, 50)
				for range 20 {
					now = now.Add(100 * time.Millisecond)
					w.RecordRefusal(now)
				}
			}
			return now
		},
		"a hundred refusals": func(w *engine.Window, now time.Time) time.Time {
			for range 100 {
				now = now.Add(2 * time.Second)
				w.RecordRefusal(now)
			}
			return now
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fresh, used := engine.NewWindow(0), engine.NewWindow(0)
			answer(fresh, time.Unix(100, 0), 20, 3*time.Second, 1500)
			answer(used, before(used, time.Unix(100, 0)), 20, 3*time.Second, 1500)
			if got, want := used.RowLimit(false), fresh.RowLimit(false); got*10 < want*9 {
				t.Errorf("limit %d after 20 answers, a new window has %d", got, want)
			}
		})
	}
}

// After a refusal the window grows by at least one row per window of answers, up to the
// size of a new window (Netflix/concurrency-limits 155: a limit that is halved
// repeatedly; palantir/dialogue 3052: a limit that grows too slowly for a spike).
func TestWindowGrowsWithEachEpoch(t *testing.T) {
	t.Parallel()
	begin := engine.NewWindow(0).RowLimit(false)
	for name, refusals := range map[string]int{"one refusal": 1, "three refusals": 3, "a hundred refusals": 100} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, now := engine.NewWindow(0), time.Unix(100, 0)
			for range refusals {
				now = now.Add(2 * time.Second)
				w.RecordRefusal(now)
			}
			for epoch := range begin {
				before := w.RowLimit(false)
				for range before {
					now = now.Add(time.Second)
					w.RecordAnswers(1, 50, 50, before, now)
				}
				if got := w.RowLimit(false); got < min(before+1, begin-1) {
					t.Fatalf("the window went from %d to %d in epoch %d", before, got, epoch)
				}
			}
		})
	}
}

func TestWindowDoesNotGrowWhileItIsNotFull(t *testing.T) {
	t.Parallel()
	w, now := engine.NewWindow(0), time.Unix(0, 0)
	for range 50 {
		now = now.Add(time.Second)
		w.RecordGauges(engine.Gauges{Running: 3}, 3, 0, now)
		w.RecordAnswers(3, 5, 5, 3, now.Add(10*time.Second))
	}
	if got := w.RowLimit(false); got != 64 {
		t.Errorf("limit = %d, want 64: three rows in flight say nothing about room for more", got)
	}
}
