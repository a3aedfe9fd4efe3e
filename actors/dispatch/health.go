package dispatch

import (
	"errors"
	"syscall"
	"time"

	"github.com/rowmill/rowmill/engine"
)

// Health decides from probes whether a server is in use, and when its gauges are read.
// If only the rows of a single model fail, their route rests and the server stays in
// use. It is a plain struct: its owner makes one call at a time and passes the time in.
//
//	         a probe succeeds      a probe fails, and no row was answered lately
//	unknown ──────────────────► up ──────────────────────────────────────────────► down
//	                             ▲                                                   │
//	                             └───────────────── a probe succeeds ────────────────┘
//
// Leave moves the server from every state to gone.
type Health struct {
	phase   healthPhase
	info    engine.Info
	late    int       // probes in a row that timed out
	probing bool      // a probe is running
	reading bool      // gauges are being read
	read    time.Time // when the last reading started or ended
}

type healthPhase uint8

const (
	unknown healthPhase = iota
	up
	down
	gone
)

// A Change is the effect of a probe on the state.
type Change uint8

// The possible changes.
const (
	Same    Change = iota
	Renewed        // the server came up, or it may be another server: its speed is measured again
	Altered        // it serves other models
	Fell           // the server went down, or is still unknown
)

// Up reports whether the server is in use.
func (h *Health) Up() bool { return h.phase == up }

// Info returns the last answer to a probe.
func (h *Health) Info() engine.Info { return h.info }

// StartProbe reports whether to start a probe now, and notes that it has started.
func (h *Health) StartProbe() bool {
	if h.probing {
		return false
	}
	h.probing = true
	return true
}

// Probed takes the result of a probe. answers says that the server answered a row during
// the probe: a busy server may answer rows and be late with a probe. A refused
// connection is never a sign of a busy server.
func (h *Health) Probed(info engine.Info, err error, answers bool) Change {
	h.probing = false
	switch {
	case h.phase == gone:
		return Same
	case err == nil:
		return h.rise(info)
	case h.phase == unknown:
		return Fell
	case h.phase == up && (errors.Is(err, syscall.ECONNREFUSED) || !answers && !h.excuses(err)):
		h.phase = down
		return Fell
	}
	return Same
}

// Gone reports whether a probe shows that the server is not there: the probe failed, and
// not with a timeout.
func Gone(err error) bool {
	return err != nil && !timedOut(err)
}

func timedOut(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.As(err, &timeout) && timeout.Timeout()
}

// mostLate is the number of probes in a row that may time out before a server counts as
// down: a server that read long prompts once took 10 s to answer a probe. If the server
// refuses the connection, it counts as down at once.
const mostLate = 2

// excuses reports whether a probe with this error says nothing about the server: it timed
// out, and at most mostLate probes in a row have timed out.
func (h *Health) excuses(err error) bool {
	if !timedOut(err) {
		return false
	}
	h.late++
	return h.late <= mostLate
}

// rise notes a successful probe.
func (h *Health) rise(info engine.Info) Change {
	was, before := h.phase, h.info
	h.phase, h.info, h.late = up, info, 0
	switch {
	case was != up, info.Slots != before.Slots:
		return Renewed
	case !info.Same(before):
		return Altered
	}
	return Same
}

// Leave takes the server out of use for good.
func (h *Health) Leave() { h.phase = gone }

// Read reports whether to read the gauges now, and notes that a reading has started.
func (h *Health) Read(now time.Time) bool {
	if h.phase != up || h.reading {
		return false
	}
	h.reading, h.read = true, now
	return true
}

// ReadEarly is Read for a window that has become full. It requires that the last reading
// is at least next ago.
func (h *Health) ReadEarly(next time.Duration, now time.Time) bool {
	return now.Sub(h.read) >= next && h.Read(now)
}

// HasRead notes the end of a reading.
func (h *Health) HasRead() { h.reading = false }
