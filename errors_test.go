package rowmill_test

import (
	"fmt"
	"testing"

	"github.com/rowmill/rowmill"
)

func TestMustStop(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]bool{
		nil: false, rowmill.ErrConflict: false, rowmill.ErrUnavailable: false, rowmill.ErrLeaseLost: true,
		fmt.Errorf("commit parts: %w", rowmill.ErrTerminal): true,
	} {
		if got := rowmill.ShouldStopJob(err); got != want {
			t.Errorf("%v: %t, want %t", err, got, want)
		}
	}
}
