package batch

import (
	"maps"
	"net/http"
	"slices"
)

// TypeInvalid is the type of errors that the client caused, in all dialects.
const TypeInvalid = "invalid_request_error"

// types maps an HTTP status to the error type that all dialects use for it.
var types = map[int]string{
	http.StatusUnauthorized:    "authentication_error",
	http.StatusForbidden:       "permission_error",
	http.StatusNotFound:        "not_found_error",
	http.StatusTooManyRequests: "rate_limit_error",
}

// ErrorType returns the error type for an HTTP status. serverErrorType is the dialect's
// type for errors that the service caused.
func ErrorType(status int, serverErrorType string) string {
	kind, known := types[status]
	switch {
	case known:
		return kind
	case status >= http.StatusInternalServerError:
		return serverErrorType
	}
	return TypeInvalid
}

// IsErrorType reports whether kind is an error type that all dialects share.
func IsErrorType(kind string) bool {
	return kind == TypeInvalid || slices.Contains(slices.Collect(maps.Values(types)), kind)
}
