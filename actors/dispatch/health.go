package dispatch

import (
	"errors"
	"syscall"
	"time"

	"github.com/rowmill/rowmill/engine"
)

// Health decides whether a server is in use, from what its probes say, and when
// its gauges are read. That rows of one model fail is the business of their route.
// It is a plain struct: its owner serialises the calls and passes the time in.
//
//	         a probe succeeds      a probe fails, and no row was answered of late
//	unknown ──────────────────► up ──────────────────────────────────────────────► down
//	                             ▲                                                   │
//	                             └───────────────── a probe succeeds ────────────────┘
//
// From anywhere it leaves for good.
type Health struct {
	phase   healthPhase
	info    engine.Info
	late    int       // probes in a row that were not answered in time
	probing bool      // a probe is on its way
	reading bool      // gauges are being read
	read    time.Time // since when, or when they were last
}

type healthPhase uint8

const (
	unknown healthPhase = iota
	up
	down
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
// within the time of a probe: a busy one may be too slow for more. Where nobody
// listens nobody is busy.
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

// Gone reports whether a probe says that nobody is there: it failed, and not for want of
// time.
func Gone(err error) bool {
	var timeout interface{ Timeout() bool }
	return err != nil && !(errors.As(err, &timeout) && timeout.Timeout())
}

// mostLate is how many probes in a row a server that was up may leave without an
// answer: one that reads long prompts has been seen to take 10 s for a word about
// its health. One that refuses is down at once.
const mostLate = 2

func (h *Health) excuses(err error) bool {
	var timeout interface{ Timeout() bool }
	if !errors.As(err, &timeout) || !timeout.Timeout() {
		return false
	}
	h.late++
	return h.late <= mostLate
}

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
