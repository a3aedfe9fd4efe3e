package dispatch

import "time"

// A latency is how fast a server answers, as seen from here: what a request takes
// for each token of its answer, the wait in the server's queue included, and
// how many answers come per second.
type latency struct {
	slowest float64 // seconds per token, of the slowest of late
	longest int64   // tokens of an answer, ever
	gap     float64 // seconds between answers, smoothed over smoothing of them, from 0
	gaps    int     // of which it is made
	last    time.Time
}

const (
	// spare is how much slower than the slowest of late a request may be.
	spare = 4
	// overhead stands for prompt and queue in the time per token, in tokens.
	overhead = 16
	// An answer without a limit of its own is not expected to be longer than
	// leastLongest tokens or spare times the longest that has come.
	leastLongest = 4096
	// forget is how fast the slowest is forgotten, per answer.
	forget = 0.999
)

// answered notes a request of so many rows, whose answers had so many tokens.
func (l *latency) answered(rows int, tokens int64, took time.Duration, now time.Time) {
	l.longest = max(l.longest, tokens)
	l.slowest = max(l.slowest*forget, took.Seconds()/float64(tokens+overhead))
	if !l.last.IsZero() {
		l.gap += (now.Sub(l.last).Seconds()/float64(rows) - l.gap) / smoothing
		l.gaps++
	}
	l.last = now
}

// timeout is how long an answer of at most so many tokens (0 for no limit) may
// take; 0 while nothing is known.
func (l *latency) timeout(tokens int) time.Duration {
	if tokens == 0 {
		tokens = max(leastLongest, int(spare*l.longest))
	}
	return time.Duration(spare * l.slowest * float64(tokens+overhead) * float64(time.Second))
}

// smoothing is over how many gaps the time between answers is smoothed.
const smoothing = 64

// settled reports whether gap is what answers take, within a fiftieth, and not what is
// left of its beginning.
func (l *latency) settled() bool { return l.gaps >= 4*smoothing }

// within is how many answers come within d.
func (l *latency) within(d time.Duration) int {
	if l.gap <= 0 {
		return 0
	}
	return int(min(d.Seconds()/l.gap, 1<<20))
}
