package dispatch

import (
	"fmt"
	"strings"
	"time"

	"github.com/rowmill/rowmill/engine"
)

// A rateLimiter limits the requests and tokens per minute that are sent to a server. The
// expected tokens of a request count at its start; at its end the server's count
// replaces them.
type rateLimiter struct {
	requests, tokens tokenBucket
	timer            *time.Timer // wakes the dispatcher when the next request may be sent
}

// A tokenBucket is a token bucket: a limit of requests or tokens per minute. Its content
// may be below zero; then nothing is sent.
type tokenBucket struct {
	limit float64   // maximum per minute; 0 for no limit
	left  float64   // requests or tokens that may be sent now
	at    time.Time // when left was computed
}

func newRateLimiter(p engine.RateLimit) rateLimiter {
	return rateLimiter{requests: newTokenBucket(p.Requests), tokens: newTokenBucket(p.Tokens)}
}

func newTokenBucket(limit int) tokenBucket {
	a := tokenBucket{limit: float64(limit)}
	a.left = a.maxBurst()
	return a
}

// maxBurst returns the largest burst: a sixtieth of the limit per minute, but at least one.
// With larger bursts, a busy minute after an idle minute could exceed the limit.
func (a *tokenBucket) maxBurst() float64 { return max(1, a.limit/60) }

// wait returns how long to wait until this limit allows the next request.
func (a *tokenBucket) wait(now time.Time) time.Duration {
	if a.limit == 0 {
		return 0
	}
	perSecond := (a.limit - (a.maxBurst() - 1)) / 60
	if !a.at.IsZero() {
		a.left = min(a.maxBurst(), a.left+perSecond*now.Sub(a.at).Seconds())
	}
	if a.at = now; a.left >= 1 {
		return 0
	}
	return time.Duration((1-a.left)/perSecond*float64(time.Second)).Truncate(time.Millisecond) + time.Millisecond
}

// wait returns how long to wait until both limits allow the next request.
func (p *rateLimiter) wait(now time.Time) time.Duration {
	return max(p.requests.wait(now), p.tokens.wait(now))
}

// mustWait reports whether the limits per minute allow no request now. If rows wait, it
// starts a timer that wakes the Dispatcher when the next request may be sent.
func (d *Dispatcher) mustWait(now time.Time) bool {
	p := &d.pace
	wait := p.wait(now)
	if wait == 0 || d.queued == 0 {
		return wait > 0
	}
	if p.timer == nil {
		p.timer = time.AfterFunc(wait, func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.wake()
		})
		return true
	}
	p.timer.Reset(wait)
	return true
}

// countRequest counts a request with this many expected tokens.
func (p *rateLimiter) countRequest(tokens int64) {
	p.requests.left--
	p.tokens.left -= float64(tokens)
}

// correctTokens replaces the expected tokens of a request by the server's count after the
// request has ended. A request that the server refused costs no tokens.
func (p *rateLimiter) correctTokens(expected int64, seen *requestResult) {
	switch {
	case seen.answered:
		p.tokens.left += float64(expected - seen.prompts - seen.tokens)
	case seen.busy || seen.overloaded:
		p.tokens.left += float64(expected)
	}
}

// RateLimitMessage returns a message if waiting rows wait for a limit per minute: the limits, and
// the time of the next request. It is empty if the rows wait for no limit.
func (d *Dispatcher) RateLimitMessage() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	wait := d.pace.wait(now)
	if wait == 0 || d.queued == 0 {
		return ""
	}
	return fmt.Sprintf("this node sends at most %s; the next request goes at %s", d.pace.limits(), now.Add(wait).UTC().Format("15:04:05 UTC"))
}

// warning returns a message with the limits of the server; empty if there are none.
func (p *rateLimiter) warning(name string) string {
	limits := p.limits()
	if limits == "" {
		return ""
	}
	return fmt.Sprintf("each node sends the engine %s at most %s", name, limits)
}

// limits returns the limits per minute and their settings; empty if there are none.
func (p *rateLimiter) limits() string {
	var limits []string
	if p.requests.limit > 0 {
		limits = append(limits, fmt.Sprintf("%.0f requests", p.requests.limit))
	}
	if p.tokens.limit > 0 {
		limits = append(limits, fmt.Sprintf("%.0f tokens", p.tokens.limit))
	}
	if len(limits) == 0 {
		return ""
	}
	return strings.Join(limits, " and ") + " a minute (max_requests_per_minute, max_tokens_per_minute)"
}
