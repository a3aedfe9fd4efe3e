package dispatch

import "time"

// A latency measures the speed of a server, as seen from here: the time of a request for
// each token of its answer, including the wait in the server's queue, and the rate of
// answers.
type latency struct {
	slowest float64 // seconds per token of the slowest recent request
	longest int64   // tokens of the longest answer so far
	gap     float64 // seconds between answers: a moving average that starts at 0
	gaps    int     // number of gaps in the average
	last    time.Time
}

const (
	// spare is how many times slower than the slowest recent request a request may be.
	spare = 4
	// overhead counts the prompt and the queue as this many tokens.
	overhead = 16
	// An answer without a limit is expected to have at most leastLongest tokens, or spare
	// times the tokens of the longest answer so far, if that is more.
	leastLongest = 4096
	// forget is the factor by which slowest decays with each answer.
	forget = 0.999
)

// answered notes a request with this many rows and tokens in its answers.
func (l *latency) answered(rows int, tokens int64, took time.Duration, now time.Time) {
	l.longest = max(l.longest, tokens)
	l.slowest = max(l.slowest*forget, took.Seconds()/float64(tokens+overhead))
	if !l.last.IsZero() {
		l.gap += (now.Sub(l.last).Seconds()/float64(rows) - l.gap) / smoothing
		l.gaps++
	}
	l.last = now
}

// timeout returns how long an answer of at most this many tokens (0 for no limit) may
// take; 0 while the speed is unknown.
func (l *latency) timeout(tokens int) time.Duration {
	if tokens == 0 {
		tokens = max(leastLongest, int(spare*l.longest))
	}
	return time.Duration(spare * l.slowest * float64(tokens+overhead) * float64(time.Second))
}

// smoothing is the number of gaps in the average time between answers.
const smoothing = 64

// settled reports whether the average has enough gaps: the start at 0 changes it by less
// than a fiftieth.
func (l *latency) settled() bool { return l.gaps >= 4*smoothing }

// within returns the expected number of answers within d.
func (l *latency) within(d time.Duration) int {
	if l.gap <= 0 {
		return 0
	}
	return int(min(d.Seconds()/l.gap, 1<<20))
}
