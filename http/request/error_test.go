package request

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"syscall"
	"testing"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/results/archive"
	"github.com/rowmill/rowmill/store"
)

func TestDescribe(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err    error
		status int
		code   string
	}{
		{rowmill.Invalid("f", "m"), 400, "invalid_request"},
		{&rowmill.InvalidError{Code: "x"}, 400, "x"},
		{rowmill.ErrNotFound, 404, "not_found"},
		{rowmill.ErrConflict, 409, "conflict"},
		{fmt.Errorf("get: %w", store.ErrDamaged), 500, "damaged"},
		{fmt.Errorf("read: %w", results.ErrDamaged), 500, "damaged"},
		{&rowmill.TransitionError{From: rowmill.StatusFailed, To: rowmill.StatusRunning}, 409, "conflict"},
		{rowmill.ErrExpired, 410, "expired"},
		{archive.MissingAsRemoved(rowmill.ErrNotFound), 503, "results_missing"},
		{archive.MissingAsRemoved(blob.ErrLost), 410, "results_expired"},
		{archive.ErrBusy, 503, "busy"},
		{&http.MaxBytesError{Limit: 5}, 413, "body_too_large"},
		{context.Canceled, 499, "client_gone"},
		{context.DeadlineExceeded, 503, "timeout"},
		{rowmill.ErrUnavailable, 503, "unavailable"},
		{fmt.Errorf("%w: %w", context.DeadlineExceeded, rowmill.ErrUnavailable), 503, "unavailable"},
		{fmt.Errorf("%w: %w", store.ErrOutcomeUnknown, rowmill.ErrUnavailable), 503, "outcome_unknown"},
		{syscall.ENOSPC, 507, "storage_full"},
		{syscall.EDQUOT, 507, "storage_full"},
		{errors.New("anything"), 500, "internal_error"},
	} {
		if e := FromError(fmt.Errorf("while testing: %w", c.err)); e.Status != c.status || e.Code != c.code || e.Message == "" {
			t.Errorf("%v: %d %s %q", c.err, e.Status, e.Code, e.Message)
		}
	}
}
