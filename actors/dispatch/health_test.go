package dispatch

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/rowmill/rowmill/engine"
)

var (
	errRefused = errors.New("connection refused")
	start      = time.Unix(0, 0)
	oneModel   = engine.Info{Kind: "vllm", Slots: 8, Models: []engine.ServedModel{{Name: "m"}}}
)

// probe asks and answers at once.
func (h *Health) probe(t testing.TB, info engine.Info, err error, answers bool, now time.Time) Change {
	t.Helper()
	if !h.Probe() {
		t.Fatal("a probe is on its way")
	}
	return h.Probed(info, err, answers, now)
}

func upHealth(t testing.TB) *Health {
	h := new(Health)
	if got := h.probe(t, oneModel, nil, false, start); got != Renewed || !h.Up() {
		t.Fatalf("the first probe that succeeds = %v", got)
	}
	return h
}

func TestHealth_TellsWhatAProbeChanges(t *testing.T) {
	t.Parallel()
	h := new(Health)
	for range 2 { // as long as nothing is known each failure may have another reason
		if got := h.probe(t, engine.Info{}, errRefused, false, start); got != Fell || h.Up() {
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
		{other, nil, false, Renewed, true}, // another number of slots is another start
		{engine.Info{}, errRefused, true, Same, true},
		{engine.Info{}, errRefused, false, Fell, false},
		{engine.Info{}, errRefused, false, Same, false},
		{other, nil, false, Renewed, true},
	} {
		if got := h.probe(t, step.info, step.err, step.answers, start); got != step.want || h.Up() != step.up {
			t.Fatalf("step %d: %v, up = %v, want %v", i, got, h.Up(), step.want)
		}
		if h.Up() && len(h.Info().Models) == 0 {
			t.Fatalf("step %d: what the server said is forgotten", i)
		}
	}
}

func TestHealth_ListensToNoProbeWhileItRests(t *testing.T) {
	t.Parallel()
	h := upHealth(t)
	if !h.Opened(10*time.Second, start) || h.Up() || h.Opened(time.Second, start) {
		t.Fatal("an open breaker takes a server out of use, once")
	}
	if got := h.NextProbe(5*time.Second, start.Add(time.Second)); got != 9*time.Second {
		t.Errorf("next probe after %v, want at the end of the pause", got)
	}
	if got := h.probe(t, oneModel, nil, false, start.Add(9*time.Second)); got != Same || h.Up() {
		t.Fatalf("a probe within the pause = %v", got)
	}
	if got := h.probe(t, oneModel, errRefused, false, start.Add(10*time.Second)); got != Same || h.Up() {
		t.Fatalf("a probe that fails after the pause = %v, want nothing new", got)
	}
	if got := h.NextProbe(5*time.Second, start.Add(10*time.Second)); got != 5*time.Second {
		t.Errorf("next probe after %v, want the usual time", got)
	}
	if got := h.probe(t, oneModel, nil, false, start.Add(15*time.Second)); got != Renewed || !h.Up() {
		t.Fatalf("a probe after the pause = %v", got)
	}
}

func TestHealth_LeavesForGood(t *testing.T) {
	t.Parallel()
	h := upHealth(t)
	h.Leave()
	if h.Opened(time.Second, start) || h.Read(start) || h.probe(t, oneModel, nil, true, start) != Same || h.Up() {
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
	h.Probed(engine.Info{}, errRefused, false, start)
	if h.Up() || h.Read(start.Add(time.Minute)) {
		t.Error("the gauges of a server that is down are read")
	}
}

// Whatever happens, a server is up only after a probe that succeeded, and a
// fall is told once.
func TestHealth_IsUpOnlyByAProbe(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h, now, told, known := new(Health), start, false, false
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 4000).Draw(t, "ms")) * time.Millisecond)
			switch rapid.IntRange(0, 2).Draw(t, "step") {
			case 0:
				h.Probe()
				err, was := error(nil), h.Up()
				if rapid.Bool().Draw(t, "fails") {
					err = errRefused
				}
				change := h.Probed(oneModel, err, rapid.Bool().Draw(t, "answers"), now)
				if h.Up() && !was && (err != nil || change != Renewed) {
					t.Fatalf("up by a probe with %v, told as %v", err, change)
				}
				if change == Fell && known && !was {
					t.Fatal("a fall is told twice")
				}
				known = known || h.Up()
				told = h.Up()
			case 1:
				if h.Opened(time.Second, now) != told {
					t.Fatalf("the breaker of a server that is up: %v", told)
				}
				told = false
			default:
				if wait := h.NextProbe(5*time.Second, now); wait < 0 || wait > 5*time.Second {
					t.Fatalf("the next probe is in %v", wait)
				}
			}
		}
	})
}
