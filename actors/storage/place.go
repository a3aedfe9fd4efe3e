package storage

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// A place is one of the two storages of a node: the store of records or the bucket of
// objects.
type place struct {
	name, title   string
	config        Config
	changed       chan<- struct{}
	waiting, away prometheus.Gauge

	mu      sync.Mutex
	now     *Outage
	began   time.Time     // start of now, on the monotonic clock
	fails   map[any]error // by source: the last error of a waiter, or of reads or writes in general
	success time.Time     // time of the last success
}

// Sources of failures other than waiters.
const (
	reads  = "reads"
	writes = "writes"
)

// A placed error records which storage returned it.
type placed struct {
	place *place
	error
}

func (e *placed) Unwrap() error { return e.error }

// met notes the result of a call, and returns its error. A successful write proves more
// than a successful read: a full disk can be read.
func (p *place) met(err error, kind string) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	switch {
	case err != nil && Passing(err):
		p.change(func() { p.fails[kind] = err })
	case err == nil, Lasting(err): // the storage has answered
		p.change(func() {
			p.success = time.Now()
			delete(p.fails, reads)
			if kind == writes && err == nil {
				delete(p.fails, writes)
			}
		})
	}
	if err != nil {
		err = &placed{p, err}
	}
	return err
}

// waits notes that a waiter has met an error.
func (p *place) waits(who any, err error) { p.change(func() { p.fails[who] = err }) }

// returns notes that a waiter no longer waits.
func (p *place) returns(who any) { p.change(func() { delete(p.fails, who) }) }

// change changes the failures, and reports the start or end of an outage.
func (p *place) change(how func()) {
	p.mu.Lock()
	how()
	p.waiting.Set(float64(p.waiters()))
	before, after := p.now, p.now
	switch {
	case len(p.fails) == 0:
		after = nil
	case before == nil:
		after = &Outage{Of: p.title, Since: p.config.Clock().UTC()}
		p.began = time.Now()
	}
	if after != nil {
		next := *after
		next.Err = p.worst()
		next.Full = isFull(next.Err)
		after = &next
	}
	took := time.Since(p.began)
	p.now = after
	p.away.Set(0)
	if after != nil {
		p.away.Set(1)
	}
	p.mu.Unlock()
	switch {
	case before == nil && after != nil:
		p.config.Logger.Warn("storage cannot be used; operations wait for it", "storage", p.name, "err", after.Err)
	case before != nil && after == nil:
		p.config.Logger.Info("storage can be used again", "storage", p.name, "after", took)
	case before == nil || before.Full == after.Full:
		return
	}
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// worst returns one of the current errors: an error about missing room before any other
// error.
func (p *place) worst() (err error) {
	for _, err = range p.fails {
		if isFull(err) {
			return err
		}
	}
	return err
}

func (p *place) waiters() int {
	n := len(p.fails)
	for _, kind := range []string{reads, writes} {
		if _, met := p.fails[kind]; met {
			n--
		}
	}
	return n
}

func (p *place) outage() (Outage, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now == nil {
		return Outage{}, false
	}
	now := *p.now
	now.Lasts = time.Since(p.began)
	return now, true
}

// unsure reports whether a probe would give new information.
func (p *place) unsure(fresh time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now != nil {
		return p.waiters() == 0
	}
	return time.Since(p.success) > fresh
}

// writes reports whether a probe must write.
func (p *place) writes() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, met := p.fails[writes]
	return met
}
