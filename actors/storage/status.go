package storage

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// A storageStatus tracks whether one storage of a node can be used: the store of records or
// the bucket of objects.
type storageStatus struct {
	name, title   string // name of the storage in logs, and name for clients
	config        Config
	changed       chan<- struct{}  // gets a token when an outage starts or ends
	waiting, away prometheus.Gauge // metrics: number of waiting operations, and 1 during an outage

	mu    sync.Mutex
	now   *Outage   // the current outage; nil if there is none
	began time.Time // start of the outage in now, on the monotonic clock
	// fails has the last errors: by waiter, for operations that wait, and under reads or
	// writes, for all other calls.
	fails   map[any]error
	success time.Time // when a call last succeeded
}

// Keys of status.fails that are not waiters. They are also the two kinds of calls.
const (
	reads  = "reads"
	writes = "writes"
)

// A storageError is the error of a call together with the status of the storage that
// returned it.
type storageError struct {
	status *storageStatus
	error
}

func (e *storageError) Unwrap() error { return e.error }

// recordResult records the result of a call of this kind, and returns the call's error. A
// successful read does not end a failure of writes, because a full disk can be read.
func (s *storageStatus) recordResult(err error, kind string) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	switch {
	case err != nil && IsTransient(err):
		s.updateFailures(func() { s.fails[kind] = err })
	case err == nil, IsPermanent(err): // the storage has answered
		s.updateFailures(func() {
			s.success = time.Now()
			delete(s.fails, reads)
			if kind == writes && err == nil {
				delete(s.fails, writes)
			}
		})
	}
	if err != nil {
		err = &storageError{s, err}
	}
	return err
}

// addWaiter records that the operation waiter waits because of an error.
func (s *storageStatus) addWaiter(waiter any, err error) {
	s.updateFailures(func() { s.fails[waiter] = err })
}

// removeWaiter records that the operation waiter no longer waits.
func (s *storageStatus) removeWaiter(waiter any) {
	s.updateFailures(func() { delete(s.fails, waiter) })
}

// updateFailures calls update, which changes s.fails, and then logs and announces the start or the
// end of an outage.
func (s *storageStatus) updateFailures(update func()) {
	s.mu.Lock()
	update()
	s.waiting.Set(float64(s.waiters()))
	before, after := s.now, s.now
	switch {
	case len(s.fails) == 0:
		after = nil
	case before == nil:
		after = &Outage{Of: s.title, Since: s.config.Clock().UTC()}
		s.began = time.Now()
	}
	if after != nil {
		next := *after
		next.Err = s.worstError()
		next.Full = isFull(next.Err)
		after = &next
	}
	took := time.Since(s.began)
	s.now = after
	s.away.Set(0)
	if after != nil {
		s.away.Set(1)
	}
	s.mu.Unlock()
	switch {
	case before == nil && after != nil:
		s.config.Logger.Warn("storage cannot be used; operations wait for it", "storage", s.name, "err", after.Err)
	case before != nil && after == nil:
		s.config.Logger.Info("storage can be used again", "storage", s.name, "after", took)
	case before == nil || before.Full == after.Full:
		return
	}
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// worstError returns one of the current errors. An error about missing room goes first.
func (s *storageStatus) worstError() (err error) {
	for _, err = range s.fails {
		if isFull(err) {
			return err
		}
	}
	return err
}

// waiters returns the number of operations that wait.
func (s *storageStatus) waiters() int {
	n := len(s.fails)
	for _, kind := range []string{reads, writes} {
		if _, met := s.fails[kind]; met {
			n--
		}
	}
	return n
}

// outage returns the current outage; false means that there is none.
func (s *storageStatus) outage() (Outage, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now == nil {
		return Outage{}, false
	}
	now := *s.now
	now.Lasts = time.Since(s.began)
	return now, true
}

// needsProbe reports whether a probe would give new information: no call has succeeded for
// the time maxAge, or there is an outage in which no operation waits and retries.
func (s *storageStatus) needsProbe(maxAge time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now != nil {
		return s.waiters() == 0
	}
	return time.Since(s.success) > maxAge
}

// needsWriteProbe reports whether only a successful write can end the outage.
func (s *storageStatus) needsWriteProbe() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, met := s.fails[writes]
	return met
}
