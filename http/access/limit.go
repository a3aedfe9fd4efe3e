package access

import (
	"cmp"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/http/request"
)

// limiter limits how many requests each key may send per minute. A key may send all these
// requests at once. The limiter counts only the requests to this node, because a store
// access for each request would cost too much.
type limiter struct {
	now func() time.Time

	mu sync.Mutex
	// fullAt has one time per key id: from that time on, the key may again send the
	// requests of a whole minute. This is the virtual scheduling form of the leaky bucket
	// (ITU-T I.371), with a time in place of the bucket's level.
	fullAt    map[string]time.Time
	sweepSize int // size of fullAt at which admitRequest removes idle keys
}

// sweepAt is the size of fullAt at which idle keys are first dropped. fullAt holds at most
// about twice as many keys as were active in one minute, or sweepAt keys.
const sweepAt = 1024

func newLimiter(now func() time.Time) *limiter {
	return &limiter{now: now, fullAt: map[string]time.Time{}, sweepSize: sweepAt}
}

// limitKey identifies the key of a sender. A configured key has no id.
func limitKey(who caller.Principal) string { return cmp.Or(who.KeyID, who.Fingerprint) }

// requiredWait returns how long the next request of a key must wait; 0 if it need not wait.
func (l *limiter) requiredWait(who caller.Principal) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, wait := l.simulateRequest(who, l.now())
	return wait
}

// simulateRequest returns the value of fullAt for a key after one more request, and how long that
// request must wait.
func (l *limiter) simulateRequest(who caller.Principal, now time.Time) (fullAt time.Time, wait time.Duration) {
	fullAt = l.fullAt[limitKey(who)]
	if fullAt.Before(now) {
		fullAt = now
	}
	fullAt = fullAt.Add(time.Minute / time.Duration(who.PerMinute))
	return fullAt, max(0, fullAt.Sub(now)-time.Minute)
}

// admitRequest counts a request of a key and returns 0. If the request is over the limit,
// admitRequest does not count it and returns how long the key must wait.
func (l *limiter) admitRequest(who caller.Principal) (wait time.Duration) {
	if who.PerMinute <= 0 {
		return 0
	}
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	fullAt, wait := l.simulateRequest(who, now)
	if wait > 0 {
		return wait
	}
	l.fullAt[limitKey(who)] = fullAt
	if len(l.fullAt) >= l.sweepSize {
		for id, at := range l.fullAt {
			if at.Before(now) {
				delete(l.fullAt, id)
			}
		}
		l.sweepSize = max(sweepAt, 2*len(l.fullAt))
	}
	return 0
}

// tooManyRequests returns the error for a request over the rate limit of its key.
func tooManyRequests(perMinute int, wait time.Duration) *request.Error {
	seconds := strconv.FormatInt(int64((wait+time.Second-1)/time.Second), 10)
	e := request.Errorf(http.StatusTooManyRequests, "rate_limited",
		"this key may send %d requests a minute; wait %s s before the next one", perMinute, seconds)
	e.Header = map[string]string{"Retry-After": seconds}
	return e
}
