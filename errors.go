package rowmill

import (
	"errors"
	"fmt"
)

// The errors that cross package borders. Adapters translate their own errors
// into these, wrapped with what they were doing, so that callers test with
// errors.Is and never see a driver's error value.
var (
	// ErrNotFound says that the thing asked for does not exist, or belongs to
	// another account.
	ErrNotFound = errors.New("not found")

	// ErrConflict says that the thing exists already in another form: a
	// compare-and-set lost, an idempotency key was reused with another body.
	ErrConflict = errors.New("conflict")

	// ErrLeaseLost says that the caller's session or epoch no longer owns the
	// job. Whoever gets it must stop acting for that job at once.
	ErrLeaseLost = errors.New("lease lost")

	// ErrTerminal says that the job has already succeeded, failed or been
	// cancelled, and therefore never changes again.
	ErrTerminal = errors.New("job is over")

	// ErrUnavailable says that records or objects cannot be reached or written
	// now: what keeps them is down, starting, full or too slow. Nothing is known
	// to be wrong with what was asked for, which may succeed later.
	ErrUnavailable = errors.New("storage is unavailable")

	// ErrFull says the same of storage that has no room: what was asked for
	// succeeds once there is some again.
	ErrFull = fmt.Errorf("%w: it has no room", ErrUnavailable)

	// ErrExpired says that retention has removed what was asked for.
	ErrExpired = errors.New("expired")
)

// MustStop reports whether an error says that the caller must stop acting for a
// job: it is over, or another's.
func MustStop(err error) bool { return errors.Is(err, ErrTerminal) || errors.Is(err, ErrLeaseLost) }

// FieldError is one broken rule of one field of a request.
type FieldError struct {
	Field   string `json:"field"`   // JSON path, such as "inputs[17]" or "sampling_params.top_p"
	Message string `json:"message"` // the rule and the remedy, a full sentence
}

// InvalidError says that a request breaks rules; nothing was created. Code is
// the machine word of the error body, such as "unknown_model".
type InvalidError struct {
	Code   string
	Fields []FieldError
}

// Error joins the first field's message with the number of further ones.
func (e *InvalidError) Error() string {
	if len(e.Fields) == 0 {
		return e.Code
	}
	text := fmt.Sprintf("%s: %s", e.Fields[0].Field, e.Fields[0].Message)
	if more := len(e.Fields) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more)", more)
	}
	return text
}

// Invalid makes an InvalidError about one field with the code
// "invalid_request".
func Invalid(field, format string, args ...any) *InvalidError {
	return &InvalidError{
		Code:   "invalid_request",
		Fields: []FieldError{{Field: field, Message: fmt.Sprintf(format, args...)}},
	}
}

// The codes of a job's failure_reason.
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
	CodeWindowExpired     = "window_expired" // of a Raw job: its Deadline came first
	CodeInternalError     = "internal_error"
)

// Failure is why a job failed. It travels as an error inside the pipeline and
// ends as the job's failure_reason.
type Failure struct {
	Message           string `json:"message"`            // what happened and what to do, for a person
	Code              string `json:"code"`               // one of the Code constants
	AdditionalContext string `json:"additional_context"` // detail for whoever debugs it; may be empty
}

// Error returns the message.
func (f *Failure) Error() string { return f.Message }

// Failf makes a Failure.
func Failf(code, format string, args ...any) *Failure {
	return &Failure{Code: code, Message: fmt.Sprintf(format, args...)}
}
