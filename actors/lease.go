package actors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/storage"
	"github.com/rowmill/rowmill/store"
)

// A lease is a node's session in the store, which the method renewUntilEnd renews. Its
// context allows the node to act as owner of jobs; the context ends as soon as the session
// may have expired. The method cancelAtDeadline ends the context, so a slow call to the
// store cannot delay the end.
type lease struct {
	session  string
	ctx      context.Context
	cancel   context.CancelCauseFunc
	opened   time.Time
	deadline atomic.Int64 // when the session may expire, in nanoseconds after opened
}

// openLease opens a session. The deadline counts from just before the request, and is
// an eighth earlier than ttl to allow for clock drift.
func openLease(ctx context.Context, s store.Sessions, node string, ttl time.Duration) (*lease, error) {
	began := time.Now()
	session, err := s.OpenSession(ctx, node, ttl)
	if err != nil {
		return nil, fmt.Errorf("open session: %w", err)
	}
	l := &lease{session: session, opened: began}
	l.ctx, l.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	l.extend(began, ttl)
	return l, nil
}

// remaining returns the time until the deadline.
func (l *lease) remaining() time.Duration {
	return time.Duration(l.deadline.Load()) - time.Since(l.opened)
}

// extend sets the deadline after a renewal; from is the time just before the request of
// the renewal.
func (l *lease) extend(from time.Time, ttl time.Duration) {
	l.deadline.Store(int64(from.Sub(l.opened) + ttl - ttl/8))
}

// renewUntilEnd renews the session three times per ttl, until the lease ends or stop is closed.
// The first interval counts from the time just before the session was opened, like the
// deadline, because opening the session may have taken long.
func (l *lease) renewUntilEnd(s store.Sessions, ttl time.Duration, log *slog.Logger, renewals *prometheus.CounterVec, stop <-chan struct{}) {
	next := time.NewTimer(ttl/3 - time.Since(l.opened))
	defer next.Stop()
	for {
		select {
		case <-stop:
			return
		case <-l.ctx.Done():
			return
		case <-next.C:
		}
		began := time.Now()
		if l.remaining() <= 0 {
			l.cancel(rowmill.ErrLeaseLost)
			return
		}
		ctx, cancel := context.WithTimeout(l.ctx, ttl/2)
		err := s.RenewSession(ctx, l.session)
		cancel()
		switch {
		case err == nil:
			renewals.WithLabelValues("renewed").Inc()
			l.extend(began, ttl)
		case errors.Is(err, rowmill.ErrLeaseLost):
			renewals.WithLabelValues("lost").Inc()
			l.cancel(rowmill.ErrLeaseLost)
			return
		default:
			renewals.WithLabelValues("failed").Inc()
			if !storage.IsTransient(err) { // else storage has logged it once already
				log.Warn("renewing the session failed, will be tried again", "session", l.session, "err", err)
			}
		}
		next.Reset(ttl/3 - time.Since(began))
	}
}

// cancelAtDeadline ends the lease when its deadline passes.
func (l *lease) cancelAtDeadline(stop <-chan struct{}) {
	for {
		left := l.remaining()
		if left <= 0 {
			l.cancel(rowmill.ErrLeaseLost)
			return
		}
		timer := time.NewTimer(left)
		select {
		case <-stop:
			timer.Stop()
			return
		case <-l.ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}
