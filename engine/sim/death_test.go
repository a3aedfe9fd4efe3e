package sim

import (
	"context"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill/engine/sim/batching"
	"github.com/rowmill/rowmill/internal/must"
)

func TestSetRate(t *testing.T) {
	t.Parallel()
	var f Faults
	for i, kind := range FaultKinds() {
		if err := f.SetRate(kind, float64(i+1)/100); err != nil {
			t.Error(err)
		}
	}
	want := Faults{
		Rate429: 0.01, Rate500: 0.02, Rate503: 0.03, Reset: 0.04, Hang: 0.05, Truncate: 0.06,
		Malformed: 0.07, SchemaViolation: 0.08, Empty: 0.09,
	}
	if f != want {
		t.Errorf("got %+v", f)
	}
	if err := f.SetRate("fire", 1); err == nil || !strings.Contains(err.Error(), "schema_violation") {
		t.Errorf("an unknown kind: %v", err)
	}
}

// TestDeathAndRevival lets a server die under a running request.
func TestDeathAndRevival(t *testing.T) {
	t.Parallel()
	log := &lockedBuffer{}
	p := fastGPU(t)
	c := start(t, Config{GPU: &batching.Config{Profile: p}, RequestLog: log})
	long := strings.Repeat("one two three four ", 30)
	c.complete(body("plain", long))
	if cached := c.complete(body("plain", long)).Usage.PromptDetails.Cached; cached == 0 {
		t.Error("the prefix cache is cold")
	}
	ended := c.background(context.Background(), body("plain", "[[sim:hang]]"))
	eventually(t, "it hangs", func() bool { return c.sim.gpu.Stats().Finished == 3 })
	set := `{"die_after":"1ms","revive_after":"150ms","startup_delay":"100ms"}`
	c.must("POST", "/sim/faults", `{}`)
	began := time.Now()
	if r, err := c.send(context.Background(), "POST", "/sim/faults", set); err == nil && r.status != 200 {
		t.Errorf("%d %s", r.status, r.body)
	}
	if r := <-ended; r.err == nil {
		t.Error("a dead server answered")
	}
	eventually(t, "it comes back", func() bool {
		r, err := c.send(context.Background(), "GET", "/health", "")
		return err == nil && r.status == http.StatusOK
	})
	if took := time.Since(began); took < 250*time.Millisecond {
		t.Errorf("back after %v, before it was revived and had started", took)
	}
	if cached := c.complete(body("plain", long)).Usage.PromptDetails.Cached; cached != 0 {
		t.Errorf("%d tokens are cached after a restart", cached)
	}
	c.stop()
	if !slices.ContainsFunc(log.lines(t), func(l line) bool { return l.Cancelled && l.Fault == "hang" && l.Status == 0 }) {
		t.Errorf("the request log misses what died: %+v", log.lines(t))
	}
}

func TestDeathForGood(t *testing.T) {
	t.Parallel()
	c := start(t, Config{Faults: Faults{DieAfter: Duration(time.Millisecond)}})
	eventually(t, "it is dead", func() bool {
		_, err := c.send(context.Background(), "GET", "/health", "")
		return err != nil
	})
	if conn, err := net.Dial("tcp", c.sim.Addr().String()); err == nil {
		_ = conn.Close()
		t.Error("a dead server accepts")
	}
	must.Succeed(t, c.sim.SetFaults(Faults{}))
	c.complete(body("plain", "x"))
}

func TestStartingDead(t *testing.T) {
	t.Parallel()
	s := newSim(t, Config{Faults: Faults{DieAfter: 1}})
	eventually(t, "it is dead", s.dead.Load)
	must.Succeed(t, s.Start(context.Background(), "127.0.0.1:0"))
	c := connect(t, s, s.URL())
	if _, err := c.send(context.Background(), "GET", "/health", ""); err == nil {
		t.Error("a dead server answered")
	}
	if err := s.Stop(context.Background()); err != nil {
		t.Error(err)
	}
	if err := s.SetFaults(Faults{}); err != nil { // a stopped server stays so
		t.Error(err)
	}
	if _, err := c.send(context.Background(), "GET", "/health", ""); err == nil {
		t.Error("a stopped server answered")
	}
}

// TestReviveWaitsForItsAddress takes the address while the server is dead.
func TestReviveWaitsForItsAddress(t *testing.T) {
	t.Parallel()
	c := start(t, Config{})
	must.Succeed(t, c.sim.SetFaults(Faults{DieAfter: 1}))
	var other net.Listener
	eventually(t, "the address is free", func() (taken bool) {
		var err error
		other, err = net.Listen("tcp", c.sim.Addr().String())
		return err == nil
	})
	must.Succeed(t, c.sim.SetFaults(Faults{}))
	if !c.sim.dead.Load() {
		t.Error("revived at an address that is taken")
	}
	_ = other.Close()
	eventually(t, "it is back", func() bool { return !c.sim.dead.Load() })
	c.complete(body("plain", "x"))
}
