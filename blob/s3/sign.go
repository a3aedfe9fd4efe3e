package s3

import (
	"cmp"
	"context"
	"net/url"
	"time"

	"github.com/rowmill/rowmill/blob"
)

// SignURL returns a URL that permits one method on an object, at the public endpoint.
// It sends no request. With temporary credentials, the URL expires at the latest when
// the credentials expire.
func (b *Bucket) SignURL(ctx context.Context, method, key, filename string, expires time.Duration) (string, error) {
	if err := cmp.Or(blob.CheckCall(ctx, key), blob.CheckSignRequest(method, filename, expires)); err != nil {
		return "", blob.Wrap(err, "sign URL of", key)
	}
	query := url.Values{"response-content-disposition": {blob.ContentDisposition(filename)}}
	// Round up, so that the URL is valid at least as long as requested.
	expires = (expires + time.Second - 1).Truncate(time.Second)
	signed, err := b.public.Presign(ctx, method, b.config.Bucket, b.name(key), expires, query)
	if err != nil {
		return "", blob.Wrap(err, "sign URL of", key)
	}
	return signed.String(), nil
}
