package s3

import (
	"context"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rowmill/rowmill"
)

// The life of a signed URL, by the contract and by S3.
const (
	minExpiry = time.Second
	maxExpiry = 7 * 24 * time.Hour
)

// maxFilename is the longest file name of a download in bytes, as most file
// systems have it.
const maxFilename = 255

// SignURL returns a URL for one method on one object, at the public endpoint.
// Nothing is asked of the server. Under temporary credentials the URL ends
// with them, whatever expires says.
func (b *Bucket) SignURL(ctx context.Context, method, key, filename string, expires time.Duration) (string, error) {
	if err := begin(ctx, key); err != nil {
		return "", fmt.Errorf("sign URL: %w", err)
	}
	control := func(r rune) bool { return r < ' ' || r == 0x7f }
	switch {
	case method != http.MethodGet && method != http.MethodHead:
		return "", fmt.Errorf("sign URL of %s: method %q: only GET and HEAD can be signed", key, method)
	case expires < minExpiry || expires > maxExpiry:
		return "", rowmill.Invalid("expires_in_seconds", "A URL can be valid for %.0f to %.0f seconds, not for %v.", minExpiry.Seconds(), maxExpiry.Seconds(), expires)
	case len(filename) > maxFilename || !utf8.ValidString(filename) || strings.ContainsFunc(filename, control):
		return "", fmt.Errorf("sign URL of %s: file name %.80q: at most %d bytes of UTF-8 without control characters are allowed", key, filename, maxFilename)
	}
	query := url.Values{"response-content-disposition": {disposition(filename)}}
	// Rounded up, so that the URL lives at least as long as was asked for.
	expires = (expires + time.Second - 1).Truncate(time.Second)
	signed, err := b.public.Presign(ctx, method, b.config.Bucket, b.name(key), expires, query)
	if err != nil {
		return "", fmt.Errorf("sign URL of %s: %w", key, err)
	}
	return signed.String(), nil
}

// disposition makes a browser save the object under a name.
func disposition(filename string) string {
	if filename == "" {
		return "attachment"
	}
	return mime.FormatMediaType("attachment", map[string]string{"filename": filename})
}
