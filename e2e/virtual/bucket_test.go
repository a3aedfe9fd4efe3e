package virtual

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/retry"
)

// Only a writer with a patient context waits for room, like writers of real buckets.
func TestWriter_WaitsForRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		until, tries := time.Now().Add(time.Hour), 0
		b := newBucket(newShelf(), func(_ context.Context, e effect) error {
			if tries++; time.Now().Before(until) {
				return fmt.Errorf("%w: %w", rowmill.ErrUnavailable, syscall.ENOSPC)
			}
			return e.do()
		})
		put := func(ctx context.Context) error {
			w, err := b.Create(ctx, "a/raw", "")
			if err != nil {
				return err
			}
			defer w.Abort()
			_, err = io.WriteString(w, "all that came")
			if err == nil {
				_, err = w.Commit()
			}
			return err
		}
		if err := put(t.Context()); !errors.Is(err, syscall.ENOSPC) || tries != 1 {
			t.Errorf("%v after %d tries, want what the first met", err, tries)
		}
		short, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := put(retry.WithUnlimited(short, func(error) {})); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want the end of the context", err)
		}
		told := 0
		if err := put(retry.WithUnlimited(t.Context(), func(error) { told++ })); err != nil || time.Now().Before(until) || told < 10 {
			t.Errorf("%v, told %d times", err, told)
		}
		if i, err := b.shelf.get("a/raw"); err != nil || string(i.data) != "all that came" {
			t.Errorf("%v is there: %v", i, err)
		}
		if len(b.writers) > 0 {
			t.Errorf("%d writers have not ended", len(b.writers))
		}
	})
}
