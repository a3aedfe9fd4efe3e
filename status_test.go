package rowmill_test

import (
	"errors"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
)

func TestStatus_CanBecome(t *testing.T) {
	t.Parallel()
	legal := map[rowmill.Status]rowmill.Status{
		rowmill.StatusPending:   rowmill.StatusSubmitted,
		rowmill.StatusSubmitted: rowmill.StatusStarting,
		rowmill.StatusStarting:  rowmill.StatusRunning,
		rowmill.StatusRunning:   rowmill.StatusSucceeded,
	}
	for _, from := range rowmill.Statuses() {
		for _, to := range append(rowmill.Statuses(), rowmill.StatusUnknown, "nonsense") {
			want := legal[from] == to || !from.IsTerminal() && (to == rowmill.StatusFailed || to == rowmill.StatusCancelled)
			if got := from.CanBecome(to); got != want {
				t.Errorf("%s may become %s: %v, want %v", from, to, got, want)
			}
		}
	}
}

func TestJob_Become(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("elsewhere", 3600))
	j := rowmill.Job{Status: rowmill.StatusPending}
	for _, next := range []rowmill.Status{rowmill.StatusSubmitted, rowmill.StatusStarting, rowmill.StatusRunning, rowmill.StatusSucceeded} {
		must.Succeed(t, j.Become(next, now))
		if ran := next == rowmill.StatusRunning || next == rowmill.StatusSucceeded; (j.Started != nil) != ran {
			t.Errorf("a %s job started at %v", next, j.Started)
		}
	}
	if !j.Started.Equal(now) || !j.Completed.Equal(now) || j.Completed.Location() != time.UTC {
		t.Errorf("started %v, completed %v, want %v in UTC", j.Started, j.Completed, now)
	}
	for _, next := range rowmill.Statuses() {
		if err := j.Become(next, now); !errors.Is(err, rowmill.ErrTerminal) {
			t.Errorf("a succeeded job became %s: %v", next, err)
		}
	}
}
