package rowmill

import (
	"errors"
	"fmt"
)

// Errors that cross package borders. A package that uses a driver, such as a store or a
// bucket, wraps the driver's errors in these, so that callers need only errors.Is.
var (
	// ErrNotFound means that the requested job, file or other record does not exist, or
	// belongs to another account.
	ErrNotFound = errors.New("not found")

	// ErrConflict means that the stored data differs from the data that the caller
	// expects: a compare-and-set failed, or an idempotency key was used with a
	// different body.
	ErrConflict = errors.New("conflict")

	// ErrLeaseLost means that the caller's session or epoch no longer owns the job. The
	// caller must stop work on the job at once.
	ErrLeaseLost = errors.New("lease lost")

	// ErrTerminal means that the job has succeeded, failed or been cancelled, and can
	// never change again.
	ErrTerminal = errors.New("the job has ended")

	// ErrUnavailable means that records or objects cannot be read or written now: their
	// storage is down, starting, full or too slow. A retry may succeed later.
	ErrUnavailable = errors.New("storage is unavailable")

	// ErrFull means that storage has no free space. It wraps ErrUnavailable: a retry
	// succeeds once there is space.
	ErrFull = fmt.Errorf("%w: it has no free space", ErrUnavailable)

	// ErrExpired means that retention has removed the requested data.
	ErrExpired = errors.New("expired")
)

// ShouldStopJob reports whether err means that the caller must stop work on a job: the job
// has ended, or another node owns the job.
func ShouldStopJob(err error) bool {
	return errors.Is(err, ErrTerminal) || errors.Is(err, ErrLeaseLost)
}

// FieldError describes a rule that a field of a request violates.
type FieldError struct {
	Field   string `json:"field"`   // JSON path, such as "inputs[17]" or "sampling_params.top_p"
	Message string `json:"message"` // the violated rule and how to fix the request, a full sentence
}

// InvalidError means that a request violates rules and was refused, so nothing was
// created. Code is the error code in the response body, such as "unknown_model".
type InvalidError struct {
	Code   string
	Fields []FieldError
}

// Error returns the first field's message and the number of further problems.
func (e *InvalidError) Error() string {
	if len(e.Fields) == 0 {
		return e.Code
	}
	text := fmt.Sprintf("%s: %s", e.Fields[0].Field, e.Fields[0].Message)
	if more := len(e.Fields) - 1; more > 0 {
		text += fmt.Sprintf("; further problems: %d", more)
	}
	return text
}

// Invalid returns an InvalidError for one field, with the code "invalid_request".
func Invalid(field, format string, args ...any) *InvalidError {
	return &InvalidError{
		Code:   "invalid_request",
		Fields: []FieldError{{Field: field, Message: fmt.Sprintf(format, args...)}},
	}
}

// Codes of a job's failure_reason.
const (
	CodeDownloadFailed    = "download_failed"
	CodeInvalidInputFile  = "invalid_input_file"
	CodeRowQuota          = "row_quota_exceeded"
	CodeTokenQuota        = "token_quota_exceeded"
	CodeCostQuota         = "cost_quota_exceeded"
	CodeRowTooLong        = "row_too_long"
	CodeModelUnavailable  = "model_unavailable"
	CodeTooManyFailedRows = "too_many_failed_rows"
	CodeEngineError       = "engine_error"
	CodeWindowExpired     = "window_expired" // a batch reached its Raw.Deadline
	CodeOutputFailed      = "output_failed"  // the results could not be written to Spec.Sink
	CodeInternalError     = "internal_error"
)

// Failure is the reason why a job failed. The pipeline passes it as an error; it
// becomes the job's failure_reason.
type Failure struct {
	Message           string `json:"message"`            // what happened and what to do, for a person
	Code              string `json:"code"`               // one of the Code constants
	AdditionalContext string `json:"additional_context"` // details for debugging; may be empty
}

// Error returns the message.
func (f *Failure) Error() string { return f.Message }

// Failf returns a Failure with a formatted message.
func Failf(code, format string, args ...any) *Failure {
	return &Failure{Code: code, Message: fmt.Sprintf(format, args...)}
}
