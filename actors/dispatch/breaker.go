package dispatch

import "time"

// A breaker stops the rows of a route after a number of failures in a row, even if the
// server still answers probes and rows of other routes. While it is open, no row is sent.
// After a pause it is half-open: a single row is sent, and other rows follow only after
// an answer to that row. A failure does not count if the failed request was sent before
// the last answer to another request: hanging requests end late, and many at once. If a
// server only has too much to do, the window limits its requests, not the breaker.
//
//	closed ── failures in a row ──► open ── its pause is over ──► half-open
//	   ▲                              ▲                             │   │
//	   │                              └───────── a failure ─────────┘   │
//	   └──────────────────────────── an answer ─────────────────────────┘
type breaker struct {
	phase    breakerPhase
	failures int       // in a row
	openings int       // in a row; each has a longer pause
	tried    time.Time // when it last became half-open
}

type breakerPhase uint8

const (
	closed breakerPhase = iota
	open
	halfOpen
)

// breakerFailures is the number of failures in a row that open the breaker. If one row
// in twenty fails by chance, eight failures in a row happen once in 25 billion.
const breakerFailures = 8

// The pause of an open breaker grows from firstPause to lastPause, as long as the
// breaker opens again within lastPause.
const (
	firstPause = time.Second
	lastPause  = 30 * time.Second
)

// answered closes the breaker after an answer.
func (b *breaker) answered() { b.failures, b.phase = 0, closed }

// failed notes a failure. If the breaker opens, it returns the pause.
func (b *breaker) failed(now time.Time) (pause time.Duration, opens bool) {
	b.failures++
	if b.phase != halfOpen && b.failures < breakerFailures {
		return 0, false
	}
	if now.Sub(b.tried) > lastPause {
		b.openings = 0
	}
	pause = min(lastPause, firstPause<<min(b.openings, 8))
	b.openings++
	b.failures, b.phase = 0, open
	return pause, true
}

// rest opens the breaker because the server asked for a pause.
func (b *breaker) rest() { b.failures, b.phase = 0, open }

// try makes an open breaker half-open after its pause, so that one row is sent.
func (b *breaker) try(now time.Time) {
	if b.phase == open {
		b.phase, b.tried = halfOpen, now
	}
}
