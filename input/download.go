package input

import (
	"bytes"
	"cmp"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/textfmt"
)

// Config holds the settings of a Downloader.
type Config struct {
	// MaxBytes is the largest size of a downloaded file, in bytes. Default 10 GiB.
	MaxBytes int64
	// MaxRedirects is the largest number of redirects in one download. Default 5: file
	// hosts redirect to their CDN, usually once.
	MaxRedirects int
	// ConnectTimeout limits the time of the TCP dial, and separately the time of the
	// TLS handshake. Default 10s.
	ConnectTimeout time.Duration
	// HeaderTimeout limits the wait for the response header. Default 60s: some
	// servers begin to produce the file before they send the header.
	HeaderTimeout time.Duration
	// StallTimeout is the longest time without a received byte. After that, the
	// download fails. Default 60s, longer than the pauses of a healthy server.
	StallTimeout time.Duration
	// TotalTimeout limits a whole download. Default 6h: 10 GiB at 4 Mbit/s.
	TotalTimeout time.Duration
	// AllowLoopback permits addresses of this machine. Default false. The program turns
	// it on if its API listens only on this machine, so that trials are easy.
	AllowLoopback bool
	// AllowPrivateNetworks permits addresses of private, loopback and link-local
	// networks. The metadata services of clouds stay forbidden. Default false: clients
	// choose the URLs, and this service must not fetch internal data for them.
	AllowPrivateNetworks bool
	// OwnAddresses returns the addresses, HOST:PORT, of this service's own listeners and
	// engines. Downloads never connect to them, whatever the other settings say,
	// because they may give this machine data that others must not see. The guard calls
	// OwnAddresses for each connection. A host can be a name. An empty or unspecified host means
	// every address of this machine. Default nil: no addresses.
	OwnAddresses func() []string
	// Transport replaces the network and the address checks in simulations. Default
	// nil: the real network.
	Transport http.RoundTripper
	// Logger gets one line for each finished download. Required.
	Logger *slog.Logger
}

// WithDefaults replaces zero fields with their defaults.
func (c Config) WithDefaults() Config {
	c.MaxBytes = cmp.Or(c.MaxBytes, 10<<30)
	c.MaxRedirects = cmp.Or(c.MaxRedirects, 5)
	c.ConnectTimeout = cmp.Or(c.ConnectTimeout, 10*time.Second)
	c.HeaderTimeout = cmp.Or(c.HeaderTimeout, time.Minute)
	c.StallTimeout = cmp.Or(c.StallTimeout, time.Minute)
	c.TotalTimeout = cmp.Or(c.TotalTimeout, 6*time.Hour)
	return c
}

// Validate returns an error that names the first invalid setting.
func (c Config) Validate() error {
	switch {
	case c.MaxBytes < 0:
		return fmt.Errorf("max bytes: %d is negative", c.MaxBytes)
	case c.MaxRedirects < 0:
		return fmt.Errorf("max redirects: %d is negative", c.MaxRedirects)
	case c.ConnectTimeout < 0 || c.HeaderTimeout < 0 || c.StallTimeout < 0 || c.TotalTimeout < 0:
		return errors.New("connect, header, stall and total timeout must not be negative")
	case c.Logger == nil:
		return errors.New("logger is missing")
	}
	return nil
}

// Downloader downloads input files. It is safe for concurrent use.
type Downloader struct {
	cfg    Config
	client *http.Client
}

// New returns a Downloader, or an error if a setting is invalid.
func New(cfg Config) (*Downloader, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure downloads: %w", err)
	}
	return &Downloader{cfg: cfg, client: newClient(cfg)}, nil
}

// Causes that end a download early.
var (
	errStalled = errors.New("the download stalled")
	errTooSlow = errors.New("the download took too long")
)

// Fetch downloads a URL into w with one GET request and returns the number of bytes. It
// never repeats or resumes a download. If the URL or its server is at fault, the error
// is a *rowmill.Failure with the code download_failed. Errors of w and of ctx are
// wrapped. An error contains at most the host of the URL.
func (d *Downloader) Fetch(ctx context.Context, url string, w io.Writer) (int64, error) {
	u, err := parseURL(url)
	if err != nil {
		return 0, downloadFailure("The input cannot be downloaded: %v.", err)
	}
	ctx, stop := context.WithTimeoutCause(ctx, d.cfg.TotalTimeout, errTooSlow)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	get := download{Downloader: d, ctx: ctx, cancel: cancel, host: u.Host}
	begin := time.Now()
	n, err := get.run(url, w)
	if err != nil {
		return n, err
	}
	d.cfg.Logger.InfoContext(ctx, "input downloaded", slog.String("host", u.Host), slog.Int64("bytes", n), slog.Duration("took", time.Since(begin)))
	return n, nil
}

// Expecter is a writer that wants to know the size of the file before the first write.
// Fetch calls Expect if the server announces the size.
type Expecter interface{ Expect(bytes int64) }

// download is the state of one call of Fetch.
type download struct {
	*Downloader
	ctx    context.Context //nolint:containedctx // download lives only as long as the call
	cancel context.CancelCauseFunc
	host   string // host of the URL, for error messages
}

