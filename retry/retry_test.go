package retry_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowmill/rowmill/retry"
)

var (
	errPasses = errors.New("passes")
	errLasts  = errors.New("lasts")
)

func passes(err error) bool { return errors.Is(err, errPasses) }

// times fails with err until it was called so often.
func times(n int, err error) (do func() error, calls *int) {
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
		do, calls := times(4, errPasses)
		var told []error
		err := retry.Storage.Do(t.Context(), do, passes, func(err error) { told = append(told, err) })
		if err != nil || *calls != 4 || !slices.Equal(told, []error{errPasses, errPasses, errPasses}) {
			t.Errorf("%v after %d calls, told %v; want the fourth to succeed and to hear of three failures", err, *calls, told)
		}
	})
}

func TestDo_NotAfterAnErrorThatLasts(t *testing.T) {
	t.Parallel()
	do, calls := times(4, errLasts)
	err := retry.Storage.Do(t.Context(), do, passes, func(err error) { t.Errorf("there will be no other try after %v", err) })
	if !errors.Is(err, errLasts) || *calls != 1 {
		t.Errorf("%v after %d calls, want the first error", err, *calls)
	}
}

// Pauses double up to Most and vary between half of that and all of it.
func TestDo_Pauses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := retry.Policy{First: time.Second, Most: 10 * time.Second, Tries: 8}
		var at []time.Time
		_ = p.Do(t.Context(), func() error { at = append(at, time.Now()); return errPasses }, passes, nil)
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
			t.Error("the pauses do not vary: those whom one failure struck come back together")
		}
	})
}

// No try begins later than For.
func TestDo_Within(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for range 20 {
			began, last := time.Now(), time.Time{}
			p := retry.Storage.Within(time.Minute)
			err := p.Do(t.Context(), func() error { last = time.Now(); return errPasses }, passes, nil)
			if took := last.Sub(began); !errors.Is(err, errPasses) || took > time.Minute || took < time.Minute-retry.Storage.Most {
				t.Errorf("%v: the last try came after %v, want just within a minute", err, took)
			}
		}
	})
}

func TestDo_OnceIsNotRepeated(t *testing.T) {
	t.Parallel()
	do, calls := times(4, errPasses)
	if err := (retry.Policy{Tries: 1}).Do(t.Context(), do, passes, nil); !errors.Is(err, errPasses) || *calls != 1 {
		t.Errorf("%v after %d calls, want one", err, *calls)
	}
}

// Whoever is stopped hears what went wrong last, at once.
func TestDo_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
		defer cancel()
		began := time.Now()
		err := retry.Sessions.Do(ctx, func() error { return errPasses }, passes, nil)
		if took := time.Since(began); !errors.Is(err, errPasses) || took != 100*time.Second {
			t.Errorf("%v after %v, want the last error as soon as the context ends", err, took)
		}
		do, calls := times(4, errPasses)
		if err := retry.Sessions.Do(ctx, do, passes, nil); !errors.Is(err, errPasses) || *calls != 1 {
			t.Errorf("%v after %d calls, want one try and no wait", err, *calls)
		}
	})
}

// The sums that the policies' comments name.
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
			_ = p.policy.Do(t.Context(), func() error { return errPasses }, passes, nil)
			if took := time.Since(began); took < p.least || took > p.atMost {
				t.Errorf("%s gives up after %v, want between %v and %v", p.name, took, p.least, p.atMost)
			}
		}
	})
}

// What cannot be begun again is worth any wait; what has to end, ends.
func TestDo_Patient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var told []error
		ctx := retry.Patient(t.Context(), func(err error) { told = append(told, err) })
		began := time.Now()
		do := func() error {
			if time.Since(began) < time.Hour {
				return errPasses
			}
			return nil
		}
		if err := retry.Objects.Do(ctx, do, passes, nil); err != nil || time.Since(began) < time.Hour {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		if last := len(told) - 1; last < 100 || told[last] != nil || told[last-1] == nil {
			t.Errorf("told %d times, of the end last: %v", len(told), told)
		}
		told = nil
		if err := (retry.Policy{Tries: 1}).Do(ctx, func() error { return errLasts }, passes, nil); !errors.Is(err, errLasts) || len(told) != 0 {
			t.Errorf("%v, told %v", err, told)
		}
	})
}
