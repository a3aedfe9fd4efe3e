// Package retry owns how the program repeats what has failed and may succeed
// later: how long it pauses, and when it gives up. Every call of another
// program that is repeated goes by one of the policies below, so that they can be
// compared. Rows that wait for another attempt, servers that rest and members
// that are looked for are no calls: actors/dispatch and cluster pace them. Which errors pass by themselves
// it does not know: whoever calls says so.
package retry

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// A Policy says when something is tried again.
type Policy struct {
	// The pause after the first failure is at most First, which doubles with each
	// further one up to Most. Pauses are random between half of that and all of
	// it, so that those whom one failure struck do not come back together.
	First, Most time.Duration
	// For is how long after its begin a call may still be repeated. Zero: it
	// does not matter.
	For time.Duration
	// Tries is how often it is tried in all. Zero: it does not matter.
	Tries int
}

// The policies of the program.
var (
	// Storage is for a store or a bucket that fails while it restarts. Its
	// callers bound it by the operator's patience.
	Storage = Policy{First: 100 * time.Millisecond, Most: 2 * time.Second}

	// Commits is for finished parts that the store refuses. The last try comes
	// after more than a minute: enough for a store that restarts.
	Commits = Policy{First: 500 * time.Millisecond, Most: 4 * time.Second, For: 65 * time.Second}

	// Endings is for the record of a job's failure, which is written as often
	// as it takes: a disk that was full has room again some time.
	Endings = Policy{First: 250 * time.Millisecond, Most: 10 * time.Second}

	// Sessions is for the session of a node that has lost its own. Without one
	// it has nothing else to do.
	Sessions = Policy{First: time.Second, Most: time.Second}

	// Dismissals is for a node that is busy with setting up the very worker
	// that it shall stop.
	Dismissals = Policy{First: 20 * time.Millisecond, Most: 20 * time.Millisecond}

	// Redis is for one call of a server that fails over. Callers wait for it, so
	// the first repetition comes soon; its bound is in the store's settings.
	Redis = Policy{First: 15 * time.Millisecond, Most: 750 * time.Millisecond}

	// Objects is for one call of an S3 server, for as long as it takes to
	// restart.
	Objects = Policy{First: 100 * time.Millisecond, Most: 3 * time.Second, For: 30 * time.Second}

	// Transfers is for a download that brings nothing any more. Together half a
	// minute: long enough for a restart of the service.
	Transfers = Policy{First: time.Second, Most: 10 * time.Second, Tries: 7}
)

// A pause varies by a third about three quarters of the longest: from half of it
// to all of it.
const middle, swing = 0.75, 1.0 / 3

// Within is p with another bound of time.
func (p Policy) Within(d time.Duration) Policy {
	p.For = d
	return p
}

// Do calls do until it succeeds, again says of its error that no repetition
// helps, p gives up or ctx ends, and returns what do returned last. told, unless
// it is nil, hears of each error after which there will be another try.
func (p Policy) Do(ctx context.Context, do func() error, again func(error) bool, told func(error)) error {
	var last error
	_, _ = backoff.Retry(ctx, func() (struct{}, error) {
		if last = do(); last != nil && !again(last) {
			return struct{}{}, backoff.Permanent(last)
		}
		return struct{}{}, last
	},
		backoff.WithBackOff(&backoff.ExponentialBackOff{
			InitialInterval: time.Duration(middle * float64(p.First)), MaxInterval: time.Duration(middle * float64(p.Most)),
			Multiplier: 2, RandomizationFactor: swing,
		}),
		backoff.WithMaxElapsedTime(p.For), backoff.WithMaxTries(uint(p.Tries)),
		backoff.WithNotify(func(err error, _ time.Duration) {
			if told != nil {
				told(err)
			}
		}))
	return last
}
