package access

import (
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/http/request"
)

// limiter limits the requests of each key per minute. A key may send all these requests
// at once. The limiter counts requests of this node only, because a store access for each
// request would cost too much.
type limiter struct {
	now func() time.Time

	mu sync.Mutex
	// full has one time per key: from then on the key may again send the requests of a
	// whole minute. This is the virtual scheduling form of the leaky bucket (ITU-T
	// I.371), with a time in place of the bucket's level.
	full  map[string]time.Time
	sweep int // size of full at which idle keys are dropped
}

// sweepAt is the size of full at which idle keys are first dropped. full holds at most
// about twice as many keys as were active in one minute.
const sweepAt = 1024

func newLimiter(now func() time.Time) *limiter {
	return &limiter{now: now, full: map[string]time.Time{}, sweep: sweepAt}
}

// wait returns how long the next request must wait; 0 if it need not wait.
func (l *limiter) wait(who caller.Principal) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, wait := l.next(who, l.now())
	return wait
}

// next returns the new value of full after one more request, and how long that request
// must wait.
func (l *limiter) next(who caller.Principal, now time.Time) (full time.Time, wait time.Duration) {
	full = l.full[who.KeyID]
	if full.Before(now) {
		full = now
	}
	full = full.Add(time.Minute / time.Duration(who.PerMinute))
	return full, max(0, full.Sub(now)-time.Minute)
}

// take counts a request and returns 0. If the request is one too many, take does not
// count it and returns how long it must wait.
func (l *limiter) take(who caller.Principal) (wait time.Duration) {
	if who.PerMinute <= 0 {
		return 0
	}
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	full, wait := l.next(who, now)
	if wait > 0 {
		return wait
	}
	l.full[who.KeyID] = full
	if len(l.full) >= l.sweep {
		for id, at := range l.full {
			if at.Before(now) {
				delete(l.full, id)
			}
		}
		l.sweep = max(sweepAt, 2*len(l.full))
	}
	return 0
}

// tooMany returns the answer to a request over the limit of its key.
func tooMany(perMinute int, wait time.Duration) *request.Error {
	seconds := strconv.FormatInt(int64((wait+time.Second-1)/time.Second), 10)
	e := request.Errorf(http.StatusTooManyRequests, "rate_limited",
		"this key may send %d requests a minute; wait %s s before the next one", perMinute, seconds)
	e.Header = map[string]string{"Retry-After": seconds}
	return e
}
