// Package wait lets a test poll for a condition that no channel announces: a condition
// in a socket's peer, in another process, or in a library. A test with a channel or in
// virtual time (testing/synctest) does not need it.
package wait

import (
	"testing"
	"time"
)

const (
	// timeout ends a test whose condition never becomes true. It does not measure the
	// program: at a load of 20 on two cores, 30 s were too short for work that usually
	// takes a second.
	timeout = 4 * time.Minute
	// interval is the time between the first checks.
	interval = 5 * time.Millisecond
	// share is the part of the time until now that passes before the next check. So a wait
	// of minutes, which virtual time makes cheap, does not need thousands of checks.
	share = 50
)

// Until calls check until it returns nil. After the timeout it fails the test with the last
// error.
func Until(t testing.TB, check func() error) {
	t.Helper()
	for began := time.Now(); ; {
		err := check()
		if err == nil {
			return
		}
		waited := time.Since(began)
		if waited > timeout {
			t.Fatalf("still failing after %v: %v", timeout, err)
		}
		time.Sleep(max(interval, waited/share))
	}
}

// For calls holds until it returns true. After the timeout it fails the test. what
// names the condition in the message.
func For(t testing.TB, what string, holds func() bool) {
	t.Helper()
	Until(t, func() error {
		if holds() {
			return nil
		}
		return unmetError(what)
	})
}

// unmetError is the error for a condition that is not true yet; its text names the
// condition.
type unmetError string

func (m unmetError) Error() string { return string(m) }
