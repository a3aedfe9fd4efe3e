// Package retry repeats failed calls to other programs: it decides how long to pause
// and when to give up. All its policies are in one list, so that they can be compared.
// Retries of rows, backoff for inference servers and the search for cluster members are
// not here: actors/dispatch and cluster time them. The caller decides which errors are
// worth a retry.
package retry

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// A Policy holds the limits of a retry.
type Policy struct {
	// First is the longest pause after the first failure. This limit doubles with each
	// further failure, up to Most. A pause is random, between half of the limit and the
	// limit, so that the clients of a failed server return at different times.
	First, Most time.Duration
	// For is how long after the first try another try may start. Zero means no limit.
	For time.Duration
	// Tries is the largest number of tries. Zero means no limit.
	Tries int
}

// The policies of the program.
var (
	// Storage is for a store or a bucket that does not answer. It never gives up: a
	// retry every 3 s costs the server little, and soon after the server is back, a
	// retry succeeds.
	Storage = Policy{First: 100 * time.Millisecond, Most: 3 * time.Second}

	// Sessions is for a node that has lost its session and opens a new one. Without a
	// session the node can do nothing.
	Sessions = Policy{First: time.Second, Most: time.Second}

	// StopWorker is for stopping a worker on a node that is still starting it.
	StopWorker = Policy{First: 20 * time.Millisecond, Most: 20 * time.Millisecond}

	// Redis is for one call of a server that fails over. Callers wait, so the first
	// retry comes soon. The store's settings limit the total time.
	Redis = Policy{First: 15 * time.Millisecond, Most: 750 * time.Millisecond}

	// Contention is for a write that conflicts with concurrent writes. One round of all
	// writers takes milliseconds; the limit allows hundreds of rounds.
	Contention = Policy{First: 2 * time.Millisecond, Most: 250 * time.Millisecond, For: 30 * time.Second}

	// Objects is for one call of an S3 server, for as long as a client may wait for an
	// answer. After that, jobs retry by themselves.
	Objects = Policy{First: 100 * time.Millisecond, Most: 3 * time.Second, For: 10 * time.Second}

	// Sinks is for a file that a job writes to a sink. The rows are safe meanwhile. After half an
	// hour the job fails: somebody checks the sink, and resumes the job.
	Sinks = Policy{First: time.Second, Most: 30 * time.Second, For: 30 * time.Minute}

	// Transfers is for a download that makes no progress. Its retries take half a
	// minute in total, long enough for a restart of the service.
	Transfers = Policy{First: time.Second, Most: 10 * time.Second, Tries: 7}

	// Spans is for sending spans to a collector. A minute is longer than the restart of
	// a collector. Nothing waits for the spans, and newer spans are worth more.
	Spans = Policy{First: time.Second, Most: 10 * time.Second, For: time.Minute}
)

// Chance returns a random number from 0 to n-1. All random pauses use it. A
// deterministic simulation replaces this variable before anything runs.
var Chance = rand.Int64N

// Jitter returns a random duration from 0 to less than d, which must be positive.
func Jitter(d time.Duration) time.Duration { return time.Duration(Chance(int64(d))) }

// jitteredBackOff computes the pauses of a policy for the backoff library; see Policy.First.
type jitteredBackOff struct{ next, most time.Duration }

func (g *jitteredBackOff) Reset() {}

func (g *jitteredBackOff) NextBackOff() time.Duration {
	longest := min(g.next, g.most)
	g.next = 2 * longest
	return longest/2 + Jitter(longest/2+1)
}

// WithTimeLimit returns a copy of p that retries for at most d after the first try (its limit
// For).
func (p Policy) WithTimeLimit(d time.Duration) Policy {
	p.For = d
	return p
}

// Do calls do until it succeeds, its error is not retryable, p gives up, or ctx ends.
// It returns the result of the last call of do. notify gets each error that is retried;
// it may be nil.
func (p Policy) Do(ctx context.Context, do func() error, retryable func(error) bool, notify func(error)) error {
	var last error
	failed := false
	notifyUnlimited, _ := ctx.Value(unlimitedKey{}).(func(error))
	if notifyUnlimited != nil {
		p.For, p.Tries = 0, 0
	}
	_, _ = backoff.Retry(ctx, func() (struct{}, error) {
		if last = do(); last != nil && !retryable(last) {
			return struct{}{}, backoff.Permanent(last)
		}
		return struct{}{}, last
	},
		backoff.WithBackOff(&jitteredBackOff{p.First, p.Most}),
		backoff.WithMaxElapsedTime(p.For), backoff.WithMaxTries(uint(p.Tries)),
		backoff.WithNotify(func(err error, _ time.Duration) {
			if notify != nil {
				notify(err)
			}
			if notifyUnlimited != nil {
				failed = true
				notifyUnlimited(err)
			}
		}))
	if failed {
		notifyUnlimited(nil)
	}
	return last
}
