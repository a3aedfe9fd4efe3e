package client

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/rowmill/rowmill"
)

// APIError means that the service has refused a request.
type APIError struct {
	Status     int    // HTTP status
	Code       string // error code for programs, such as "unknown_model"; may be empty
	Message    string
	RequestID  string
	Fields     []rowmill.FieldError
	RetryAfter time.Duration // how long to wait before a retry, from the header Retry-After; 0 if absent
}

// Error returns the message, the problems of fields that the message does not contain, and
// the request id for support.
func (e *APIError) Error() string {
	var out strings.Builder
	out.WriteString(e.Message)
	for _, field := range e.Fields {
		if !strings.Contains(e.Message, field.Message) {
			fmt.Fprintf(&out, "\n  %s: %s", field.Field, field.Message)
		}
	}
	fmt.Fprintf(&out, " (HTTP %d", e.Status)
	if e.Code != "" {
		out.WriteString(", " + e.Code)
	}
	if e.RequestID != "" {
		out.WriteString(", request " + e.RequestID)
	}
	out.WriteString(")")
	return out.String()
}

// Unwrap makes errors.Is match rowmill.ErrNotFound, ErrConflict and ErrExpired.
func (e *APIError) Unwrap() error {
	switch e.Status {
	case http.StatusNotFound:
		return rowmill.ErrNotFound
	case http.StatusConflict:
		return rowmill.ErrConflict
	case http.StatusGone:
		return rowmill.ErrExpired
	}
	return nil
}

// Temporary reports whether the same request may succeed if it is sent again later.
func (e *APIError) Temporary() bool {
	return e.Status == http.StatusTooManyRequests || e.Status >= 500 && e.Status != http.StatusNotImplemented
}

// UnreachableError means that no answer arrived, or that the answer is not from a Rowmill
// service.
type UnreachableError struct {
	Server string
	Err    error
}

// Error returns the server and the reason.
func (e *UnreachableError) Error() string { return fmt.Sprintf("cannot reach %s: %v", e.Server, e.Err) }

// Unwrap returns the reason.
func (e *UnreachableError) Unwrap() error { return e.Err }

// RowsError means that the rows of a submission could not be read from the caller's input.
// The service is not the cause.
type RowsError struct{ Err error }

// Error returns the reason.
func (e *RowsError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *RowsError) Unwrap() error { return e.Err }

// decodeAPIError reads the body of a response and returns its error as an APIError.
func decodeAPIError(resp *http.Response) error {
	e := &APIError{Status: resp.StatusCode, RequestID: resp.Header.Get("X-Request-Id")}
	content, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20)) // if the body is incomplete, use the bytes that arrived
	var body struct {
		Message   string               `json:"message"`
		Code      string               `json:"code"`
		RequestID string               `json:"request_id"`
		Errors    []rowmill.FieldError `json:"errors"`
		Error     struct {             // the error form of the OpenAI and Anthropic routes
			Message, Code string
		} `json:"error"`
	}
	_ = json.Unmarshal(content, &body) // if the body is not JSON, the message stays empty
	if body.Message == "" {
		body.Message, body.Code = body.Error.Message, body.Error.Code
	}
	if body.Message != "" {
		e.Message, e.Code, e.Fields = body.Message, body.Code, body.Errors
		e.RequestID = cmp.Or(body.RequestID, e.RequestID)
	} else {
		e.Message = "the server answered " + resp.Status
	}
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 {
		e.RetryAfter = time.Duration(seconds) * time.Second
	}
	return e
}
