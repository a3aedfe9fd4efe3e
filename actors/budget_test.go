package actors

import "testing"

func TestBudgetMakesCallersWaitAndWakesThem(t *testing.T) {
	t.Parallel()
	b := &budget{limit: 100}
	if !b.acquire(80, false, nil) {
		t.Fatal("no room in an empty budget")
	}
	woken := ""
	if b.acquire(40, false, func() { woken += "n" }) {
		t.Fatal("120 of 100 bytes granted")
	}
	if !b.acquire(40, true, nil) {
		t.Error("an urgent caller has a quarter to itself")
	}
	if b.acquire(40, true, func() { woken += "u" }) {
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

func TestBudgetGrantsTheFirstWhateverItsSize(t *testing.T) {
	t.Parallel()
	b := &budget{limit: 10}
	if !b.acquire(1000, false, nil) {
		t.Error("a row larger than the budget can never run")
	}
}
