package actors

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
)

// sessions is a store of sessions; renew returns the result of each renewal.
type sessions struct {
	store.Sessions
	opens time.Duration
	renew func(ctx context.Context, n int) error
	n     int
}

func (s *sessions) OpenSession(context.Context, string, time.Duration) (string, error) {
	time.Sleep(s.opens)
	return "session", nil
}

func (s *sessions) RenewSession(ctx context.Context, _ string) error {
	s.n++
	return s.renew(ctx, s.n)
}

const testTTL = 24 * time.Second // its thirds and eighths are whole seconds

// held keeps a lease for d, unless the lease ends before. It returns how long the
// lease lived, why it ended, and a count of renewals by outcome.
func held(t *testing.T, d time.Duration, renew func(ctx context.Context, n int) error) (lived time.Duration, count func(outcome string) float64, why error) {
	t.Helper()
	return heldOf(t, d, &sessions{renew: renew})
}

func heldOf(t *testing.T, d time.Duration, s *sessions) (lived time.Duration, count func(outcome string) float64, why error) {
	t.Helper()
	l := must.Get(openLease(t.Context(), s, "node", testTTL))(t)
	renewals := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "renewals_total", Help: "Renewals."}, []string{"outcome"})
	stop := make(chan struct{})
	var kept sync.WaitGroup
	kept.Go(func() { l.renewUntilEnd(s, testTTL, slog.New(slog.DiscardHandler), renewals, stop) })
	kept.Go(func() { l.cancelAtDeadline(stop) })
	select {
	case <-l.ctx.Done():
	case <-time.After(d):
	}
	lived, why = time.Since(l.opened), context.Cause(l.ctx)
	close(stop)
	kept.Wait()
	return lived, func(outcome string) float64 { return testutil.ToFloat64(renewals.WithLabelValues(outcome)) }, why
}

func TestLease_LivesWhileItIsRenewed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lived, count, why := held(t, time.Hour, func(context.Context, int) error { return nil })
		if n := count("renewed"); lived != time.Hour || why != nil || n < 449 || n > 450 {
			t.Errorf("it lived %v with %v renewals and ended with %v, want an hour with three per time to live", lived, n, why)
		}
	})
}

// The deadline counts from before the request for the session, and so does the
// first renewal.
func TestLease_LivesThoughItWasOpenedSlowly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &sessions{opens: testTTL * 3 / 4, renew: func(context.Context, int) error { return nil }}
		lived, _, why := heldOf(t, time.Hour, s)
		if why != nil || lived != time.Hour+s.opens {
			t.Errorf("it lived %v and ended with %v", lived, why)
		}
	})
}

// The licence ends before the store could give the jobs to another node, even if
// the store does not answer at all.
func TestLease_EndsInTimeWhenTheStoreHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lived, count, why := held(t, time.Hour, func(ctx context.Context, n int) error {
			if n <= 3 {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		})
		if lived != testTTL+testTTL*7/8 || !errors.Is(why, rowmill.ErrLeaseLost) || count("failed") == 0 {
			t.Errorf("it lived %v and ended with %v, want the end 7/8 of %v after the renewal at %v", lived, why, testTTL, testTTL)
		}
	})
}

func TestLease_SitsOutAFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lived, count, why := held(t, time.Hour, func(_ context.Context, n int) error {
			if n%2 == 0 {
				return errors.New("away")
			}
			return nil
		})
		if lived != time.Hour || why != nil || count("failed") < 200 {
			t.Errorf("it lived %v with %v failures and ended with %v, want an hour", lived, count("failed"), why)
		}
	})
}

func TestLease_EndsAtOnceWhenItIsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lived, count, why := held(t, time.Hour, func(_ context.Context, n int) error {
			if n == 3 {
				return rowmill.ErrLeaseLost
			}
			return nil
		})
		if lived != testTTL/3*3 || !errors.Is(why, rowmill.ErrLeaseLost) || count("lost") != 1 {
			t.Errorf("it lived %v and ended with %v, want the end with the third renewal", lived, why)
		}
	})
}
