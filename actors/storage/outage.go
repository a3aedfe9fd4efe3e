package storage

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/store"
)

// An Outage is a time in which the records or the objects of a node cannot be used.
type Outage struct {
	Of    string        // name of the storage, for clients
	Since time.Time     // time of the first failure
	Lasts time.Duration // duration so far
	Full  bool          // the storage has no room; false if it does not answer or refuses requests
	Err   error         // the last error, for operators: it may contain addresses
}

// Message returns a text that tells clients why a job waits.
func (o Outage) Message() string {
	what := "cannot be used"
	if o.Full {
		what = "has no room"
	}
	return fmt.Sprintf("Waiting for %s, which %s since %s. The job goes on by itself.", o.Of, what, o.Since.Format(time.RFC3339))
}

// IsTransient reports whether an error is temporary: it ends when the storage can be
// reached again, has room again, or has its former configuration again. Until then the
// caller should repeat the call, with no time limit.
func IsTransient(err error) bool {
	if IsPermanent(err) || errors.Is(err, store.ErrNewer) { // ErrNewer is about a single record
		return false
	}
	if errors.Is(err, rowmill.ErrUnavailable) || errors.Is(err, store.ErrOutcomeUnknown) || errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	return blob.IsTransient(err) || isNetwork(err)
}

// isNetwork reports whether err is an error of a network connection. An error of a file
// is a net.Error too, because each syscall.Errno is a net.Error.
func isNetwork(err error) bool {
	var network net.Error
	if !errors.As(err, &network) {
		return false
	}
	_, file := network.(syscall.Errno)
	return !file
}

// IsPermanent reports whether retries cannot change an error. An unknown error is
// neither transient nor permanent.
func IsPermanent(err error) bool {
	if rowmill.ShouldStopJob(err) || errors.Is(err, rowmill.ErrNotFound) || errors.Is(err, rowmill.ErrConflict) || errors.Is(err, store.ErrDamaged) {
		return true
	}
	var failure *rowmill.Failure
	var invalid *rowmill.InvalidError
	var limit *store.CostLimitError
	var says interface{ IsPermanent() bool }
	if errors.As(err, &says) {
		return says.IsPermanent()
	}
	return errors.As(err, &failure) || errors.As(err, &invalid) || errors.As(err, &limit)
}

// isFull reports whether err means that the storage has no room.
func isFull(err error) bool {
	return errors.Is(err, rowmill.ErrFull) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
