package dispatch

import (
	"fmt"
	"strings"
	"time"

	"github.com/rowmill/rowmill/engine"
)

// A pace holds a server to so many requests and tokens a minute. Tokens are counted
// as expected when a request is sent, and as the server says when it has answered.
type pace struct {
	requests, tokens allowance
	timer            *time.Timer // wakes the dispatcher when the next request may go
}

// An allowance is a token bucket. It may fall below zero, and nothing is sent then.
type allowance struct {
	limit float64 // a minute; 0 for none
	left  float64
	at    time.Time // when left was computed
}

func newPace(p engine.Pace) pace {
	return pace{requests: newAllowance(p.Requests), tokens: newAllowance(p.Tokens)}
}

func newAllowance(limit int) allowance {
	a := allowance{limit: float64(limit)}
	a.left = a.most()
	return a
}

// most bounds the burst: the share of a second, and at least one. With more, a busy
// minute after an idle one could exceed the limit.
func (a *allowance) most() float64 { return max(1, a.limit/60) }

// wait is for how long nothing may be sent.
func (a *allowance) wait(now time.Time) time.Duration {
	if a.limit == 0 {
		return 0
	}
	perSecond := (a.limit - (a.most() - 1)) / 60
	if !a.at.IsZero() {
		a.left = min(a.most(), a.left+perSecond*now.Sub(a.at).Seconds())
	}
	if a.at = now; a.left >= 1 {
		return 0
	}
	return time.Duration((1-a.left)/perSecond*float64(time.Second)).Truncate(time.Millisecond) + time.Millisecond
}

// wait is for how long no request may be sent.
func (p *pace) wait(now time.Time) time.Duration {
	return max(p.requests.wait(now), p.tokens.wait(now))
}

// holds reports whether the pace lets no request out now. The dispatcher is woken
// when the next may go.
func (d *Dispatcher) holds(now time.Time) bool {
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

// sent counts a request of so many expected tokens.
func (p *pace) sent(tokens int64) {
	p.requests.left--
	p.tokens.left -= float64(tokens)
}

// ended replaces the expected tokens of a request by the tokens that the server counted. A
// refused request costs none.
func (p *pace) ended(expected int64, seen *evidence) {
	switch {
	case seen.answered:
		p.tokens.left += float64(expected - seen.prompts - seen.tokens)
	case seen.busy || seen.overloaded:
		p.tokens.left += float64(expected)
	}
}

// Paced says which limit by the minute the rows that wait here wait for, and until when;
// empty if they do not.
func (d *Dispatcher) Paced() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	wait := d.pace.wait(now)
	if wait == 0 || d.queued == 0 {
		return ""
	}
	return fmt.Sprintf("this node sends at most %s; the next request goes at %s", d.pace.limits(), now.Add(wait).UTC().Format("15:04:05 UTC"))
}

// warning says that the server is held to a pace; empty where it is not.
func (p *pace) warning(name string) string {
	limits := p.limits()
	if limits == "" {
		return ""
	}
	return fmt.Sprintf("each node sends the engine %s at most %s", name, limits)
}

// limits names the limits by the minute and their settings; empty if there are none.
func (p *pace) limits() string {
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
