package dispatch

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/rowmill/rowmill/engine"
)

var (
	errProbe = errors.New("HTTP 502")
	start    = time.Unix(0, 0)
	oneModel = engine.ServerInfo{Kind: "vllm", Slots: 8, Models: []engine.ServedModel{{Name: "m"}}}
)

// Each step of a script is the end of a probe, with a + if the server answered a row
// meanwhile, and the change that it makes.
func TestHealth(t *testing.T) {
	t.Parallel()
	more, slots := oneModel, oneModel
	more.Models = append([]engine.ServedModel{{Name: "n"}}, oneModel.Models...)
	slots.Slots = 16 // another number of slots means another start
	infos := map[string]engine.ServerInfo{"ok": oneModel, "more": more, "slots": slots}
	errs := map[string]error{
		"bad": errProbe, "late": fmt.Errorf("probe: %w", context.DeadlineExceeded), "refused": fmt.Errorf("get models: %w", syscall.ECONNREFUSED),
	}
	changes := map[string]HealthChange{"same": Same, "renewed": Renewed, "altered": Altered, "fell": Fell}
	for name, script := range map[string]string{
		"each failure of an unknown server is reported: it may have another reason": "bad fell, bad fell, ok renewed",
		"a server changes":                        "ok renewed, ok same, more altered, slots renewed, bad+ same, bad fell, bad same, slots renewed",
		"a server that refuses is down":           "ok renewed, refused+ fell, ok+ renewed, bad fell",
		"a server late once or twice may be busy": "ok renewed, late same, late same, ok same, late same, late same, late+ same, late fell",
		"a server has left":                       "ok renewed, leave same, ok+ same",
	} {
		h, up := new(ServerHealth), false
		for i, step := range strings.Split(script, ", ") {
			end, want, _ := strings.Cut(step, " ")
			end, answers := strings.CutSuffix(end, "+")
			if end == "leave" {
				h.Leave()
				up = false
				continue
			}
			h.StartProbe()
			got := h.RecordProbe(infos[end], errs[end], answers)
			if up = got == Renewed || up && got != Fell; got != changes[want] || h.Up() != up {
				t.Fatalf("%s: step %d, %s: %v, up = %v", name, i, step, got, h.Up())
			}
			if h.Up() && len(h.Info().Models) == 0 {
				t.Fatalf("%s: step %d: the last answer of the server is lost", name, i)
			}
		}
		if !up && h.StartReading(start) {
			t.Errorf("%s: the gauges of a server that is not in use are read", name)
		}
	}
}

func TestHealth_OneProbeAndOneReadingAtATime(t *testing.T) {
	t.Parallel()
	h := new(ServerHealth)
	h.RecordProbe(oneModel, nil, false)
	if !h.StartProbe() || h.StartProbe() {
		t.Error("two probes at a time")
	}
	if !h.StartReading(start) || h.StartReading(start) {
		t.Error("two readings at a time")
	}
	h.EndReading()
	if h.StartEarlyReading(time.Second, start.Add(time.Second-1)) {
		t.Error("read again too early")
	}
	if !h.StartEarlyReading(time.Second, start.Add(time.Second)) {
		t.Error("a full window waits for the usual reading")
	}
	h.EndReading()
	h.RecordProbe(engine.ServerInfo{}, errProbe, false)
	if h.Up() || h.StartReading(start.Add(time.Minute)) {
		t.Error("the gauges of a server that is down are read")
	}
}

// In any sequence of events a server is up only after a successful probe, and each fall
// is reported once.
func TestHealth_IsUpOnlyByAProbe(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h, known := new(ServerHealth), false
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			h.StartProbe()
			err, was := error(nil), h.Up()
			switch rapid.IntRange(0, 2).Draw(t, "end") {
			case 0:
				err = errProbe
			case 1:
				err = context.DeadlineExceeded
			}
			change := h.RecordProbe(oneModel, err, rapid.Bool().Draw(t, "answers"))
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
