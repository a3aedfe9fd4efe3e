package engine_test

import (
	"testing"
	"time"

	"github.com/rowmill/rowmill/engine"
)

func TestWindowStartsAtTheServersSlots(t *testing.T) {
	t.Parallel()
	if got := engine.NewWindow(8).Limit(); got != 8 {
		t.Errorf("limit with 8 slots = %d, want 8", got)
	}
	if got := engine.NewWindow(0).Limit(); got != 64 {
		t.Errorf("limit with unknown slots = %d, want 64", got)
	}
}

func TestWindowKeepsASmallQueueOnTheServer(t *testing.T) {
	t.Parallel()
	w, now := engine.NewWindow(64), time.Unix(0, 0)
	for range 100 { // a server with 64 slots queues whatever is beyond them
		now = now.Add(time.Second)
		waiting := max(0, w.Limit()-64)
		w.Observe(engine.Gauges{Running: int64(min(64, w.Limit())), Waiting: int64(waiting)}, w.Limit(), now)
	}
	if got := w.Limit(); got < 66 || got > 80 {
		t.Errorf("limit settles at %d, want 64 slots and a queue of about 8", got)
	}
}

func TestWindowShrinksWhenTheServerPreempts(t *testing.T) {
	t.Parallel()
	w, now := engine.NewWindow(100), time.Unix(0, 0)
	w.Observe(engine.Gauges{Running: 100, Preemptions: 0}, 100, now)
	before := w.Limit()
	w.Observe(engine.Gauges{Running: 60, Preemptions: 7}, 100, now.Add(time.Second))
	if got := w.Limit(); got >= before {
		t.Errorf("limit after preemptions = %d, want below %d", got, before)
	}
}

func TestWindowFindsMoreRoomThanGuessed(t *testing.T) {
	t.Parallel()
	w, now := engine.NewWindow(0), time.Unix(0, 0)
	for range 20 { // a server that never queues
		now = now.Add(time.Second)
		w.Observe(engine.Gauges{Running: int64(w.Limit()), KVUse: 0.1}, w.Limit(), now)
	}
	if got := w.Limit(); got < 512 || got > 1088 {
		t.Errorf("limit = %d, want it to pass the guess of 256 and stop at 1024 and a queue", got)
	}
}

func TestWindowWithoutGaugesGrowsByAnswersAndHalvesOnRefusals(t *testing.T) {
	t.Parallel()
	w, now := engine.NewWindow(0), time.Unix(100, 0)
	for range 64 {
		w.Answered(1, w.Limit(), now)
	}
	if got := w.Limit(); got != 64 && got != 65 {
		t.Errorf("limit after one window of answers = %d, want about 65", got)
	}
	w.Refused(now)
	w.Refused(now.Add(time.Millisecond)) // the same burst
	if got := w.Limit(); got != 32 {
		t.Errorf("limit after a burst of refusals = %d, want 32", got)
	}
	for range 100 {
		now = now.Add(2 * time.Second)
		w.Refused(now)
	}
	if got := w.Limit(); got != 1 {
		t.Errorf("limit after lasting refusals = %d, want 1", got)
	}
}

func TestWindowDoesNotGrowWhileItIsNotFull(t *testing.T) {
	t.Parallel()
	w, now := engine.NewWindow(0), time.Unix(0, 0)
	for range 50 {
		now = now.Add(time.Second)
		w.Observe(engine.Gauges{Running: 3}, 3, now)
		w.Answered(3, 3, now.Add(10*time.Second))
	}
	if got := w.Limit(); got != 64 {
		t.Errorf("limit = %d, want 64: three rows in flight say nothing about room for more", got)
	}
}
