package input

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"syscall"

	"code.dny.dev/ssrf"

	"github.com/rowmill/rowmill"
)

// maxHeader is the largest response header, in bytes: the default limit of Go's HTTP
// server.
const maxHeader = 1 << 20

// guardedTransport returns a transport that cannot reach forbidden networks. For every
// connection, also after a redirect, the dialer checks the IP address to which the name
// was resolved.
func guardedTransport(cfg Config) http.RoundTripper {
	dialer := &net.Dialer{Timeout: cfg.ConnectTimeout, ControlContext: newGuard(cfg).checkDial}
	return &http.Transport{
		Proxy:                  nil, // a proxy would dial without the check
		DialContext:            dialer.DialContext,
		TLSHandshakeTimeout:    cfg.ConnectTimeout,
		ResponseHeaderTimeout:  cfg.HeaderTimeout,
		MaxResponseHeaderBytes: maxHeader,
		DisableCompression:     true,
		// The HTTP client may send a request twice on a reused connection or over
		// HTTP/2. The next two settings prevent both.
		DisableKeepAlives: true,
		TLSNextProto:      map[string]func(string, *tls.Conn) http.RoundTripper{},
		TLSClientConfig:   &tls.Config{MinVersion: tls.VersionTLS12},
	}
}

// NewTransport returns a transport for requests to addresses that clients chose. It has
// the timeouts of cfg and refuses the same addresses as a download.
func NewTransport(cfg Config) http.RoundTripper { return guardedTransport(cfg.WithDefaults()) }

func newClient(cfg Config) *http.Client {
	transport := cfg.Transport
	if transport == nil {
		transport = guardedTransport(cfg)
	}
	return &http.Client{Transport: transport, CheckRedirect: func(req *http.Request, via []*http.Request) error {
		if len(via) > cfg.MaxRedirects {
			return &redirectError{fmt.Sprintf("it redirects more than %d times", cfg.MaxRedirects)}
		}
		if req.URL.Scheme != "http" && req.URL.Scheme != "https" || req.URL.Host == "" {
			return &redirectError{"it redirects to an address that is not http or https"}
		}
		if req.URL.User != nil {
			return &redirectError{"it redirects to a URL with a password"}
		}
		// The first URL may be a secret, so do not send it to the next server.
		req.Header.Del("Referer")
		req.Header.Del("Authorization")
		return nil
	}}
}

// redirectError means that the client does not follow a redirect. reason continues a
// sentence, like the result of FailureReason.
type redirectError struct{ reason string }

func (e *redirectError) Error() string { return e.reason }

// convertHTTPError converts an error of the HTTP client into a *rowmill.Failure, or into another
// error if ctx was canceled. It does not use the error's own text, which may contain
// the URL.
func (d *download) convertHTTPError(err error) error {
	cause := context.Cause(d.ctx)
	switch {
	case errors.Is(cause, errStalled):
		return downloadFailure("The download from %s received no bytes for %v and was stopped. Submit the job again.", d.host, d.cfg.StallTimeout)
	case errors.Is(cause, errTooSlow):
		return downloadFailure("The download from %s took more than %v and was stopped. Use a faster server or a smaller file.", d.host, d.cfg.TotalTimeout)
	case cause != nil:
		return fmt.Errorf("download from %s: %w", d.host, cause)
	}
	failure := rowmill.Failf(rowmill.CodeDownloadFailed, "The input cannot be downloaded from %s: %s. Downloads are not repeated.", d.host, FailureReason(err))
	failure.AdditionalContext = describeNetworkError(err)
	return failure
}

// FailureReason returns the reason why a request to an address that a client chose got no
// answer. The text continues a sentence and does not contain the URL.
func FailureReason(err error) string {
	var (
		redirect *redirectError
		dns      *net.DNSError
		name     x509.HostnameError
		cert     *tls.CertificateVerificationError
		record   tls.RecordHeaderError
		alert    tls.AlertError
		timeout  net.Error
		opErr    *net.OpError
		sysErr   syscall.Errno
	)
	switch {
	case errors.As(err, &redirect):
		return redirect.reason
	case errors.Is(err, errMetadata):
		return "it leads to the metadata service of a cloud, and no setting permits that"
	case errors.Is(err, errOwnAddress):
		return "it leads to this service itself or to one of its inference servers, and no setting permits that"
	case errors.Is(err, errLoopback):
		return "it leads to the machine that the service runs on; the setting inputs.allow_loopback permits that"
	case errors.Is(err, ssrf.ErrProhibitedIP), errors.Is(err, ssrf.ErrProhibitedNetwork):
		return "it leads to an address in a private or reserved network; the setting inputs.allow_private_networks permits that"
	case errors.As(err, &dns) && dns.IsNotFound:
		return "the name is not known"
	case errors.As(err, &dns):
		return "the name cannot be resolved"
	case errors.As(err, &name):
		return "its TLS certificate is for another name"
	case errors.As(err, &cert):
		return "its TLS certificate is not trusted"
	case errors.Is(err, http.ErrSchemeMismatch), errors.As(err, &record):
		return "it does not speak TLS; the URL may need http instead of https"
	case errors.As(err, &alert):
		return "it refused the TLS handshake"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "it did not answer in time"
	case errors.As(err, &sysErr):
		return sysErr.Error()
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "it closed the connection"
	case errors.As(err, &opErr):
		return "the connection failed during " + opErr.Op
	}
	return "it gave no valid HTTP answer"
}

// describeNetworkError returns technical text that helps to find the cause of an error: the address,
// and the message of the network or of TLS. It uses only errors that cannot contain a
// URL. For a private or reserved address it returns an empty string.
func describeNetworkError(err error) string {
	var (
		dns   *net.DNSError
		cert  *tls.CertificateVerificationError
		opErr *net.OpError
	)
	switch {
	case errors.Is(err, ssrf.ErrProhibitedIP), errors.Is(err, ssrf.ErrProhibitedNetwork), errors.Is(err, errMetadata), errors.Is(err, errOwnAddress):
		return ""
	case errors.As(err, &dns):
		return fmt.Sprintf("lookup %s: %s", dns.Name, dns.Err)
	case errors.As(err, &cert):
		return cert.Error()
	case errors.As(err, &opErr):
		return opErr.Error()
	}
	return ""
}
