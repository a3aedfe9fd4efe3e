// Package retry owns how the program repeats what has failed and may succeed
// later: how long it pauses, and when it gives up. Every call of another
// program that is repeated goes by one of the policies below, so that they can be
// compared. Rows that wait for another attempt, servers that rest and members
// that are looked for are no calls: actors/dispatch and cluster pace them. Which errors pass by themselves
// it does not know: whoever calls says so.
package retry

import (
	"context"
	"math/rand/v2"
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
	// Storage is for a store or a bucket that is away, as long as it is: what
	// finds it back soon costs it little meanwhile.
	Storage = Policy{First: 100 * time.Millisecond, Most: 3 * time.Second}

	// Sessions is for the session of a node that has lost its own. Without one
	// it has nothing else to do.
	Sessions = Policy{First: time.Second, Most: time.Second}

	// Dismissals is for a node that is busy with setting up the very worker
	// that it shall stop.
	Dismissals = Policy{First: 20 * time.Millisecond, Most: 20 * time.Millisecond}

	// Redis is for one call of a server that fails over. Callers wait for it, so
	// the first repetition comes soon; its bound is in the store's settings.
	Redis = Policy{First: 15 * time.Millisecond, Most: 750 * time.Millisecond}

	// Contention is for a change of what others change at the same moment. A
	// round of all takes milliseconds; its bound is for hundreds of them.
	Contention = Policy{First: 2 * time.Millisecond, Most: 250 * time.Millisecond, For: 30 * time.Second}

	// Objects is for one call of an S3 server: as long as a client may wait for
	// an answer. Jobs wait beyond it by their own.
	Objects = Policy{First: 100 * time.Millisecond, Most: 3 * time.Second, For: 10 * time.Second}

	// Transfers is for a download that brings nothing any more. Together half a
	// minute: long enough for a restart of the service.
	Transfers = Policy{First: time.Second, Most: 10 * time.Second, Tries: 7}

	// Spans is for what a collector is told. A minute is longer than one takes to
	// restart; nobody waits for it, and what came later is worth more.
	Spans = Policy{First: time.Second, Most: 10 * time.Second, For: time.Minute}
)

// Chance returns a random number from 0 to n-1, as all pauses that are random
// come by theirs. A simulation that shall be repeated replaces it before
// anything runs.
var Chance = rand.Int64N

// Jitter is a random part of d, which must be positive.
func Jitter(d time.Duration) time.Duration { return time.Duration(Chance(int64(d))) }

// growing are the pauses of a policy, see First and Most.
type growing struct{ next, most time.Duration }

func (g *growing) Reset() {}

func (g *growing) NextBackOff() time.Duration {
	longest := min(g.next, g.most)
	g.next = 2 * longest
	return longest/2 + Jitter(longest/2+1)
}

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
	failed := false
	patient, _ := ctx.Value(patience{}).(func(error))
	if patient != nil {
		p.For, p.Tries = 0, 0
	}
	_, _ = backoff.Retry(ctx, func() (struct{}, error) {
		if last = do(); last != nil && !again(last) {
			return struct{}{}, backoff.Permanent(last)
		}
		return struct{}{}, last
	},
		backoff.WithBackOff(&growing{p.First, p.Most}),
		backoff.WithMaxElapsedTime(p.For), backoff.WithMaxTries(uint(p.Tries)),
		backoff.WithNotify(func(err error, _ time.Duration) {
			if told != nil {
				told(err)
			}
			if patient != nil {
				failed = true
				patient(err)
			}
		}))
	if failed {
		patient(nil)
	}
	return last
}
