package batch

import (
	"maps"
	"net/http"
	"slices"
)

// TypeInvalid is the type of an error of a client, in all dialects.
const TypeInvalid = "invalid_request_error"

// types of errors by status, as all dialects have them.
var types = map[int]string{
	http.StatusUnauthorized:    "authentication_error",
	http.StatusForbidden:       "permission_error",
	http.StatusNotFound:        "not_found_error",
	http.StatusTooManyRequests: "rate_limit_error",
}

// ErrorType is the type of an error with a status; server is that of errors of the service.
func ErrorType(status int, server string) string {
	kind, known := types[status]
	switch {
	case known:
		return kind
	case status >= http.StatusInternalServerError:
		return server
	}
	return TypeInvalid
}

// IsErrorType reports whether all dialects have a type of errors.
func IsErrorType(kind string) bool {
	return kind == TypeInvalid || slices.Contains(slices.Collect(maps.Values(types)), kind)
}
