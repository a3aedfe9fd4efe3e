package retry_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowmill/rowmill/internal/retry"
)

var (
	errTransient = errors.New("transient")
	errPermanent = errors.New("permanent")
)

func isTransient(err error) bool { return errors.Is(err, errTransient) }

// failUntil returns a func that fails with err before its nth call.
func failUntil(n int, err error) (do func() error, calls *int) {
	calls = new(int)
	return func() error {
		if *calls++; *calls < n {
			return err
		}
		return nil
	}, calls
}

func TestDo_UntilItSucceeds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		do, calls := failUntil(4, errTransient)
		var notified []error
		err := retry.Storage.Do(t.Context(), do, isTransient, func(err error) { notified = append(notified, err) })
		if err != nil || *calls != 4 || !slices.Equal(notified, []error{errTransient, errTransient, errTransient}) {
			t.Errorf("%v after %d calls, notified of %v; want success at the fourth and three notifications", err, *calls, notified)
		}
	})
}

func TestDo_PermanentErrorIsNotRetried(t *testing.T) {
	t.Parallel()
	do, calls := failUntil(4, errPermanent)
	err := retry.Storage.Do(t.Context(), do, isTransient, func(err error) { t.Errorf("notified of %v, which is not retried", err) })
	if !errors.Is(err, errPermanent) || *calls != 1 {
		t.Errorf("%v after %d calls, want the first error", err, *calls)
	}
}

// Pauses double up to Most and are random between half and all of that.
func TestDo_Pauses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := retry.Policy{First: time.Second, Most: 10 * time.Second, Tries: 8}
		var at []time.Time
		_ = p.Do(t.Context(), func() error { at = append(at, time.Now()); return errTransient }, isTransient, nil)
		if len(at) != p.Tries {
			t.Fatalf("%d tries, want %d", len(at), p.Tries)
		}
		even := true
		for i, want := range []time.Duration{1, 2, 4, 8, 10, 10, 10} {
			want *= time.Second
			pause := at[i+1].Sub(at[i])
			if pause < want/2-1 || pause > want+1 {
				t.Errorf("pause %d is %v, want half of %v or more, but not more than that", i, pause, want)
			}
			even = even && pause == want
		}
		if even {
			t.Error("the pauses do not vary: clients of one failed server return at the same time")
		}
	})
}

// No try starts later than For.
func TestDo_Within(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for range 20 {
			began, last := time.Now(), time.Time{}
			p := retry.Storage.WithTimeLimit(time.Minute)
			err := p.Do(t.Context(), func() error { last = time.Now(); return errTransient }, isTransient, nil)
			if took := last.Sub(began); !errors.Is(err, errTransient) || took > time.Minute || took < time.Minute-retry.Storage.Most {
				t.Errorf("%v: the last try came after %v, want just within a minute", err, took)
			}
		}
	})
}

func TestDo_OnceIsNotRepeated(t *testing.T) {
	t.Parallel()
	do, calls := failUntil(4, errTransient)
	if err := (retry.Policy{Tries: 1}).Do(t.Context(), do, isTransient, nil); !errors.Is(err, errTransient) || *calls != 1 {
		t.Errorf("%v after %d calls, want one", err, *calls)
	}
}

// When the context ends, Do returns the last error at once.
func TestDo_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
		defer cancel()
		began := time.Now()
		err := retry.Sessions.Do(ctx, func() error { return errTransient }, isTransient, nil)
		if took := time.Since(began); !errors.Is(err, errTransient) || took != 100*time.Second {
			t.Errorf("%v after %v, want the last error as soon as the context ends", err, took)
		}
		do, calls := failUntil(4, errTransient)
		if err := retry.Sessions.Do(ctx, do, isTransient, nil); !errors.Is(err, errTransient) || *calls != 1 {
			t.Errorf("%v after %d calls, want one try and no wait", err, *calls)
		}
	})
}

// Policies give up within the total times that their comments name.
func TestPolicies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, p := range []struct {
			name          string
			policy        retry.Policy
			least, atMost time.Duration
		}{
			{"Transfers", retry.Transfers, 17 * time.Second, 36 * time.Second},
			{"Objects", retry.Objects, 7 * time.Second, 10 * time.Second},
		} {
			began := time.Now()
			_ = p.policy.Do(t.Context(), func() error { return errTransient }, isTransient, nil)
			if took := time.Since(began); took < p.least || took > p.atMost {
				t.Errorf("%s gives up after %v, want between %v and %v", p.name, took, p.least, p.atMost)
			}
		}
	})
}

// Under WithUnlimited no policy gives up, but an error that is not retryable ends the call.
func TestDo_Unlimited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var notified []error
		ctx := retry.WithUnlimited(t.Context(), func(err error) { notified = append(notified, err) })
		began := time.Now()
		do := func() error {
			if time.Since(began) < time.Hour {
				return errTransient
			}
			return nil
		}
		if err := retry.Objects.Do(ctx, do, isTransient, nil); err != nil || time.Since(began) < time.Hour {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		if last := len(notified) - 1; last < 100 || notified[last] != nil || notified[last-1] == nil {
			t.Errorf("notified %d times, want nil last: %v", len(notified), notified)
		}
		notified = nil
		if err := (retry.Policy{Tries: 1}).Do(ctx, func() error { return errPermanent }, isTransient, nil); !errors.Is(err, errPermanent) || len(notified) != 0 {
			t.Errorf("%v, notified of %v", err, notified)
		}
	})
}
