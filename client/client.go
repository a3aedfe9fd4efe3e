package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/rowmill/rowmill/internal/retry"
)

// maxBody is the largest size, in bytes, of an answer that is read into memory. The
// largest such answer is one page of jobs.
const maxBody = 64 << 20

// Config configures a Client.
type Config struct {
	// Server is the base URL of the service, such as http://127.0.0.1:8088. Required.
	Server string
	// Key is the API key. Without a key, the service refuses most requests.
	Key string
	// UserAgent is the value of the User-Agent header. Default: rowmill.
	UserAgent string
	// Timeout limits a request with a small answer. Default: 60s, longer than a busy
	// store needs.
	Timeout time.Duration
	// StallTimeout ends a transfer that receives no byte for this long. Default: 60s.
	StallTimeout time.Duration
	// Retry limits the retries of a broken transfer. When bytes arrive, the count of
	// retries starts again from zero. Default: retry.Transfers.
	Retry retry.Policy
}

// withDefaults returns c with defaults for zero fields.
func (c Config) withDefaults() Config {
	c.UserAgent = cmp.Or(c.UserAgent, "rowmill")
	c.Timeout = cmp.Or(c.Timeout, time.Minute)
	c.StallTimeout = cmp.Or(c.StallTimeout, time.Minute)
	c.Retry = cmp.Or(c.Retry, retry.Transfers)
	return c
}

// validate returns an error that names the first invalid field.
func (c Config) validate() error {
	u, err := url.Parse(c.Server)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.RawQuery != "" {
		return fmt.Errorf("server: %q is not an http or https address such as http://127.0.0.1:8088", c.Server)
	}
	if strings.ContainsAny(c.Key, " \t\r\n") {
		return errors.New("the API key contains white space; give the key alone, without the word Key")
	}
	return nil
}

// Client sends requests to one Rowmill service. It is safe for concurrent use.
type Client struct {
	cfg  Config
	base string
	http *http.Client
}

// New returns a client, or an error if the configuration is invalid. It sends no
// request.
func New(cfg Config) (*Client, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	transport := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: 5 * time.Second, // if the service refuses a submission within this time, the client sends no rows
		IdleConnTimeout:       30 * time.Second,
		DisableCompression:    true, // sizes and byte ranges then match the object in the bucket
	}
	return &Client{
		cfg:  cfg,
		base: strings.TrimRight(cfg.Server, "/"),
		http: &http.Client{
			Transport: transport,
			// The API never redirects. Following a redirect would send the key to
			// another server.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// Close closes idle connections to the service.
func (c *Client) Close() { c.http.CloseIdleConnections() }

func (c *Client) newRequest(ctx context.Context, method, path string, query url.Values, body io.Reader) (*http.Request, error) {
	address := c.base + path
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, address, body)
	if err != nil {
		return nil, fmt.Errorf("create the request: %w", err)
	}
	req.Header.Set("User-Agent", c.cfg.UserAgent)
	if c.cfg.Key != "" {
		req.Header.Set("Authorization", "Key "+c.cfg.Key)
	}
	return req, nil
}

// sendRequest sends a request and returns the response if its status is 200, otherwise an error.
// The caller must close the response's body.
func (c *Client) sendRequest(req *http.Request) (*http.Response, error) {
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.wrapSendError(req.Context(), err)
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		return nil, decodeAPIError(resp)
	}
	return resp, nil
}

// wrapSendError converts the error of a request without a complete answer. If ctx has
// ended, it returns the cause of ctx, else a *RowsError or an *UnreachableError. It
// drops the URL from the error, because the URL may contain a signature.
func (c *Client) wrapSendError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var own *RowsError
	if errors.As(err, &own) {
		return own
	}
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	return &UnreachableError{Server: c.base, Err: err}
}

// Server returns the base URL of the service.
func (c *Client) Server() string { return c.base }

// sendAndDecode sends a request, decodes the small answer into the value into, and returns
// the response headers. A timeout of 0 means none.
func (c *Client) sendAndDecode(req *http.Request, timeout time.Duration, into any) (http.Header, error) {
	ctx := req.Context()
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, timeout, &UnreachableError{
			Server: c.base, Err: fmt.Errorf("no answer within %v", timeout),
		})
		defer cancel()
	}
	resp, err := c.sendRequest(req.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return resp.Header, c.decodeAnswer(ctx, resp, into)
}

// decodeAnswer reads a small answer as JSON into the value into.
func (c *Client) decodeAnswer(ctx context.Context, resp *http.Response, into any) error {
	content, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	switch {
	case err != nil:
		return c.wrapSendError(ctx, err)
	case len(content) > maxBody:
		return fmt.Errorf("the answer of %s is larger than %d MiB", c.base, maxBody>>20)
	}
	if err := json.Unmarshal(content, into); err != nil {
		return &UnreachableError{Server: c.base, Err: fmt.Errorf("the answer does not come from a Rowmill service: %w", err)}
	}
	return nil
}
