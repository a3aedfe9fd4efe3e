// Package request describes invalid requests and failures to clients: errors with a
// status and a code, and lists of all problems of a request. It also reads small JSON
// objects and collects their problems. It knows no route and no handler; package exchange
// sends the answers.
package request

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"syscall"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/results/archive"
	"github.com/rowmill/rowmill/store"
)

const (
	// CodeInvalid is the error code for a broken rule that has no code of its own.
	CodeInvalid = "invalid_request"
	// CodeUnknownModel is the code for a model that is neither in the catalog nor a
	// published Function of the account.
	CodeUnknownModel = "unknown_model"
	// CodeOutcomeUnknown is the error code for a write that was sent to the storage but
	// not confirmed.
	CodeOutcomeUnknown = "outcome_unknown"
)

// RetryAfter is the value of the header Retry-After while the storage is unavailable, in
// seconds: about the time of a restart or a failover.
const RetryAfter = "5"

// statusClientGone is the status in logs and metrics of a request whose client
// disconnected before the answer.
const statusClientGone = 499

// Error is an error together with the HTTP answer that the client gets for it.
type Error struct {
	Status  int
	Code    string // name of the error, for programs
	Message string // for people: the problem and the remedy
	Fields  []rowmill.FieldError
	Extra   map[string]any // additional fields of the answer's body
	Header  map[string]string
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Errorf returns an error with a formatted message.
func Errorf(status int, code, format string, args ...any) *Error {
	return &Error{Status: status, Code: code, Message: fmt.Sprintf(format, args...)}
}

// WithField adds a field to the answer's body and returns e.
func (e *Error) WithField(name string, value any) *Error {
	if e.Extra == nil {
		e.Extra = map[string]any{}
	}
	e.Extra[name] = value
	return e
}

// CloseConnection makes the server close the connection after the answer, so that the server
// does not read the rest of the request's body. CloseConnection returns e.
func (e *Error) CloseConnection() *Error {
	e.Header = map[string]string{"Connection": "close"}
	return e
}

// RetryLater returns an error with status 503 and a header Retry-After, which tells the
// client to try again after RetryAfter.
func RetryLater(code, format string, args ...any) *Error {
	e := Errorf(http.StatusServiceUnavailable, code, format, args...)
	e.Header = map[string]string{"Retry-After": RetryAfter}
	return e
}

// FromError returns the HTTP answer for any error. No other function decides this, so
// the same error has the same answer on all routes.
func FromError(err error) *Error {
	var (
		ready    *Error
		invalid  *rowmill.InvalidError
		tooLarge *http.MaxBytesError
	)
	switch {
	case errors.As(err, &ready):
		return ready
	case errors.As(err, &invalid):
		e := Errorf(http.StatusBadRequest, invalid.Code, "%s", invalid.Error())
		e.Fields = invalid.Fields
		return e
	case errors.As(err, &tooLarge):
		return Errorf(http.StatusRequestEntityTooLarge, "body_too_large",
			"the request body is larger than %d bytes; put the rows into a file of CSV, Parquet or JSON Lines, upload it with POST /v1/uploads, and send file:ID, or the URL of the file, as inputs", tooLarge.Limit).CloseConnection()
	case errors.Is(err, archive.ErrRemoved) && errors.Is(err, rowmill.ErrNotFound):
		// The record shows no removal: it was read before the removal, or the storage lost the files.
		return RetryLater("results_missing",
			"the storage does not have the result files of this job; try again. If this error returns, the storage has lost the files: "+
				"an operator can check this with rowmill storage check")
	case errors.Is(err, archive.ErrRemoved):
		return Errorf(http.StatusGone, "results_expired", "the results of this job were deleted after the retention time; submit the job again to get new results")
	case errors.Is(err, archive.ErrBusy):
		return Errorf(http.StatusServiceUnavailable, "busy", "the job's rows are being merged; try again")
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return Errorf(http.StatusInsufficientStorage, "storage_full",
			"the service's disk is full, so nothing can be stored; free space or shorten the retention, then try again")
	case errors.Is(err, context.Canceled):
		return Errorf(statusClientGone, "client_gone", "the client closed the request")
	case errors.Is(err, store.ErrOutcomeUnknown):
		return RetryLater(CodeOutcomeUnknown, "the service's storage did not answer, so your request may have taken effect or not; check that before you repeat it")
	case errors.Is(err, store.ErrDamaged), errors.Is(err, results.ErrDamaged):
		return Errorf(http.StatusInternalServerError, "damaged",
			"a stored record or result that this request needs is damaged; an operator finds it with rowmill storage check --read, and can restore it from a backup")
	case errors.Is(err, store.ErrNewer):
		return RetryLater("unavailable", "a newer version of the service wrote the record; send the request to a node of that version, or upgrade this node")
	case errors.Is(err, rowmill.ErrUnavailable):
		return RetryLater("unavailable", "the service's storage cannot be reached or written now; nothing is known to be wrong with your request, so try again in a few seconds")
	case errors.Is(err, context.DeadlineExceeded):
		return RetryLater("timeout", "the store did not answer in time; check whether your request took effect before you repeat it")
	case errors.Is(err, rowmill.ErrNotFound):
		return Errorf(http.StatusNotFound, "not_found", "not found")
	case errors.Is(err, rowmill.ErrExpired):
		return Errorf(http.StatusGone, "expired", "the requested data was deleted after the retention time")
	case errors.Is(err, rowmill.ErrTerminal), errors.Is(err, rowmill.ErrConflict):
		return Errorf(http.StatusConflict, "conflict", "another request changed this first; read it again and repeat your request if it is still needed")
	}
	return Errorf(http.StatusInternalServerError, "internal_error", "internal error; the server's log holds the reason under this request_id")
}
