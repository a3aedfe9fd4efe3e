package s3

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"

	"github.com/minio/minio-go/v7"

	"github.com/rowmill/rowmill"
)

// check tries out what the key must be allowed to do, in the order in which an
// operator would find out: the first error names the cause.
func (b *Bucket) check(ctx context.Context) error {
	// A listing of nothing: its errors have a body that says the reason, those
	// of a HEAD have none.
	err := b.try(ctx, func(ctx context.Context) error {
		_, err := b.list(ctx, "rowmill-check/")
		return err
	})
	if err != nil {
		return b.remedy("list objects", err)
	}
	err = b.try(ctx, func(ctx context.Context) error {
		_, err := b.client.ListMultipartUploads(ctx, b.config.Bucket, b.name("rowmill-check/"), "", "", "", 1)
		return err
	})
	if err != nil {
		return b.remedy("list unfinished uploads", err)
	}
	return b.probe(ctx)
}

// probe writes, reads and deletes an object whose name is no key ("!" is in
// none), so that nobody ever sees it in a listing.
func (b *Bucket) probe(ctx context.Context) error {
	name, want := b.name("!check-"+rand.Text()), []byte("rowmill checks that it may write here")
	err := b.try(ctx, func(ctx context.Context) error {
		put, err := b.putOnce(ctx, name, "", bytes.NewReader(want), int64(len(want)), digest(want))
		if err == nil && put.VersionID != "" {
			b.config.Logger.Warn("the bucket keeps versions: what rowmill deletes stays and is paid for, unless a lifecycle rule expires old versions")
		}
		return err
	})
	if err != nil {
		return b.remedy("write an object", err)
	}
	var got []byte
	err = b.try(ctx, func(ctx context.Context) error {
		content, _, _, err := b.client.GetObject(ctx, b.config.Bucket, name, minio.GetObjectOptions{})
		if err != nil {
			return err
		}
		got, err = io.ReadAll(content)
		return errors.Join(err, content.Close())
	})
	if err == nil && !bytes.Equal(got, want) {
		err = fmt.Errorf("%w: %d bytes were written and others read back", errWrongAnswer, len(want))
	}
	if err != nil {
		return b.remedy("read an object", err)
	}
	err = b.try(ctx, func(ctx context.Context) error {
		return b.client.RemoveObject(ctx, b.config.Bucket, name, minio.RemoveObjectOptions{})
	})
	if err != nil {
		return b.remedy("delete an object", err)
	}
	return nil
}

// remedy says what could not be done, and what to do about it.
func (b *Bucket) remedy(action string, err error) error {
	advice := ""
	switch code(err) {
	case "InvalidAccessKeyId", "InvalidToken", "ExpiredToken", "TokenRefreshRequired", "XAdminUserNotFound":
		advice = "the server does not know these credentials, or they have expired: correct AccessKey and SessionToken"
	case "SignatureDoesNotMatch":
		advice = "SecretKey does not belong to AccessKey: correct it"
	case "RequestTimeTooSkewed":
		advice = "this machine's clock and the server's differ by more than 15 minutes: set both by NTP"
	case "AuthorizationHeaderMalformed", "PermanentRedirect", "TemporaryRedirect", "InvalidRegion", "IllegalLocationConstraintException":
		advice = fmt.Sprintf("the bucket may be in another region than %q: correct Region and Endpoint", b.config.Region)
	case codeAccessDenied, "AllAccessDisabled", "Forbidden":
		advice = "the key may not do this: grant it what the documentation of objects on S3 lists"
	case codeNoSuchBucket, "":
		switch {
		case code(err) == codeNoSuchBucket, errors.Is(err, context.Canceled), errors.Is(err, rowmill.ErrNotFound), errors.Is(err, errWrongAnswer):
			// They say it themselves.
		case distrusted(err):
			advice = "the server's certificate is not trusted: add its CA to the system's, or name it in SSL_CERT_FILE"
		case plainHTTP(err):
			advice = "the server does not speak TLS: write http:// in Endpoint"
		default:
			advice = "the server does not answer: correct Endpoint, or see whether it runs and a firewall lets it be reached"
		}
	}
	if advice == "" {
		return fmt.Errorf("%s: %w", action, err)
	}
	return fmt.Errorf("%s: %s: %w", action, advice, err)
}
