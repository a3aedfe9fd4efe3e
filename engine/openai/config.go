package openai

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Config describes one inference server. Only BaseURL is required; the defaults suit a
// server on the same machine or network.
type Config struct {
	// Name is the engine's name. Default: host and port of BaseURL.
	Name string

	// BaseURL is the URL of the server, such as "http://127.0.0.1:8000" or
	// "https://gpu.example/team/v1". A trailing /v1 is optional.
	BaseURL string

	// APIKey is sent as "Authorization: Bearer …" if it is not empty. It is never
	// logged.
	APIKey string

	// ModelMap maps a model's id in the catalog to the server's name for the model. An
	// entry is needed only if the server's name is neither the id nor one of the
	// model's engine names.
	ModelMap map[string]string

	// ConnectTimeout limits the time to open a connection, TLS handshake included.
	// Default 5 s: a running server accepts a connection in milliseconds.
	ConnectTimeout time.Duration

	// ProbeTimeout limits one request of Probe and Gauges. Default 5 s: busy Python
	// front ends may take more than one second.
	ProbeTimeout time.Duration

	// IdleTimeout is the time after which the engine closes an idle connection. Default
	// 4 s: uvicorn, the HTTP server of vLLM and SGLang, closes an idle connection after
	// 5 s.
	IdleTimeout time.Duration

	// QueueAllowance and TokenTime set the timeout of a row: QueueAllowance for the
	// wait in the server's queue, plus TokenTime for each token that the answer may
	// have. Defaults: 10 min (a full queue on a slow server) and 100 ms (a large model
	// on a CPU).
	QueueAllowance time.Duration
	TokenTime      time.Duration

	// MaxIdleConns limits the number of idle connections. The number of rows in flight
	// limits the connections in use. Default 1088: vLLM runs at most 1024 rows at once,
	// and the window keeps up to 64 more rows in the server's queue.
	MaxIdleConns int

	// MaxHeaderBytes limits the header of a reply and is the size of a connection's
	// read buffer. Default 8 KiB: servers send 200 bytes, gateways a few thousand.
	MaxHeaderBytes int

	// MaxBodyBytes limits the body of a reply. The engine parses the body while it
	// arrives and does not store it. Default 128 MiB: 32k tokens with 20 alternatives
	// each, from a server that ignores top_logprobs, are 64 MB.
	MaxBodyBytes int64

	// MaxAnswerBytes limits the text of an answer, and separately the text of its
	// reasoning. Default 8 MiB: 131k tokens of the longest words have less than 2 MB.
	MaxAnswerBytes int

	// TLS is the TLS configuration for https. Default: trust the root certificates of
	// the system.
	TLS *tls.Config

	// Proxy returns the URL of the proxy for a request, like http.Transport.Proxy.
	// Default http.ProxyFromEnvironment: it uses HTTP_PROXY, HTTPS_PROXY and NO_PROXY,
	// and never a proxy for the local machine.
	Proxy func(*http.Request) (*url.URL, error)

	// Logger receives messages for operators, such as the kind of a server that a probe
	// found. Default: the engine logs nothing.
	Logger *slog.Logger
}

// WithDefaults returns c with a default in every unset field.
func (c Config) WithDefaults() Config {
	c.ConnectTimeout = cmp.Or(c.ConnectTimeout, 5*time.Second)
	c.ProbeTimeout = cmp.Or(c.ProbeTimeout, 5*time.Second)
	c.IdleTimeout = cmp.Or(c.IdleTimeout, 4*time.Second)
	c.QueueAllowance = cmp.Or(c.QueueAllowance, 10*time.Minute)
	c.TokenTime = cmp.Or(c.TokenTime, 100*time.Millisecond)
	c.MaxIdleConns = cmp.Or(c.MaxIdleConns, 1088)
	c.MaxHeaderBytes = cmp.Or(c.MaxHeaderBytes, 8<<10)
	c.MaxBodyBytes = cmp.Or(c.MaxBodyBytes, 128<<20)
	c.MaxAnswerBytes = cmp.Or(c.MaxAnswerBytes, 8<<20)
	if c.Proxy == nil {
		c.Proxy = http.ProxyFromEnvironment
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Name == "" {
		if u, err := url.Parse(c.BaseURL); err == nil {
			c.Name = u.Host
		}
	}
	return c
}

// checkAPIKey returns an error for a key with characters that would end the header
// line.
func checkAPIKey(key string) error {
	if strings.ContainsAny(key, "\r\n\x00") {
		return errors.New("APIKey contains a line break or a NUL: remove it")
	}
	return nil
}

// Validate returns an error that names the first invalid field.
func (c Config) Validate() error {
	if _, err := c.parseBaseURL(); err != nil {
		return err
	}
	if err := checkAPIKey(c.APIKey); err != nil {
		return err
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"ConnectTimeout", c.ConnectTimeout},
		{"ProbeTimeout", c.ProbeTimeout},
		{"IdleTimeout", c.IdleTimeout},
		{"QueueAllowance", c.QueueAllowance},
		{"TokenTime", c.TokenTime},
	} {
		if d.value <= 0 {
			return fmt.Errorf("%s must be a positive duration, not %v", d.name, d.value)
		}
	}
	for _, n := range []struct {
		name         string
		value, least int64
	}{
		{"MaxIdleConns", int64(c.MaxIdleConns), 1},
		{"MaxHeaderBytes", int64(c.MaxHeaderBytes), 1 << 10},
		{"MaxBodyBytes", c.MaxBodyBytes, 1 << 10},
		{"MaxAnswerBytes", int64(c.MaxAnswerBytes), 1},
	} {
		if n.value < n.least {
			return fmt.Errorf("%s must be at least %d, not %d", n.name, n.least, n.value)
		}
	}
	return nil
}

// parseBaseURL parses BaseURL and removes a trailing /v1 from its path.
func (c Config) parseBaseURL() (*url.URL, error) {
	u, err := url.Parse(c.BaseURL)
	switch {
	case err != nil:
		return nil, fmt.Errorf("BaseURL is not a URL: write it as http://host:port")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("BaseURL must begin with http:// or https://, not %q", u.Scheme)
	case u.Hostname() == "":
		return nil, fmt.Errorf("BaseURL has no host: write it as http://host:port")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("BaseURL must not have a query or fragment")
	case u.User != nil:
		return nil, fmt.Errorf("BaseURL must not hold a user or password: use APIKey")
	}
	u.Path = strings.TrimSuffix(strings.TrimRight(u.Path, "/"), "/v1")
	return u, nil
}
