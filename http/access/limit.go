package access

import (
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/http/request"
)

// A limiter holds each key to its requests per minute, all of which may come
// at once. It counts the requests of this node alone: a store round trip for
// each would cost more than most requests do.
type limiter struct {
	now func() time.Time

	mu sync.Mutex
	// full is, by key, when a key that rests may send a whole minute's
	// requests again. (This is the virtual scheduling form of the leaky
	// bucket, ITU-T I.371: one time stands for the level of a bucket.)
	full  map[string]time.Time
	sweep int // the size of full at which those that rest are dropped
}

// sweepAt is when a limiter first looks for keys that rest: it remembers no
// more than about twice as many keys as have been busy in one minute.
const sweepAt = 1024

func newLimiter(now func() time.Time) *limiter {
	return &limiter{now: now, full: map[string]time.Time{}, sweep: sweepAt}
}

// wait returns after which time there is room for a request; 0 where there is
// now.
func (l *limiter) wait(who caller.Principal) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, wait := l.next(who, l.now())
	return wait
}

// next is when who may send a whole minute's requests again once one more is
// counted, and how long that one has to wait.
func (l *limiter) next(who caller.Principal, now time.Time) (full time.Time, wait time.Duration) {
	full = l.full[who.KeyID]
	if full.Before(now) {
		full = now
	}
	full = full.Add(time.Minute / time.Duration(who.PerMinute))
	return full, max(0, full.Sub(now)-time.Minute)
}

// take counts a request. Where it is one too many it is not counted, and take
// returns after which time there is room for one.
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

// tooMany is the answer to a request beyond the limit of its key.
func tooMany(perMinute int, wait time.Duration) *request.Error {
	seconds := strconv.FormatInt(int64((wait+time.Second-1)/time.Second), 10)
	e := request.Errorf(http.StatusTooManyRequests, "rate_limited",
		"this key may send %d requests a minute; wait %s s before the next one", perMinute, seconds)
	e.Header = map[string]string{"Retry-After": seconds}
	return e
}
