package cache

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/rowmill/rowmill/internal/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// counted is a slow computation that counts its calls.
type counted struct {
	mu    sync.Mutex
	calls int
	takes time.Duration
	err   error
}

func (c *counted) compute(context.Context) (int, error) {
	c.mu.Lock()
	c.calls++
	n, err := c.calls, c.err
	c.mu.Unlock()
	time.Sleep(c.takes)
	return n, err
}

func TestMemo_ConcurrentCallersShareOneAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, c := TTL[string, int]{Age: time.Second, Most: 10}, &counted{takes: 100 * time.Millisecond}
		all := func(want int) {
			t.Helper()
			var waits sync.WaitGroup
			for range 50 {
				waits.Go(func() {
					if got, err := m.Get(t.Context(), "a", c.compute); got != want || err != nil {
						t.Errorf("%d, %v, want answer %d", got, err, want)
					}
				})
			}
			waits.Wait()
		}
		all(1)
		time.Sleep(899 * time.Millisecond) // 999 ms after the computation started
		all(1)
		time.Sleep(time.Millisecond)
		all(2)
		if got, _ := m.Get(t.Context(), "b", c.compute); got != 3 {
			t.Errorf("another key got answer %d", got)
		}
	})
}

// A caller that asks Age after a change gets no answer from before, even if the old
// computation still runs.
func TestMemo_NoAnswerIsOlderThanAge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, c := TTL[string, int]{Age: time.Second, Most: 10}, &counted{takes: time.Minute}
		var waits sync.WaitGroup
		for i := range 3 {
			waits.Go(func() {
				if got, err := m.Get(t.Context(), "a", c.compute); got != i+1 || err != nil {
					t.Errorf("%d, %v, want answer %d", got, err, i+1)
				}
			})
			time.Sleep(time.Second)
		}
		waits.Wait()
	})
}

func TestMemo_ErrorsAreNotCached(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, c := TTL[string, int]{Age: time.Hour, Most: 10}, &counted{takes: time.Second, err: errors.New("away")}
		var waits sync.WaitGroup
		for range 5 {
			waits.Go(func() {
				if _, err := m.Get(t.Context(), "a", c.compute); !errors.Is(err, c.err) {
					t.Error(err)
				}
			})
		}
		waits.Wait()
		c.err = nil
		if got, err := m.Get(t.Context(), "a", c.compute); got != 2 || err != nil {
			t.Errorf("%d, %v", got, err)
		}
	})
}

// A caller that leaves does not affect other callers, even if it started the
// computation.
func TestMemo_CallerLeaves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := TTL[string, int]{Age: time.Hour, Most: 10}
		gone, leave := context.WithCancel(t.Context())
		leave()
		slow := func(ctx context.Context) (int, error) {
			time.Sleep(time.Second)
			return 7, ctx.Err()
		}
		go func() {
			if got, err := m.Get(gone, "a", slow); got != 7 || err != nil {
				t.Errorf("%d, %v", got, err)
			}
		}()
		synctest.Wait()
		began := time.Now()
		if _, err := m.Get(gone, "a", slow); !errors.Is(err, context.Canceled) || time.Since(began) > 0 {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		if got, err := m.Get(t.Context(), "a", slow); got != 7 || err != nil || time.Since(began) != time.Second {
			t.Errorf("%d, %v after %v", got, err, time.Since(began))
		}
	})
}

func TestMemo_PanicFailsWaitingCallers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := TTL[string, int]{Age: time.Hour, Most: 10}
		go func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic was swallowed")
				}
			}()
			_, _ = m.Get(t.Context(), "a", func(context.Context) (int, error) {
				time.Sleep(time.Second)
				panic("planted")
			})
		}()
		synctest.Wait()
		if _, err := m.Get(t.Context(), "a", nil); !errors.Is(err, errPanicked) {
			t.Error(err)
		}
		if got, err := m.Get(t.Context(), "a", (&counted{}).compute); got != 1 || err != nil {
			t.Errorf("%d, %v", got, err)
		}
	})
}

// The cache is bounded, and old answers are removed.
func TestMemo_IsBounded(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	m, c := TTL[string, int]{Age: time.Second, Most: 10, Now: func() time.Time { return now }}, &counted{}
	get := func(key string) int {
		t.Helper()
		got := must.Get(m.Get(t.Context(), key, c.compute))(t)
		return got
	}
	for i := range 20 {
		get(fmt.Sprint(i))
	}
	if len(m.answers) != 10 || get("9") != 10 || get("19") == 20 {
		t.Errorf("%d answers are cached", len(m.answers))
	}
	now = now.Add(time.Second)
	if get("19"); len(m.answers) != 1 {
		t.Errorf("%d answers are cached", len(m.answers))
	}
	now = now.Add(-time.Hour) // a clock that was turned back
	if before := c.calls; get("19") == before {
		t.Error("an answer from the future was returned")
	}
}
