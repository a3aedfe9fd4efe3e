// Package exit defines the exit codes of the rowmill program, and maps each error to a
// code. It does not depend on any command.
package exit

import (
	"context"
	"errors"
	"os"
	"syscall"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/client"
)

// The exit codes of the rowmill program. Scripts rely on them.
const (
	OK          = 0
	Failure     = 1 // any error that has no code below
	Usage       = 2 // a flag, an argument or a setting is wrong
	JobFailed   = 3 // the job failed
	Auth        = 4 // no API key, or the key does not allow the request
	NotFound    = 5 // no such job, row or file of results
	Cancelled   = 6 // the job was cancelled
	Timeout     = 7 // --timeout passed; the job goes on
	Unreachable = 8 // the service does not answer
	Overdue     = 9 // a node did not stop in time
	Interrupted = 130
)

// Help lists the exit codes, for the help texts of commands.
const Help = `Exit codes: 0 done, 1 error, 2 wrong usage, 3 the job failed,
4 API key missing or not allowed to do this, 5 not found, 6 the job was cancelled,
7 timeout, 8 service unreachable, 9 the node did not stop in time,
130 interrupted (the job goes on).`

// Error is an error with an exit code.
type Error struct {
	Code int
	Err  error
}

// WithCode returns err with an exit code. If err is nil, it returns nil.
func WithCode(code int, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Code: code, Err: err}
}

// Error returns the message of the wrapped error.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the wrapped error.
func (e *Error) Unwrap() error { return e.Err }

// Signal is the cause of a context that was cancelled because the process got a signal.
type Signal struct{ os.Signal }

// Error names the signal.
func (s Signal) Error() string { return s.String() }

// Code returns the exit code for err: the code from With, or else the code for its kind
// of error.
func Code(err error) int {
	var (
		coded  *Error
		signal Signal
		fault  *client.RowsError
		away   *client.UnreachableError
	)
	switch {
	case err == nil:
		return OK
	case errors.As(err, &coded):
		return coded.Code
	case errors.As(err, &signal):
		if number, ok := signal.Signal.(syscall.Signal); ok {
			return 128 + int(number) // 130 for SIGINT, like shells
		}
		return Interrupted
	case errors.Is(err, context.DeadlineExceeded):
		return Timeout
	case client.Unauthorized(err):
		return Auth
	case errors.Is(err, rowmill.ErrNotFound), errors.Is(err, rowmill.ErrExpired):
		return NotFound
	case errors.As(err, &fault):
		return Failure
	case errors.As(err, &away):
		return Unreachable
	}
	return Failure
}
