package exchange

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/internal/textfmt"
)

// QueryInt reads a query parameter that must be an integer from low to high. It returns
// defaultValue if the query does not have the parameter. It adds an invalid value to p.
func QueryInt(c *gin.Context, p *request.Problems, name string, defaultValue, low, high int64) int64 {
	given, there := c.GetQuery(name)
	if !there {
		return defaultValue
	}
	n, err := strconv.ParseInt(given, 10, 64)
	if err != nil || n < low || n > high {
		p.Add(name, "is %q; it must be an integer from %d to %d", textfmt.Shorten(given, 32), low, high)
	}
	return n
}

// QueryOneOf reads a query parameter that must be one of values. It returns "" if the
// query does not have the parameter. It adds an invalid value to p.
func QueryOneOf(c *gin.Context, p *request.Problems, name string, values []string) string {
	given, there := c.GetQuery(name)
	if there && !slices.Contains(values, given) {
		p.Add(name, "is %q; it must be one of %s", textfmt.Shorten(given, 32), strings.Join(values, ", "))
	}
	return given
}

// QueryBool reads a boolean query parameter. It returns false if the query does not
// have the parameter. It adds an invalid value to p.
func QueryBool(c *gin.Context, p *request.Problems, name string) bool {
	given, there := c.GetQuery(name)
	if !there {
		return false
	}
	value, err := strconv.ParseBool(given)
	if err != nil {
		p.Add(name, "is %q; it must be true or false", textfmt.Shorten(given, 32))
	}
	return value
}

// OrZero returns the value that p points to, or the zero value if p is nil.
func OrZero[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// ToInt64Ptr converts an *int to an *int64. It returns nil for nil.
func ToInt64Ptr(n *int) *int64 {
	if n == nil {
		return nil
	}
	wide := int64(*n)
	return &wide
}

// NilIfZero returns a pointer to a value, or nil if the value is zero. JSON shows nil as null.
func NilIfZero[T comparable](v T) *T {
	if v == *new(T) {
		return nil
	}
	return &v
}

// OrEmptyList returns list, or an empty list if list is nil. JSON would show nil as null.
func OrEmptyList[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// entityTag returns the ETag of a document with a version number.
func entityTag(version int64) string { return fmt.Sprintf(`"%d"`, version) }

// SetETagOnSuccess sets the header ETag of the answer to the version of the answered document. It
// does nothing if err is not nil.
func SetETagOnSuccess(c *gin.Context, version int64, err error) {
	if err == nil {
		c.Header("ETag", entityTag(version))
	}
}

// CheckIfMatch returns an error if the header If-Match of the request has another version
// than version, the current version of a document. document is its name for the
// error.
func CheckIfMatch(c *gin.Context, version int64, document string) error {
	if want := c.GetHeader("If-Match"); want != "" && want != "*" && want != entityTag(version) {
		return request.Errorf(http.StatusPreconditionFailed, "changed_meanwhile",
			"the %s are no longer the version %s of If-Match; read them again and repeat the change", document, textfmt.Shorten(want, 64))
	}
	return nil
}

// UnknownRoute returns the error for an address without a route.
func UnknownRoute(c *gin.Context) error {
	return request.Errorf(http.StatusNotFound, "unknown_route",
		"there is nothing at %s %s; /openapi.json lists all routes", c.Request.Method, textfmt.Shorten(c.Request.URL.Path, 256))
}