func (d *download) run(address string, w io.Writer) (int64, error) {
	req, err := http.NewRequestWithContext(d.ctx, http.MethodGet, address, nil)
	if err != nil {
		return 0, downloadFailure("The input cannot be downloaded from %s: the URL is not valid.", d.host)
	}
	req.Header.Set("Accept-Encoding", "identity") // ask for the bytes as stored, without compression
	req.Header.Set("User-Agent", "rowmill")
	resp, err := d.client.Do(req)
	if err != nil {
		return 0, d.convertHTTPError(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		failure := rowmill.Failf(rowmill.CodeDownloadFailed, "The server %s answered %d %s instead of the input file. %s",
			d.host, resp.StatusCode, http.StatusText(resp.StatusCode), statusHint(resp.StatusCode))
		stalled := time.AfterFunc(d.cfg.StallTimeout, func() { d.cancel(errStalled) })
		failure.AdditionalContext = refusalReason(resp, req.URL)
		stalled.Stop()
		return 0, failure
	}
	if resp.ContentLength > d.cfg.MaxBytes {
		return 0, d.tooLargeError()
	}
	if e, ok := w.(Expecter); ok && resp.ContentLength > 0 {
		e.Expect(resp.ContentLength)
	}
	html := strings.HasPrefix(strings.ToLower(resp.Header.Get("Content-Type")), "text/html")
	n, err := d.copyBody(w, resp.Body, html)
	if err != nil {
		return n, err
	}
	if resp.ContentLength > 0 && n != resp.ContentLength {
		return n, d.truncatedError(n)
	}
	if n == 0 {
		return 0, rowmill.Failf(rowmill.CodeInvalidInputFile, "The server %s sent an empty file. Check the URL.", d.host)
	}
	return n, nil
}

const (
	// maxRefusalBody is the largest number of bytes read from the body of an error
	// response.
	maxRefusalBody = 16 << 10
	// maxRefusalReason is the longest reason in a failure, in bytes: an S3 error has a
	// few hundred bytes.
	maxRefusalReason = 500
	// minSecret is the shortest query value that may be a secret, in bytes. Shorter
	// values, such as a version, appear in any text.
	minSecret = 6
)

// refusalReason returns the reason that a server gives for not sending the file: the
// code and message of an S3 error, or a body of plain text or JSON, but no web page. It
// leaves out the other members of an S3 error, because they may repeat the signature of
// the request, which is a secret.
func refusalReason(resp *http.Response, asked *url.URL) string {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusalBody))
	kind, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	var refusal struct {
		Code    string `xml:"Code"`
		Message string `xml:"Message"`
	}
	reason := ""
	switch {
	case err != nil:
	case xml.Unmarshal(body, &refusal) == nil && refusal.Code != "":
		reason = refusal.Code + ": " + refusal.Message
	case kind == "text/plain" || kind == "application/json":
		reason = strings.ToValidUTF8(string(body), "�")
	}
	for _, values := range asked.Query() {
		if slices.ContainsFunc(values, func(secret string) bool { return len(secret) >= minSecret && strings.Contains(reason, secret) }) {
			return "" // the body repeats the query, which may have a signature
		}
	}
	return textfmt.Shorten(strings.Join(strings.Fields(reason), " "), maxRefusalReason)
}

// copyBuffer is the size of the copy buffer, in bytes.
const copyBuffer = 256 << 10

// copyBody copies body to w like io.Copy, with limits on the size and on pauses of the
// server. The time that w takes does not count as a pause. html is true if the server
// announced a web page.
func (d *download) copyBody(w io.Writer, body io.Reader, html bool) (n int64, err error) {
	stalled := time.AfterFunc(d.cfg.StallTimeout, func() { d.cancel(errStalled) })
	defer stalled.Stop()
	buf := make([]byte, copyBuffer)
	for {
		stalled.Reset(d.cfg.StallTimeout)
		got, readErr := body.Read(buf)
		stalled.Stop()
		if n == 0 && got > 0 && html && bytes.HasPrefix(bytes.TrimSpace(buf[:got]), []byte("<")) {
			return 0, downloadFailure("The server %s sent a web page instead of the input file. Check that the URL leads to the file itself, needs no login and has not expired.", d.host)
		}
		if n+int64(got) > d.cfg.MaxBytes {
			return n, d.tooLargeError()
		}
		if got > 0 {
			wrote, err := w.Write(buf[:got])
			n += int64(wrote)
			if err != nil {
				return n, fmt.Errorf("store the downloaded input: %w", err)
			}
		}
		switch {
		case readErr == nil:
		case errors.Is(readErr, io.EOF):
			return n, nil
		case errors.Is(readErr, io.ErrUnexpectedEOF) && d.ctx.Err() == nil:
			return n, d.truncatedError(n)
		default:
			return n, d.convertHTTPError(readErr)
		}
	}
}

func (d *download) tooLargeError() error {
	return downloadFailure("The input file at %s has more than %d bytes. Split it into several jobs.", d.host, d.cfg.MaxBytes)
}

func (d *download) truncatedError(n int64) error {
	return downloadFailure("The download from %s broke off after %d bytes. Downloads are not repeated: submit the job again.", d.host, n)
}

// statusHint returns advice for the client about an HTTP status that is not 200.
func statusHint(status int) string {
	switch {
	case status == http.StatusUnauthorized || status == http.StatusForbidden || status == http.StatusBadRequest:
		return "A presigned URL may have expired or be signed for another method than GET."
	case status == http.StatusNotFound || status == http.StatusGone:
		return "Check the URL."
	case status == http.StatusTooManyRequests || status >= 500:
		return "Downloads are not repeated: submit the job again later."
	}
	return "The URL must answer 200 with the file."
}

// downloadFailure returns a *rowmill.Failure with the code download_failed.
func downloadFailure(format string, args ...any) error {
	return rowmill.Failf(rowmill.CodeDownloadFailed, format, args...)
}
