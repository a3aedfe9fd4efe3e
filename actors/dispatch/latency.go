package dispatch

import "time"

// A latency measures the speed of a server from its answers: the time of a request for
// each token of its answer, including the wait in the server's queue, and the rate of
// answers.
type latency struct {
	slowest float64   // seconds per token of the slowest recent request
	longest int64     // tokens of the longest answer so far
	gap     float64   // average seconds between two answers: a moving average that starts at 0
	gaps    int       // number of times between answers in the average gap
	last    time.Time // when the last answer arrived
}

const (
	// timeoutFactor is the factor by which a request may be slower than the slowest recent request.
	timeoutFactor = 4
	// overhead is the number of tokens that stands for the time of the prompt and the queue.
	overhead = 16
	// leastLongest is the number of tokens that an answer without a limit may have. If
	// timeoutFactor times the longest answer so far is more, that number counts.
	leastLongest = 4096
	// slowestDecay is the factor by which latency.slowest shrinks with each answer.
	slowestDecay = 0.999
)

// recordAnswer records a request that took took. Its answers have this many rows and
// tokens.
func (l *latency) recordAnswer(rows int, tokens int64, took time.Duration, now time.Time) {
	l.longest = max(l.longest, tokens)
	l.slowest = max(l.slowest*slowestDecay, took.Seconds()/float64(tokens+overhead))
	if !l.last.IsZero() {
		l.gap += (now.Sub(l.last).Seconds()/float64(rows) - l.gap) / smoothing
		l.gaps++
	}
	l.last = now
}

// timeout returns how long an answer of at most this many tokens may take. tokens is 0
// if the answer has no limit. The result is 0 while the speed is unknown.
func (l *latency) timeout(tokens int) time.Duration {
	if tokens == 0 {
		tokens = max(leastLongest, int(timeoutFactor*l.longest))
	}
	return time.Duration(timeoutFactor * l.slowest * float64(tokens+overhead) * float64(time.Second))
}

// smoothing is the number of times between answers over which gap is averaged.
const smoothing = 64

// settled reports whether gap is averaged over enough answers: its start value 0
// changes it by less than a fiftieth.
func (l *latency) settled() bool { return l.gaps >= 4*smoothing }

// answersWithin returns the number of answers that are expected within the time d.
func (l *latency) answersWithin(d time.Duration) int {
	if l.gap <= 0 {
		return 0
	}
	return int(min(d.Seconds()/l.gap, 1<<20))
}
