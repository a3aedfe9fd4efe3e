package s3

import (
	"context"
	"errors"
	"fmt"

	"github.com/rowmill/rowmill"
)

// check tries the calls that the access key must permit. It begins with the calls that
// have the clearest errors, so that the first error names the cause. Then it finds the
// calls that the server does not support.
func (b *Bucket) check(ctx context.Context) error {
	// No object has this prefix. An error of this call has a body with the reason; an
	// error of HEAD has no body.
	err := b.retryCall(ctx, func(ctx context.Context) error {
		_, err := b.list(ctx, "rowmill-check/")
		return err
	})
	if err != nil {
		return b.addRemedy("list objects", err)
	}
	if err := b.newProbe().run(ctx); err != nil {
		return err
	}
	b.logLimits(b.Limits())
	return nil
}

// addRemedy adds to err the action that failed and advice for the operator.
func (b *Bucket) addRemedy(action string, err error) error {
	advice := ""
	switch errorCode(err) {
	case "InvalidAccessKeyId", "InvalidToken", "ExpiredToken", "TokenRefreshRequired", "XAdminUserNotFound":
		advice = "the server does not know these credentials, or they have expired: correct AccessKey and SessionToken"
	case "SignatureDoesNotMatch":
		advice = "SecretKey does not belong to AccessKey: correct it"
	case "RequestTimeTooSkewed":
		advice = "this machine's clock and the server's differ by more than 15 minutes: set both by NTP"
	case "AuthorizationHeaderMalformed", "PermanentRedirect", "TemporaryRedirect", "InvalidRegion", "IllegalLocationConstraintException":
		advice = fmt.Sprintf("the bucket may be in another region than %q: correct Region and Endpoint", b.config.Region)
	case codeAccessDenied, "AllAccessDisabled", "Forbidden":
		advice = "the key has no permission for this: grant it the permissions in the documentation of objects on S3"
	case codeNoSuchBucket, "":
		switch {
		case errorCode(err) == codeNoSuchBucket, errors.Is(err, context.Canceled), errors.Is(err, rowmill.ErrNotFound), errors.Is(err, errWrongAnswer):
			// These errors explain themselves.
		case isUntrusted(err):
			advice = "the server's certificate is not trusted: add its CA to the certificates of the system, or name a file with the CA in SSL_CERT_FILE"
		case isPlainHTTP(err):
			advice = "the server does not speak TLS: write http:// in Endpoint"
		default:
			advice = "the server does not answer: correct Endpoint, or check that the server runs and that no firewall blocks it"
		}
	}
	if advice == "" {
		return fmt.Errorf("%s: %w", action, err)
	}
	return fmt.Errorf("%s: %s: %w", action, advice, err)
}
