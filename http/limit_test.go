package http

import (
	"testing"
	"time"
)

func TestLimit_TooManyRequestsAndRetryAfter(t *testing.T) {
	t.Parallel()
	c := &clock{at: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	w := setup(t, func(config *Config) { config.Now = c.now; config.RequestsPerMinute = 3 })
	own, other := w.newKey(`{"requests_per_minute":2}`), w.newKey(`{}`)
	ask := func(k madeKey) *answered { return w.get("/v1/list-jobs", k.header()...) }
	tooMany := func(k madeKey, seconds string) {
		t.Helper()
		if got := ask(k).wantError(429, "rate_limited", seconds+" s").header.Get("Retry-After"); got != seconds {
			t.Errorf("Retry-After is %q, want %s", got, seconds)
		}
	}
	for range 2 { // all requests of a minute may come at once
		ask(own).want(200)
	}
	for range 5 { // refused requests do not count
		tooMany(own, "30")
	}
	for range 3 { // each key has its own limit; the default is the configured one
		ask(other).want(200)
	}
	tooMany(other, "20")
	c.pass(29500 * time.Millisecond)
	tooMany(own, "1")
	c.pass(500 * time.Millisecond)
	ask(own).want(200)
	tooMany(own, "30")
	c.pass(time.Hour) // an idle key saves up the requests of one minute only
	for range 2 {
		ask(own).want(200)
	}
	tooMany(own, "30")
}

func TestLimit_NoneByDefault(t *testing.T) {
	t.Parallel()
	w := setup(t)
	k := w.newKey(`{}`)
	for range 200 {
		if !w.works(k) {
			t.Fatal("refused")
		}
	}
}

func TestLimit_RefusedRequestHasNoEffect(t *testing.T) {
	t.Parallel()
	w := setup(t)
	k := w.newKey(`{"requests_per_minute":1}`)
	w.get("/v1/auth/check", k.header()...).want(200)
	w.post(`{"inputs":["a"]}`, k.header()...).wantError(429, "rate_limited", "1 requests a minute")
	w.noJobs()
}
