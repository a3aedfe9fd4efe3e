package actors

import "testing"

func TestBudgetMakesCallersWaitAndWakesThem(t *testing.T) {
	t.Parallel()
	b := &budget{limit: 100}
	woken := ""
	run := func(urgent bool, name string) room {
		return room{share: runShare, urgent: urgent, wake: func() { woken += name }}
	}
	if got := b.acquire(5, 30, run(false, "")); got != 3 {
		t.Fatalf("%d units of 30 bytes in 100, want 3", got)
	}
	if got := b.acquire(1, 30, run(false, "n")); got != 0 {
		t.Fatal("120 of 100 bytes granted")
	}
	if got := b.acquire(2, 15, run(true, "")); got != 2 {
		t.Errorf("%d units, want 2: an urgent caller has a quarter to itself", got)
	}
	if got := b.acquire(1, 15, run(true, "u")); got != 0 {
		t.Error("but no more than that")
	}
	b.take(-10)
	if woken != "" {
		t.Error("woken while the budget is still full")
	}
	b.take(-60)
	if woken != "un" {
		t.Errorf("woken in the order %q, want the urgent caller first", woken)
	}
	if b.inUse() != 50 {
		t.Errorf("%d bytes in use, want 50", b.inUse())
	}
}

func TestBudgetKeepsRoomForAnswers(t *testing.T) {
	t.Parallel()
	b := &budget{limit: 100}
	if got := b.acquire(10, 10, room{share: loadShare}); got != 5 {
		t.Errorf("loads took %d of 10 units, want half", got)
	}
	if got := b.acquire(10, 10, room{share: runShare}); got != 5 {
		t.Errorf("answers got %d units, want what loads had to leave", got)
	}
}
