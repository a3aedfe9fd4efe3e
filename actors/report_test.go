package actors

import (
	"testing"
	"time"

	"github.com/rowmill/rowmill/actors/assign"
)

func TestHeartbeatsAtOnce(t *testing.T) {
	t.Parallel()
	r := newHeartbeatState(time.Now())
	for i, step := range []struct {
		wants, hungry bool
		ready         int
		acked         bool // new rows were assigned
		tell          bool
	}{
		{wants: true, ready: 8, tell: true}, // there is room
		{wants: true, ready: 8},             // the owner knows already
		{wants: true, ready: 5},
		{wants: true, ready: 4, tell: true}, // half of the ready rows
		{wants: true, ready: 3},
		{ready: 1}, // no room
		{wants: true, hungry: true, tell: true},
		{wants: true, hungry: true}, // the owner knows already
		{wants: true, ready: 9, acked: true, tell: true},
	} {
		if step.acked {
			r.asked = false
		}
		if got := r.shouldAsk(step.wants, step.hungry, step.ready); got != step.tell || r.hungry != step.hungry {
			t.Errorf("step %d: heartbeat at once: %v, hungry: %v", i, got, r.hungry)
		}
	}
}

func TestADrainingWorkerReportsOnce(t *testing.T) {
	t.Parallel()
	r := newHeartbeatState(time.Now())
	if !r.shouldTellDrain(5, false) || r.shouldTellDrain(0, false) {
		t.Error("rows given back do not cause one heartbeat")
	}
	if !r.shouldTellDrain(0, true) || r.shouldTellDrain(0, true) {
		t.Error("an empty worker does not cause one heartbeat")
	}
	first := &assign.Fault{Row: 1}
	if !r.recordFault(first) || r.recordFault(&assign.Fault{Row: 2}) || r.fault != first {
		t.Errorf("the fault is %+v, want the first", r.fault)
	}
}
