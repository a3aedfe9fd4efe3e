package s3

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/retry"
)

// Codes that S3 servers give. See "Error responses" in the S3 API reference.
const (
	codeNoSuchBucket = "NoSuchBucket"
	codeNoSuchKey    = "NoSuchKey"
	codeNoSuchUpload = "NoSuchUpload"
	codeAccessDenied = "AccessDenied"
	codeInvalidRange = "InvalidRange"
)

// passing are the codes of faults that pass by themselves, whatever status
// they come with; those of bodies that were damaged on their way among them.
var passing = []string{
	"InternalError", "ServiceUnavailable", "SlowDown", "RequestTimeout", "Throttling", "ThrottlingException",
	"RequestLimitExceeded", "BandwidthLimitExceeded", "OperationAborted", "ExpiredToken",
	"BadDigest", "IncompleteBody", "XAmzContentSHA256Mismatch",
}

// errIgnored says that a server cannot be used.
var errIgnored = errors.New("the server ignores Range: it is no S3 server that can be used")

// tellAfter is how long one call must fail before an operator is told: what
// passes sooner is seen in the metrics alone.
const tellAfter = 2 * time.Second

// try calls until it succeeds, fails for good, or Config.Retry gives up, and
// translates the error: the latter is rowmill.ErrUnavailable, and so is what an
// operator has to mend, for which Config.Retry does not wait. call must be
// harmless to repeat.
func (b *Bucket) try(ctx context.Context, call func(ctx context.Context) error) error {
	began := time.Now()
	again := transient
	if retry.IsPatient(ctx) {
		again = mended
	}
	err := b.config.Retry.Do(ctx, func() error { return call(ctx) }, again, func(err error) {
		if time.Since(began) > tellAfter && b.ailing.CompareAndSwap(false, true) {
			b.config.Logger.Warn("object store failed, will be tried again", "endpoint", b.config.Endpoint, "err", err)
		}
	})
	switch {
	case err == nil:
		if b.ailing.CompareAndSwap(true, false) {
			b.config.Logger.Info("object store answers again", "endpoint", b.config.Endpoint)
		}
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case full(err):
		return fmt.Errorf("%w: %w", rowmill.ErrFull, b.translate(err))
	case mended(err):
		return fmt.Errorf("%w: %w", rowmill.ErrUnavailable, b.translate(err))
	}
	return b.translate(err)
}

// mended reports whether a fault will be gone some time, by itself or since
// an operator sees to it: keys that were rotated at one end only, a policy, a
// bucket or a certificate that is not the one there was at the start, a server
// without room.
func mended(err error) bool {
	var answer minio.ErrorResponse
	if errors.As(err, &answer) {
		return transient(err) || full(err) || answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden ||
			slices.Contains(operators, answer.Code)
	}
	return transient(err) || distrusted(err) || plainHTTP(err)
}

// operators are the codes of faults in how server and client are set up, which
// some servers give with other statuses than 401 and 403.
var operators = []string{
	codeNoSuchBucket, codeAccessDenied, "InvalidAccessKeyId", "SignatureDoesNotMatch", "RequestTimeTooSkewed",
	"AccountProblem", "AllAccessDisabled", "ExpiredToken", "InvalidToken", "AuthorizationHeaderMalformed",
}

// full reports whether the server has no room.
func full(err error) bool {
	var answer minio.ErrorResponse
	return errors.As(err, &answer) && (answer.StatusCode == http.StatusInsufficientStorage || slices.Contains(noRoom, answer.Code))
}

// noRoom are the codes of it that servers give.
var noRoom = []string{"XMinioStorageFull", "QuotaExceeded", "XMinioAdminBucketQuotaExceeded", "InsufficientCapacity"}

// transient reports whether a fault may be gone next time.
func transient(err error) bool {
	var answer minio.ErrorResponse
	if errors.As(err, &answer) {
		switch answer.StatusCode {
		case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError,
			http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			return true
		}
		return slices.Contains(passing, answer.Code)
	}
	return !errors.Is(err, errIgnored) && !errors.Is(err, blob.ErrLost) && !distrusted(err) && !plainHTTP(err)
}

// distrusted reports whether the server's certificate was refused.
func distrusted(err error) bool {
	var unverified *tls.CertificateVerificationError
	var unknown x509.UnknownAuthorityError
	return errors.As(err, &unverified) || errors.As(err, &unknown)
}

// plainHTTP reports whether TLS was spoken to a server that does not. net/http
// has no error value for it.
func plainHTTP(err error) bool {
	return strings.Contains(err.Error(), "server gave HTTP response to HTTPS client")
}

// translate makes the errors of the contract of those of S3.
func (b *Bucket) translate(err error) error {
	var answer minio.ErrorResponse
	if !errors.As(err, &answer) {
		return err
	}
	switch {
	case answer.Code == codeNoSuchBucket:
		return fmt.Errorf("bucket %s does not exist on %s: make it, or correct Bucket: %w", b.config.Bucket, b.config.Endpoint, err)
	case answer.Code == codeNoSuchUpload:
		return fmt.Errorf("the upload was aborted or lost on the server: write the object again: %w", err)
	case answer.Code == codeNoSuchKey, answer.Code == "NoSuchVersion": // 404 alone may also mean an unknown key ID
		return rowmill.ErrNotFound
	case answer.StatusCode == http.StatusPreconditionFailed:
		return blob.ErrLost
	}
	return fmt.Errorf("S3 status %d, code %s: %w", answer.StatusCode, answer.Code, err)
}

// code is what a server gave as the reason, or nothing.
func code(err error) string {
	var answer minio.ErrorResponse
	if errors.As(err, &answer) {
		return answer.Code
	}
	return ""
}
