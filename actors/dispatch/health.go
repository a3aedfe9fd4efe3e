package dispatch

import (
	"errors"
	"syscall"
	"time"

	"github.com/rowmill/rowmill/engine"
)

// ServerHealth decides from probes whether a server is in use, and when its gauges are read. If
// only the rows of a single model fail, the route of this model rests and the server stays
// in use. ServerHealth has no lock and no clock: only one call may run at a time, and the caller
// passes the time in.
//
//	         a probe succeeds      a probe fails, and no row was answered lately
//	unknown ──────────────────► up ──────────────────────────────────────────────► down
//	                             ▲                                                   │
//	                             └───────────────── a probe succeeds ────────────────┘
//
// The method Leave changes any state to gone.
type ServerHealth struct {
	phase   healthPhase
	info    engine.ServerInfo // the last successful answer to a probe
	late    int               // number of consecutive probes that timed out
	probing bool              // a probe is running
	reading bool              // the gauges are being read
	read    time.Time         // when the last reading of the gauges started
}

type healthPhase uint8

const (
	unknown healthPhase = iota
	up
	down
	gone
)

// A HealthChange is what a probe has changed for the server.
type HealthChange uint8

// The possible results of a probe.
const (
	Same    HealthChange = iota // nothing has changed
	Renewed                     // the server came up, or may be another server: its speed is measured again
	Altered                     // the server serves other models
	Fell                        // the server went down, or has never answered a probe
)

// Up reports whether the server is in use.
func (h *ServerHealth) Up() bool { return h.phase == up }

// Info returns the server's information from the last successful probe.
func (h *ServerHealth) Info() engine.ServerInfo { return h.info }

// StartProbe returns true if the caller should start a probe now, and then records that
// a probe runs.
func (h *ServerHealth) StartProbe() bool {
	if h.probing {
		return false
	}
	h.probing = true
	return true
}

// RecordProbe processes the result of a probe. answers means that the server answered a row
// during the probe: a busy server may answer rows and be late with a probe. A refused
// connection is never a sign of a busy server.
func (h *ServerHealth) RecordProbe(info engine.ServerInfo, err error, answers bool) HealthChange {
	h.probing = false
	switch {
	case h.phase == gone:
		return Same
	case err == nil:
		return h.markUp(info)
	case h.phase == unknown:
		return Fell
	case h.phase == up && (errors.Is(err, syscall.ECONNREFUSED) || !answers && !h.toleratesTimeout(err)):
		h.phase = down
		return Fell
	}
	return Same
}

// IsServerGone reports whether the error of a probe shows that the server does not run: the
// probe failed, and not by a timeout.
func IsServerGone(err error) bool {
	return err != nil && !timedOut(err)
}

// timedOut reports whether err is a timeout.
func timedOut(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.As(err, &timeout) && timeout.Timeout()
}

// mostLate is the maximum number of consecutive probes that may time out before the
// server counts as down: a server that read long prompts once took 10 s to answer a
// probe. A server that refuses the connection counts as down at once.
const mostLate = 2

// toleratesTimeout reports whether a failed probe does not show that the server is down: the
// probe timed out, and at most mostLate consecutive probes have timed out.
func (h *ServerHealth) toleratesTimeout(err error) bool {
	if !timedOut(err) {
		return false
	}
	h.late++
	return h.late <= mostLate
}

// markUp processes a successful probe with the answer info.
func (h *ServerHealth) markUp(info engine.ServerInfo) HealthChange {
	was, before := h.phase, h.info
	h.phase, h.info, h.late = up, info, 0
	switch {
	case was != up, info.Slots != before.Slots:
		return Renewed
	case !info.EqualIgnoringVersion(before):
		return Altered
	}
	return Same
}

// Leave takes the server out of use permanently.
func (h *ServerHealth) Leave() { h.phase = gone }

// StartReading returns true if the caller should read the gauges now, and then records that a
// reading has started.
func (h *ServerHealth) StartReading(now time.Time) bool {
	if h.phase != up || h.reading {
		return false
	}
	h.reading, h.read = true, now
	return true
}

// StartEarlyReading is StartReading for a window that has become full. It returns false if
// less than next has passed since the last reading started.
func (h *ServerHealth) StartEarlyReading(next time.Duration, now time.Time) bool {
	return now.Sub(h.read) >= next && h.StartReading(now)
}

// EndReading records that a reading of the gauges has ended.
func (h *ServerHealth) EndReading() { h.reading = false }
