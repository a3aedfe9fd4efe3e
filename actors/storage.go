package actors

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/retry"
	"github.com/rowmill/rowmill/store"
)

// retryStorage repeats what a store or a bucket may fail to do for a while, such
// as while it restarts, until it succeeds, ctx ends, patience has passed or the
// error is one that no repetition changes. what says in the log what was tried.
// What is repeated must be harmless to repeat.
func retryStorage(ctx context.Context, patience time.Duration, log *slog.Logger, what string, do func() error) error {
	return retry.Storage.Within(patience).Do(ctx, do, passing, func(err error) {
		log.Warn("storage failed, will be tried again", "while", what, "err", err)
	})
}

// mayGoOn reports whether whoever got an error still acts for the job.
func mayGoOn(err error) bool { return !rowmill.MustStop(err) }

// passing reports whether an error may be gone when one tries again.
func passing(err error) bool {
	if rowmill.MustStop(err) || errors.Is(err, rowmill.ErrNotFound) || errors.Is(err, rowmill.ErrConflict) {
		return false
	}
	var failure *rowmill.Failure
	var invalid *rowmill.InvalidError
	var limit *store.LimitError
	return !errors.As(err, &failure) && !errors.As(err, &invalid) && !errors.As(err, &limit)
}
