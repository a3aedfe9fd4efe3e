package access

import (
	"testing"
	"time"

	"github.com/rowmill/rowmill/http/caller"
)

func TestLimiter_DropsIdleKeys(t *testing.T) {
	t.Parallel()
	c := &testClock{at: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	l := newLimiter(c.now)
	for i := range 5 * sweepAt {
		c.pass(time.Second)
		if wait := l.admitRequest(caller.Principal{KeyID: string(rune('a'+i%26)) + time.Duration(i).String(), PerMinute: 60}); wait != 0 {
			t.Fatalf("the first request of a key waits %v", wait)
		}
	}
	if len(l.fullAt) > sweepAt {
		t.Errorf("%d keys are remembered", len(l.fullAt))
	}
}

// Configured keys have no id. Each has its own limit too.
func TestLimiter_ConfiguredKeys(t *testing.T) {
	t.Parallel()
	c := &testClock{at: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	l := newLimiter(c.now)
	for _, fingerprint := range []string{"one", "two"} {
		who := caller.Principal{Fingerprint: fingerprint, PerMinute: 1}
		if first, second := l.admitRequest(who), l.admitRequest(who); first != 0 || second == 0 {
			t.Errorf("key %s waits %v, then %v; want no wait only for the first request", fingerprint, first, second)
		}
	}
}

func TestLimiter_ExactLimitPerMinute(t *testing.T) {
	t.Parallel()
	for _, perMinute := range []int{1, 2, 7, 59, 60, 61, 1000, 1_000_000} {
		c := &testClock{at: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
		l := newLimiter(c.now)
		who := caller.Principal{KeyID: "k", PerMinute: perMinute}
		taken := 0
		for l.admitRequest(who) == 0 {
			taken++
		}
		if taken != perMinute {
			t.Errorf("%d requests at once at %d a minute", taken, perMinute)
		}
	}
}
