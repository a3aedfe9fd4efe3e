// Package wait lets a test wait for a condition whose coming nothing announces:
// what happens behind a socket, in another process, or in a library. Where a
// channel tells, or testing/synctest reaches, a test needs none of this.
package wait

import (
	"testing"
	"time"
)

const (
	// patience is far beyond what a busy machine needs.
	patience = 30 * time.Second
	// pause is the time between looks.
	pause = 5 * time.Millisecond
)

// Until looks until look reports no error, and fails the test with the last
// error when it has looked for half a minute.
func Until(t testing.TB, look func() error) {
	t.Helper()
	late, tick := time.After(patience), time.NewTicker(pause)
	defer tick.Stop()
	for {
		err := look()
		if err == nil {
			return
		}
		select {
		case <-late:
			t.Fatalf("not within %v: %v", patience, err)
		case <-tick.C:
		}
	}
}

// For is Until for a condition that has no more to tell than what it is.
func For(t testing.TB, what string, holds func() bool) {
	t.Helper()
	Until(t, func() error {
		if holds() {
			return nil
		}
		return missing(what)
	})
}

// missing is a condition that does not hold.
type missing string

func (m missing) Error() string { return string(m) }
