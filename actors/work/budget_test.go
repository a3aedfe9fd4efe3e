package work

import "testing"

func TestBudgetMakesCallersWaitAndWakesThem(t *testing.T) {
	t.Parallel()
	b := NewBudget(100)
	woken := ""
	memory := func(urgent bool, name string) *Memory {
		return &Memory{Budget: b, Urgent: urgent, Wake: func() { woken += name }}
	}
	normal, urgent := memory(false, "n"), memory(true, "u")
	if got := normal.acquire(5, 30, sendShare); got != 3 {
		t.Fatalf("%d units of 30 bytes in 100, want 3", got)
	}
	for range 2 { // asking twice does not wake twice
		if got := normal.acquire(1, 30, sendShare); got != 0 {
			t.Fatal("120 of 100 bytes granted")
		}
	}
	if got := urgent.acquire(2, 15, sendShare); got != 2 {
		t.Errorf("%d units, want 2: an urgent caller has a quarter to itself", got)
	}
	if got := urgent.acquire(1, 15, sendShare); got != 0 {
		t.Error("but no more than that")
	}
	normal.take(-10)
	if woken != "" {
		t.Error("woken while the budget is still full")
	}
	normal.take(-60)
	if woken != "un" {
		t.Errorf("woken in the order %q, want the urgent caller first", woken)
	}
	if b.InUse() != 50 {
		t.Errorf("%d bytes in use, want 50", b.InUse())
	}
	normal.Close()
	urgent.Close()
	if b.InUse() != 0 {
		t.Errorf("%d bytes in use after all have given theirs back", b.InUse())
	}
}

func TestBudgetKeepsRoomForAnswers(t *testing.T) {
	t.Parallel()
	m := &Memory{Budget: NewBudget(100)}
	if got := m.acquire(10, 10, loadShare); got != 5 {
		t.Errorf("loads took %d of 10 units, want half", got)
	}
	if got := m.acquire(10, 10, sendShare); got != 5 {
		t.Errorf("answers got %d units, want what loads had to leave", got)
	}
}
