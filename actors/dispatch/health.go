package dispatch

import (
	"time"

	"github.com/rowmill/rowmill/engine"
)

// Health decides whether a server is in use, from what its probes and its rows
// say, and when to look at it. It is a plain struct: its owner serialises the
// calls and passes the time in.
//
//	         a probe succeeds                  the breaker opens
//	unknown ──────────────────► up ──────────────────────────► resting
//	                           ▲  │ a probe fails, and no row     │ pause over
//	                           │  ▼ was answered of late          │
//	                           down ◄─────────────────────────────┘
//
// From anywhere it leaves for good.
type Health struct {
	phase   healthPhase
	info    engine.Info
	until   time.Time // resting: the end of the pause
	probing bool      // a probe is on its way
	reading bool      // gauges are being read
	read    time.Time // since when, or when they were last
}

type healthPhase uint8

const (
	unknown healthPhase = iota
	up
	down
	resting
	gone
)

// A Change is what a probe has changed.
type Change uint8

// The changes.
const (
	Same    Change = iota
	Renewed        // it came up, perhaps as another: what is known of its pace is old
	Altered        // it serves other models
	Fell           // it is not in use any more, or still not known
)

// Up reports whether the server is in use.
func (h *Health) Up() bool { return h.phase == up }

// Info is what the server last said of itself.
func (h *Health) Info() engine.Info { return h.info }

// Probe reports whether the server is to be asked what it serves, and takes it
// for asked.
func (h *Health) Probe() bool {
	if h.probing {
		return false
	}
	h.probing = true
	return true
}

// Probed takes what the server said. answers reports that it answered a row
// within the time of a probe: a busy one may be too slow for more.
func (h *Health) Probed(info engine.Info, err error, answers bool, now time.Time) Change {
	h.probing = false
	switch {
	case h.phase == gone, h.phase == resting && now.Before(h.until):
		return Same
	case err == nil:
		return h.rise(info)
	case h.phase == unknown, h.phase == up && !answers:
		if h.phase == up {
			h.phase = down
		}
		return Fell
	case h.phase == resting:
		h.phase = down
	}
	return Same
}

func (h *Health) rise(info engine.Info) Change {
	was, before := h.phase, h.info
	h.phase, h.info = up, info
	switch {
	case was != up, info.Slots != before.Slots:
		return Renewed
	case !info.Same(before):
		return Altered
	}
	return Same
}

// NextProbe is how long to wait for the next look at what the server serves.
func (h *Health) NextProbe(interval time.Duration, now time.Time) time.Duration {
	if h.phase == resting { // until then nothing that it says counts
		return max(0, h.until.Sub(now))
	}
	return interval
}

// Opened takes note that the breaker has opened for so long. It reports whether
// that takes the server out of use.
func (h *Health) Opened(pause time.Duration, now time.Time) bool {
	if h.phase != up {
		return false
	}
	h.phase, h.until = resting, now.Add(pause)
	return true
}

// Leave takes the server out of use for good.
func (h *Health) Leave() { h.phase = gone }

// Read reports whether the gauges are to be read, and takes them for read.
func (h *Health) Read(now time.Time) bool {
	if h.phase != up || h.reading {
		return false
	}
	h.reading, h.read = true, now
	return true
}

// ReadEarly is Read for a window that is full, at least next after the last
// reading, when it was not.
func (h *Health) ReadEarly(next time.Duration, now time.Time) bool {
	return now.Sub(h.read) >= next && h.Read(now)
}

// HasRead ends a reading.
func (h *Health) HasRead() { h.reading = false }
