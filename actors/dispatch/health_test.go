package dispatch

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/rowmill/rowmill/engine"
)

var (
	errProbe = errors.New("HTTP 502")
	start    = time.Unix(0, 0)
	oneModel = engine.Info{Kind: "vllm", Slots: 8, Models: []engine.ServedModel{{Name: "m"}}}
)

// probe starts a probe and passes its result.
func (h *Health) probe(t testing.TB, info engine.Info, err error, answers bool) Change {
	t.Helper()
	if !h.Probe() {
		t.Fatal("a probe is on its way")
	}
	return h.Probed(info, err, answers)
}

func upHealth(t testing.TB) *Health {
	h := new(Health)
	if got := h.probe(t, oneModel, nil, false); got != Renewed || !h.Up() {
		t.Fatalf("the first probe that succeeds = %v", got)
	}
	return h
}

func TestHealth_Changes(t *testing.T) {
	t.Parallel()
	h := new(Health)
	for range 2 { // the state stays unknown, and each failure is reported: it may have another reason
		if got := h.probe(t, engine.Info{}, errProbe, false); got != Fell || h.Up() {
			t.Fatalf("a failure of an unknown server = %v", got)
		}
	}
	more, other := oneModel, oneModel
	more.Models = append([]engine.ServedModel{{Name: "n"}}, oneModel.Models...)
	other.Slots = 16
	for i, step := range []struct {
		info    engine.Info
		err     error
		answers bool
		want    Change
		up      bool
	}{
		{oneModel, nil, false, Renewed, true},
		{oneModel, nil, false, Same, true},
		{more, nil, false, Altered, true},
		{other, nil, false, Renewed, true}, // another number of slots means another start
		{engine.Info{}, errProbe, true, Same, true},
		{engine.Info{}, errProbe, false, Fell, false},
		{engine.Info{}, errProbe, false, Same, false},
		{other, nil, false, Renewed, true},
		{engine.Info{}, fmt.Errorf("get models: %w", syscall.ECONNREFUSED), true, Fell, false},
		{other, nil, true, Renewed, true},
	} {
		if got := h.probe(t, step.info, step.err, step.answers); got != step.want || h.Up() != step.up {
			t.Fatalf("step %d: %v, up = %v, want %v", i, got, h.Up(), step.want)
		}
		if h.Up() && len(h.Info().Models) == 0 {
			t.Fatalf("step %d: the last answer of the server is lost", i)
		}
	}
}

// A server that is late with one probe may only be busy. A server that refuses the
// connection is down, and so is a server that is late several times.
func TestHealth_ToleratesLateProbes(t *testing.T) {
	t.Parallel()
	h := upHealth(t)
	late := fmt.Errorf("probe: %w", context.DeadlineExceeded)
	for range 3 {
		for range mostLate {
			if got := h.probe(t, engine.Info{}, late, false); got != Same || !h.Up() {
				t.Fatalf("a late probe = %v", got)
			}
		}
		if got := h.probe(t, oneModel, nil, false); got != Same {
			t.Fatalf("a probe in time = %v", got)
		}
	}
	for range mostLate {
		h.probe(t, engine.Info{}, late, false)
	}
	if got := h.probe(t, engine.Info{}, late, true); got != Same || !h.Up() {
		t.Fatalf("a late probe of a server that answers rows = %v", got)
	}
	if got := h.probe(t, engine.Info{}, late, false); got != Fell || h.Up() {
		t.Fatalf("one late probe too many = %v", got)
	}
	if h = upHealth(t); h.probe(t, engine.Info{}, errProbe, false) != Fell {
		t.Fatal("a server that refuses is taken for busy")
	}
}

func TestHealth_LeavesForGood(t *testing.T) {
	t.Parallel()
	h := upHealth(t)
	h.Leave()
	if h.Read(start) || h.probe(t, oneModel, nil, true) != Same || h.Up() {
		t.Error("a server that has left is in use again")
	}
}

func TestHealth_OneProbeAndOneReadingAtATime(t *testing.T) {
	t.Parallel()
	h := upHealth(t)
	if !h.Probe() || h.Probe() {
		t.Error("two probes at a time")
	}
	if !h.Read(start) || h.Read(start) {
		t.Error("two readings at a time")
	}
	h.HasRead()
	if h.ReadEarly(time.Second, start.Add(time.Second-1)) {
		t.Error("read again too early")
	}
	if !h.ReadEarly(time.Second, start.Add(time.Second)) {
		t.Error("a full window waits for the usual reading")
	}
	h.HasRead()
	h.Probed(engine.Info{}, errProbe, false)
	if h.Up() || h.Read(start.Add(time.Minute)) {
		t.Error("the gauges of a server that is down are read")
	}
}

// In any sequence of events a server is up only after a successful probe, and each fall
// is reported once.
func TestHealth_IsUpOnlyByAProbe(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h, known := new(Health), false
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			h.Probe()
			err, was := error(nil), h.Up()
			switch rapid.IntRange(0, 2).Draw(t, "end") {
			case 0:
				err = errProbe
			case 1:
				err = context.DeadlineExceeded
			}
			change := h.Probed(oneModel, err, rapid.Bool().Draw(t, "answers"))
			if h.Up() && !was && (err != nil || change != Renewed) {
				t.Fatalf("up by a probe with %v, reported as %v", err, change)
			}
			if change == Fell && known && !was {
				t.Fatal("a fall is reported twice")
			}
			if !h.Up() && was && change != Fell {
				t.Fatalf("a fall is reported as %v", change)
			}
			known = known || h.Up()
		}
	})
}
