// Package request owns what is said to a client whose request cannot be
// answered as asked: errors with their status and code, the list of all
// problems of one request, and the reading of small JSON objects that finds
// them. It knows no route and no handler; package exchange sends the answers.
package request

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"syscall"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/results/archive"
	"github.com/rowmill/rowmill/store"
)

const (
	// CodeInvalid is the code of a request that breaks a rule without a code
	// of its own.
	CodeInvalid = "invalid_request"
	// CodeUnknownModel is the code of a model that is neither in the catalog
	// nor a published Function of the account.
	CodeUnknownModel = "unknown_model"
	// CodeOutcomeUnknown is the code of a write that was sent to the storage
	// and not answered.
	CodeOutcomeUnknown = "outcome_unknown"
)

// RetryAfter is what clients are asked to wait while the storage is away, in
// seconds: about what a restart or a failover takes.
const RetryAfter = "5"

// statusClientGone is what logs and metrics show for a request whose client
// left before the answer; nobody receives it.
const statusClientGone = 499

// Error is an error with all that its answer says.
type Error struct {
	Status  int
	Code    string // machine word
	Message string // for a person: what is wrong and the remedy
	Fields  []rowmill.FieldError
	Extra   map[string]any // further fields of the body
	Header  map[string]string
}

// Error is what a person is told.
func (e *Error) Error() string { return e.Message }

// Errorf makes an error with a message.
func Errorf(status int, code, format string, args ...any) *Error {
	return &Error{Status: status, Code: code, Message: fmt.Sprintf(format, args...)}
}

// With adds a field to the error's body.
func (e *Error) With(name string, value any) *Error {
	if e.Extra == nil {
		e.Extra = map[string]any{}
	}
	e.Extra[name] = value
	return e
}

// Closing has the connection closed behind the answer: the rest of the body is not read.
func (e *Error) Closing() *Error {
	e.Header = map[string]string{"Connection": "close"}
	return e
}

// NotNow is an error that is likely to be gone in a while.
func NotNow(code, format string, args ...any) *Error {
	e := Errorf(http.StatusServiceUnavailable, code, format, args...)
	e.Header = map[string]string{"Retry-After": RetryAfter}
	return e
}

// Describe maps any error to an answer. It is the only place that does.
func Describe(err error) *Error {
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
			"the request body is larger than %d bytes; put the rows into a file of CSV, Parquet or JSON Lines, upload it with POST /v1/uploads, and send file: and its id as inputs, or its URL", tooLarge.Limit).Closing()
	case errors.Is(err, archive.ErrRemoved) && errors.Is(err, rowmill.ErrNotFound):
		// The record that was read before does not say so.
		return Errorf(http.StatusGone, "results_expired",
			"the result files of this job are not in the service's storage: retention has just removed them, or the storage has lost them; "+
				"an operator finds out with rowmill storage check")
	case errors.Is(err, archive.ErrRemoved):
		return Errorf(http.StatusGone, "results_expired", "retention has removed the results of this job; submit it again to have them")
	case errors.Is(err, archive.ErrBusy):
		return Errorf(http.StatusServiceUnavailable, "busy", "the job's rows are being merged; try again")
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return Errorf(http.StatusInsufficientStorage, "storage_full",
			"the service's disk is full, so nothing can be stored; free space or shorten the retention, then try again")
	case errors.Is(err, context.Canceled):
		return Errorf(statusClientGone, "client_gone", "the client closed the request")
	case errors.Is(err, store.ErrOutcomeUnknown):
		return NotNow(CodeOutcomeUnknown, "the service's storage did not answer, so your request may have taken effect or not; look whether it has before you repeat it")
	case errors.Is(err, store.ErrNewer):
		return NotNow("unavailable", "a newer version of the service wrote what this would change; ask a node of that version, or have this one upgraded")
	case errors.Is(err, rowmill.ErrUnavailable):
		return NotNow("unavailable", "the service's storage cannot be reached or written now; nothing is known to be wrong with your request, so try again in a few seconds")
	case errors.Is(err, context.DeadlineExceeded):
		return NotNow("timeout", "the store did not answer in time; look whether your request took effect before you repeat it")
	case errors.Is(err, rowmill.ErrNotFound):
		return Errorf(http.StatusNotFound, "not_found", "not found")
	case errors.Is(err, rowmill.ErrExpired):
		return Errorf(http.StatusGone, "expired", "retention has removed what you asked for")
	case errors.Is(err, rowmill.ErrTerminal), errors.Is(err, rowmill.ErrConflict):
		return Errorf(http.StatusConflict, "conflict", "another request changed this first; look again and repeat yours if it still makes sense")
	}
	return Errorf(http.StatusInternalServerError, "internal_error", "internal error; the server's log holds the reason under this request_id")
}
