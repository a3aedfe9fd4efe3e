package exit

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/rowmill/rowmill/client"
)

func TestCode(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errors.New("x"), 1},
		{WithCode(Usage, errors.New("x")), 2},
		{fmt.Errorf("submit: %w", WithCode(JobFailed, errors.New("x"))), 3},
		{&client.APIError{Status: 401}, 4},
		{&client.APIError{Status: 403}, 4},
		{fmt.Errorf("get: %w", &client.APIError{Status: 404}), 5},
		{&client.APIError{Status: 410}, 5},
		{&client.APIError{Status: 400}, 1},
		{&client.APIError{Status: 500}, 1},
		{WithCode(Cancelled, errors.New("x")), 6},
		{context.DeadlineExceeded, 7},
		{&client.UnreachableError{Err: errors.New("x")}, 8},
		{&client.RowsError{Err: errors.New("x")}, 1},
		{Signal{syscall.SIGINT}, 130},
		{fmt.Errorf("follow: %w", Signal{syscall.SIGTERM}), 143},
	} {
		if got := Code(test.err); got != test.want {
			t.Errorf("%v: code %d, want %d", test.err, got, test.want)
		}
	}
	if WithCode(Usage, nil) != nil {
		t.Error("no error became one")
	}
}
