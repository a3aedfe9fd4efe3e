package dispatch

import "time"

// A breaker stops sending rows of a route whose server answers none of them any
// more, however well it answers probes and others: after a number of failures in
// a row it opens, and then, half-open, lets a single row through, which must be
// answered before others follow. The failure of a request that was sent before
// another was answered is none: requests that hang end late, and many at once. A
// server that only has too much to do is the window's business.
//
//	closed ── failures in a row ──► open ── its pause is over ──► half-open
//	   ▲                              ▲                             │   │
//	   │                              └───────── a failure ─────────┘   │
//	   └──────────────────────────── an answer ─────────────────────────┘
type breaker struct {
	phase    breakerPhase
	failures int       // in a row
	openings int       // in a row, each with a longer pause
	tried    time.Time // when it last became half-open
}

type breakerPhase uint8

const (
	closed breakerPhase = iota
	open
	halfOpen
)

// breakerFailures is how many failures in a row open the breaker: with one row
// in twenty failing by chance, eight in a row come once in 25 billion.
const breakerFailures = 8

// The pause of an open breaker grows from firstPause to lastPause, as long as
// it opens again within lastPause.
const (
	firstPause = time.Second
	lastPause  = 30 * time.Second
)

func (b *breaker) answered() { b.failures, b.phase = 0, closed }

// failed notes a failure. Where the breaker opens it returns for how long.
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

// rest opens the breaker because the server has asked for a pause.
func (b *breaker) rest() { b.failures, b.phase = 0, open }

// try lets a row through after the pause.
func (b *breaker) try(now time.Time) {
	if b.phase == open {
		b.phase, b.tried = halfOpen, now
	}
}
