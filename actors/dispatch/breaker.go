package dispatch

import "time"

// A breaker stops the rows of a route after a number of consecutive failures, even if the
// server still answers probes and rows of other routes. While the breaker is open, no row
// is sent. After a pause it is half-open: a single row is sent, and other rows follow after
// an answer to this row. A failure does not count if the failed request was sent before
// the last answer to another request: hanging requests end late, and many at once. If a
// server only has too much to do, the window limits its requests, not the breaker.
//
//	closed ── failures in a row ──► open ── pause has ended ────► half-open
//	   ▲                              ▲                             │   │
//	   │                              └───────── a failure ─────────┘   │
//	   └──────────────────────────── an answer ─────────────────────────┘
type breaker struct {
	phase    breakerPhase
	failures int       // number of consecutive failures
	openings int       // number of consecutive openings; the pause grows with each opening
	tried    time.Time // when the breaker last became half-open
}

type breakerPhase uint8

const (
	closed breakerPhase = iota
	open
	halfOpen
)

// breakerFailures is the number of consecutive failures that open the breaker. If one
// row in twenty fails by chance, eight consecutive failures happen once in 25 billion.
const breakerFailures = 8

// The pause of an open breaker grows from firstPause to lastPause. It starts again at
// firstPause if more than lastPause has passed since the breaker was last half-open.
const (
	firstPause = time.Second
	lastPause  = 30 * time.Second
)

// recordAnswer closes the breaker, because the server has answered a row.
func (b *breaker) recordAnswer() { b.failures, b.phase = 0, closed }

// recordFailure counts a failed request. opens is true if the breaker opens now; pause is then
// the time until the breaker becomes half-open.
func (b *breaker) recordFailure(now time.Time) (pause time.Duration, opens bool) {
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

// forceOpen opens the breaker, because the server asked for a pause.
func (b *breaker) forceOpen() { b.failures, b.phase = 0, open }

// allowTrial makes an open breaker half-open after its pause, so that one row can be sent.
func (b *breaker) allowTrial(now time.Time) {
	if b.phase == open {
		b.phase, b.tried = halfOpen, now
	}
}
