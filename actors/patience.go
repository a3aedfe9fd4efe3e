package actors

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
)

// The pause before a store or a bucket is asked again grows from firstWait to
// lastWait.
const (
	firstWait = 100 * time.Millisecond
	lastWait  = 2 * time.Second
)

// patiently repeats what a store or a bucket may fail to do for a while, such
// as while it restarts, until it succeeds, ctx ends, patience has passed or the
// error is one that no repetition changes. what says in the log what was tried.
// What is repeated must be harmless to repeat.
func patiently(ctx context.Context, patience time.Duration, log *slog.Logger, what string, do func() error) error {
	began := time.Now()
	for pause := firstWait; ; pause = min(2*pause, lastWait) {
		err := do()
		if err == nil || ctx.Err() != nil || lasting(err) || time.Since(began)+pause > patience {
			return err
		}
		log.Warn("storage fails, will try again", "while", what, "err", err)
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

// lasting reports whether an error stays however often one tries.
func lasting(err error) bool {
	for _, known := range []error{rowmill.ErrNotFound, rowmill.ErrConflict, rowmill.ErrTerminal, rowmill.ErrLeaseLost} {
		if errors.Is(err, known) {
			return true
		}
	}
	var failure *rowmill.Failure
	var invalid *rowmill.InvalidError
	var limit *store.LimitError
	return errors.As(err, &failure) || errors.As(err, &invalid) || errors.As(err, &limit)
}
