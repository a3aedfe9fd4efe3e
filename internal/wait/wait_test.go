package wait

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// failing is a test that records its failure message.
type failing struct {
	testing.TB
	fatal string
}

func (h *failing) Helper() {}

func (h *failing) Fatalf(format string, args ...any) {
	h.fatal = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// in runs a wait with its own test and returns the failure.
func in(t *testing.T, wait func(testing.TB)) string {
	t.Helper()
	h, over := &failing{TB: t}, make(chan struct{})
	go func() {
		defer close(over)
		wait(h)
	}()
	<-over
	return h.fatal
}

func TestUntil(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for after, want := range map[time.Duration]string{
			0:               "",
			time.Second:     "",
			time.Hour:       "still failing after 4m0s: too early",
			5 * time.Minute: "still failing after 4m0s: too early",
		} {
			began := time.Now()
			got := in(t, func(t testing.TB) {
				Until(t, func() error {
					if time.Since(began) < after {
						return errors.New("too early")
					}
					return nil
				})
			})
			if got != want || got == "" && time.Since(began) > after+after/share {
				t.Errorf("a condition that holds after %v: %q after %v", after, got, time.Since(began))
			}
		}
		if got := in(t, func(t testing.TB) { For(t, "rain", func() bool { return false }) }); got != "still failing after 4m0s: rain" {
			t.Errorf("what never holds: %q", got)
		}
	})
}
