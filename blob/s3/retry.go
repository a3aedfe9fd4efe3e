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
	"github.com/rowmill/rowmill/internal/retry"
)

// These are error codes of S3 servers. See "Error responses" in the S3 API reference.
const (
	codeNoSuchBucket = "NoSuchBucket"
	codeNoSuchKey    = "NoSuchKey"
	codeNoSuchUpload = "NoSuchUpload"
	codeAccessDenied = "AccessDenied"
	codeInvalidRange = "InvalidRange"
)

// transientCodes are the codes of faults that end by themselves, whatever the HTTP
// status is. Some of them mean that a body was damaged on its way to the server.
var transientCodes = []string{
	"InternalError", "ServiceUnavailable", "SlowDown", "RequestTimeout", "Throttling", "ThrottlingException",
	"RequestLimitExceeded", "BandwidthLimitExceeded", "OperationAborted", "ExpiredToken",
	"BadDigest", "IncompleteBody", "XAmzContentSHA256Mismatch",
}

// errRangeIgnored means that the server sent a whole object although the request named
// a range.
var errRangeIgnored = errors.New("the server ignores Range: it cannot be used as an S3 server")

// logAfter is how long a call must fail before the failure is logged. Only the metrics
// show shorter faults.
const logAfter = 2 * time.Second

// retryCall repeats a call until the call succeeds, fails with an error that retries cannot
// change, or Config.Retry gives up. After a fault that an operator must fix, it repeats
// the call only if ctx has unlimited retries. retryCall translates the error: it is
// rowmill.ErrUnavailable if Config.Retry gave up, and for a fault that an operator must
// fix. call must be safe to repeat.
func (b *Bucket) retryCall(ctx context.Context, call func(ctx context.Context) error) error {
	began := time.Now()
	again := isTransient
	if retry.IsUnlimited(ctx) {
		again = isFixable
	}
	err := b.config.Retry.Do(ctx, func() error { return call(ctx) }, again, func(err error) {
		if time.Since(began) > logAfter && b.failing.CompareAndSwap(false, true) {
			b.config.Logger.Warn("a request to the object store failed and is repeated", "endpoint", b.config.Endpoint, "err", err)
		}
	})
	switch {
	case err == nil:
		if b.failing.CompareAndSwap(true, false) {
			b.config.Logger.Info("the object store answers again", "endpoint", b.config.Endpoint)
		}
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case isStorageFull(err):
		return fmt.Errorf("%w: %w", rowmill.ErrFull, b.translate(err))
	case isFixable(err):
		return fmt.Errorf("%w: %w", rowmill.ErrUnavailable, b.translate(err))
	}
	return b.translate(err)
}

// retryCallFor is like retryCall, for a call that returns a value.
func retryCallFor[T any](ctx context.Context, b *Bucket, call func(ctx context.Context) (T, error)) (value T, err error) {
	err = b.retryCall(ctx, func(ctx context.Context) (err error) {
		value, err = call(ctx)
		return err
	})
	return value, err
}

// isFixable reports whether a fault will end, by itself or after an operator fixes the
// cause: keys that were changed only here or only on the server, a policy, a bucket or
// a certificate that was replaced, a server without space.
func isFixable(err error) bool {
	if answer, ok := errors.AsType[minio.ErrorResponse](err); ok {
		return isTransient(err) || isStorageFull(err) || answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden ||
			slices.Contains(operatorCodes, answer.Code)
	}
	return isTransient(err) || isUntrusted(err) || isPlainHTTP(err)
}

// operatorCodes are the codes of faults in the setup of server or client. Some
// servers send them with other statuses than 401 and 403.
var operatorCodes = []string{
	codeNoSuchBucket, codeAccessDenied, "InvalidAccessKeyId", "SignatureDoesNotMatch", "RequestTimeTooSkewed",
	"AccountProblem", "AllAccessDisabled", "ExpiredToken", "InvalidToken", "AuthorizationHeaderMalformed",
}

// isStorageFull reports whether the server has no space.
func isStorageFull(err error) bool {
	var answer minio.ErrorResponse
	return errors.As(err, &answer) && (answer.StatusCode == http.StatusInsufficientStorage || slices.Contains(fullCodes, answer.Code))
}

// fullCodes are the codes of servers without space.
var fullCodes = []string{"XMinioStorageFull", "QuotaExceeded", "XMinioAdminBucketQuotaExceeded", "InsufficientCapacity"}

// isTransient reports whether err is a fault that may end by itself, so that the same
// call may succeed next time.
func isTransient(err error) bool {
	if answer, ok := errors.AsType[minio.ErrorResponse](err); ok {
		switch answer.StatusCode {
		case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError,
			http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			return true
		}
		return slices.Contains(transientCodes, answer.Code)
	}
	return !errors.Is(err, errRangeIgnored) && !errors.Is(err, blob.ErrLost) && !isUntrusted(err) && !isPlainHTTP(err)
}

// isUntrusted reports whether the server's certificate was rejected.
func isUntrusted(err error) bool {
	var unverified *tls.CertificateVerificationError
	var unknown x509.UnknownAuthorityError
	return errors.As(err, &unverified) || errors.As(err, &unknown)
}

// isPlainHTTP reports whether the client uses TLS but the server does not. net/http has
// no error value for this case.
func isPlainHTTP(err error) bool {
	return strings.Contains(err.Error(), "server gave HTTP response to HTTPS client")
}

// translate turns S3 errors into the errors that blob.Bucket promises.
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
	case answer.Code == codeNoSuchKey, answer.Code == "NoSuchVersion": // without these codes, 404 may also mean an unknown access key
		return rowmill.ErrNotFound
	case answer.StatusCode == http.StatusPreconditionFailed:
		return blob.ErrLost
	}
	return fmt.Errorf("S3 status %d, code %s: %w", answer.StatusCode, answer.Code, err)
}

// errorCode returns the server's error code, or an empty string.
func errorCode(err error) string {
	var answer minio.ErrorResponse
	_ = errors.As(err, &answer)
	return answer.Code
}
