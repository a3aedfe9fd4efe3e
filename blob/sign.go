package blob

import (
	"fmt"
	"mime"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rowmill/rowmill"
)

// These are the limits for how long a signed URL can be valid. S3 has the same maximum.
const (
	minExpiry = time.Second
	maxExpiry = 7 * 24 * time.Hour
)

// maxFilename is the longest file name of a download, in bytes, as in most file
// systems.
const maxFilename = 255

// CheckSignRequest returns an error if SignURL must refuse these arguments. If expires
// is out of range, the error is a *rowmill.InvalidError for the field
// "expires_in_seconds".
func CheckSignRequest(method, filename string, expires time.Duration) error {
	control := func(r rune) bool { return r < ' ' || r == 0x7f }
	switch {
	case method != http.MethodGet && method != http.MethodHead:
		return fmt.Errorf("method %q: only GET and HEAD can be signed", method)
	case expires < minExpiry || expires > maxExpiry:
		return rowmill.Invalid("expires_in_seconds", "A URL can be valid for %.0f to %.0f seconds, not for %v.", minExpiry.Seconds(), maxExpiry.Seconds(), expires)
	case len(filename) > maxFilename || !utf8.ValidString(filename) || strings.ContainsFunc(filename, control):
		return fmt.Errorf("file name %.80q: at most %d bytes of UTF-8 without control characters are allowed", filename, maxFilename)
	}
	return nil
}

// CheckContentType returns an error if contentType is not valid. An empty type
// is allowed.
func CheckContentType(contentType string) error {
	if contentType == "" {
		return nil
	}
	if _, _, err := mime.ParseMediaType(contentType); err != nil {
		return fmt.Errorf("content type %q: %w", contentType, err)
	}
	return nil
}
