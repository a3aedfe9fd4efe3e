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

// An Outage is a time in which records or objects cannot be used.
type Outage struct {
	Of    string        // what is away, in words
	Since time.Time     // when it was first met
	Lasts time.Duration // until now
	Full  bool          // it has no room; else it does not answer, or refuses
	Err   error         // what was met, for an operator: it may name addresses
}

// Message says to a client what a job waits for.
func (o Outage) Message() string {
	what := "cannot be used"
	if o.Full {
		what = "has no room"
	}
	return fmt.Sprintf("Waiting for %s, which %s since %s. The job goes on by itself.", o.Of, what, o.Since.Format(time.RFC3339))
}

// Passing reports whether an error is one of storage that will be gone when what
// keeps it is reached again, has room, or is set up as it was. It is worth
// waiting for, however long it takes.
func Passing(err error) bool {
	if Lasting(err) || errors.Is(err, store.ErrNewer) { // that is one record's
		return false
	}
	if errors.Is(err, rowmill.ErrUnavailable) || errors.Is(err, store.ErrOutcomeUnknown) || errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	var network net.Error
	return blob.IsTransient(err) || errors.As(err, &network)
}

// Lasting reports whether no repetition changes an error. What is neither
// passing nor lasting is known to nobody.
func Lasting(err error) bool {
	if rowmill.MustStop(err) || errors.Is(err, rowmill.ErrNotFound) || errors.Is(err, rowmill.ErrConflict) || errors.Is(err, store.ErrDamaged) {
		return true
	}
	var failure *rowmill.Failure
	var invalid *rowmill.InvalidError
	var limit *store.LimitError
	var says interface{ Lasting() bool }
	if errors.As(err, &says) {
		return says.Lasting()
	}
	return errors.As(err, &failure) || errors.As(err, &invalid) || errors.As(err, &limit)
}

func isFull(err error) bool {
	return errors.Is(err, rowmill.ErrFull) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
