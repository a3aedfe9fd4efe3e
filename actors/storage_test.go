package actors

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
)

func TestRetryStorage(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err   error
		lasts bool
	}{
		"the store is away":     {rowmill.ErrUnavailable, false},
		"anything else":         {errors.New("connection reset"), false},
		"the outcome":           {store.ErrOutcomeUnknown, false},
		"nothing there":         {rowmill.ErrNotFound, true},
		"another version":       {rowmill.ErrConflict, true},
		"a job that is over":    {rowmill.ErrTerminal, true},
		"a job that is taken":   {rowmill.ErrLeaseLost, true},
		"a fault of the input":  {rowmill.Failf(rowmill.CodeRowQuota, "too many"), true},
		"a broken rule":         {rowmill.Invalid("cursor", "nonsense"), true},
		"a cost beyond a limit": {&store.LimitError{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				began, calls := time.Now(), 0
				wrapped := fmt.Errorf("record part: %w", test.err)
				err := retryStorage(t.Context(), 10*time.Second, slog.New(slog.NewTextHandler(&log, nil)), "record part", func() error {
					calls++
					return wrapped
				})
				if !errors.Is(err, test.err) || (calls == 1) != test.lasts || time.Since(began) > 10*time.Second {
					t.Errorf("%v after %d calls in %v", err, calls, time.Since(began))
				}
				if told := strings.Count(log.String(), `while="record part"`); told != calls-1 {
					t.Errorf("%d lines about %d repetitions:\n%s", told, calls-1, log.String())
				}
			})
		})
	}
}
