package openai

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
)

// Engine is one inference server behind HTTP.
type Engine struct {
	cfg  Config
	base *url.URL
	pool *pool

	chatHead  []byte                 // HTTP head of a chat request, up to the value of Content-Length
	embedHead []byte                 // HTTP head of an embedding request, up to the value of Content-Length
	apiKey    atomic.Pointer[string] // current API key, which SetAPIKey changes

	probeClient *http.Client // sends the requests for probes and gauges

	mu                 sync.Mutex
	probed             bool                   // at least one probe has succeeded
	info               engine.ServerInfo      // result of the last successful probe
	facts              probeFacts             // further results of the last successful probe
	lastProbeSucceeded bool                   // the last probe succeeded
	ollama             ollamaModelCache       // cached details of Ollama's models
	extraRecords       map[string]extraRecord // extras that the server refused or accepted, by the server's name of the model
	unparsed           map[string]bool        // true if an answer of the model contained its reasoning, by the server's name of the model
}

var _ engine.Engine = (*Engine)(nil)

// New returns an engine for the server of cfg. New sends nothing to the server.
func New(cfg Config) (*Engine, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("engine %q: %w", cfg.Name, err)
	}
	base, err := cfg.parseBaseURL()
	if err != nil {
		return nil, fmt.Errorf("engine %q: %w", cfg.Name, err)
	}
	e := &Engine{cfg: cfg, base: base}
	e.apiKey.Store(&cfg.APIKey)

	port, tlsConfig := "80", (*tls.Config)(nil)
	if base.Scheme == "https" {
		port, tlsConfig = "443", tlsConfigFor(base, cfg.TLS)
	}
	proxy, err := chooseProxy(base, &cfg)
	if err != nil {
		return nil, fmt.Errorf("engine %q: %w", cfg.Name, err)
	}
	e.pool = &pool{
		dialer:  net.Dialer{Timeout: cfg.ConnectTimeout},
		address: hostPort(base, port),
		tls:     tlsConfig,
		proxy:   proxy,
		buffer:  cfg.MaxHeaderBytes,
		keep:    cfg.MaxIdleConns,
		timeout: cfg.IdleTimeout,
	}
	e.chatHead = e.buildRequestHead("/v1/chat/completions")
	e.embedHead = e.buildRequestHead("/v1/embeddings")
	e.probeClient = &http.Client{
		Timeout: cfg.ProbeTimeout,
		Transport: &http.Transport{
			Proxy:                  http.ProxyURL(proxy),
			DialContext:            e.pool.dialer.DialContext,
			TLSClientConfig:        tlsConfig,
			DisableKeepAlives:      true, // unread bytes of one reply must not become part of the next reply
			DisableCompression:     true, // Python servers need longer to compress a page of metrics than to send it
			MaxResponseHeaderBytes: 64 << 10,
		},
		// A redirect means a wrong configuration, and following it would send the API key
		// to another address.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return e, nil
}

// tlsConfigFor returns the TLS configuration for connections to the server at base. given is
// the TLS configuration from Config, or nil.
func tlsConfigFor(base *url.URL, given *tls.Config) *tls.Config {
	config := given.Clone()
	if config == nil {
		config = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if config.ServerName == "" {
		config.ServerName = base.Hostname()
	}
	config.NextProtos = []string{"http/1.1"}
	return config
}

// hostPort returns HOST:PORT of a URL. port is the default port.
func hostPort(u *url.URL, port string) string {
	if u.Port() != "" {
		port = u.Port()
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// buildRequestHead returns the HTTP head of a request to path with the additional header lines
// more. The head ends before the value of Content-Length, which is the last header.
func (e *Engine) buildRequestHead(path string, headerLines ...string) []byte {
	target, proxied := e.base.EscapedPath()+path, ""
	if proxy := e.pool.proxy; proxy != nil && e.pool.tls == nil {
		target, proxied = "http://"+e.base.Host+target, proxyHeader(proxy)
	}
	head := "POST " + target + " HTTP/1.1\r\n" +
		"Host: " + e.base.Host + "\r\n" + proxied +
		"User-Agent: rowmill\r\n" +
		"Accept: application/json\r\n" +
		"Content-Type: application/json\r\n"
	return []byte(head + strings.Join(headerLines, "") + "Content-Length: ")
}

// SetAPIKey changes the key of all later requests; an empty key means none. Requests in
// flight are not affected.
func (e *Engine) SetAPIKey(key string) error {
	if err := checkAPIKey(key); err != nil {
		return err
	}
	e.apiKey.Store(&key)
	return nil
}

// authorization returns the value of the header Authorization; empty for none.
func (e *Engine) authorization() string {
	if key := *e.apiKey.Load(); key != "" {
		return "Bearer " + key
	}
	return ""
}

// Name returns the configured name.
func (e *Engine) Name() string { return e.cfg.Name }

// Close drops idle connections. Rows in flight finish, and then close their
// connections.
func (e *Engine) Close() {
	e.pool.close()
}

// Prepare compiles the settings that all rows of a job share.
func (e *Engine) Prepare(p engine.JobParams) (engine.PreparedCall, error) {
	t, err := e.targetFor(p.Model)
	if err != nil {
		return nil, err
	}
	c := &preparedCall{engine: e, target: t, model: p.Model, system: []byte(p.System)}
	if p.Model.Kind == rowmill.KindRaw { // only the server knows which requests it supports
		c.prepareRaw(p)
		return c, nil
	}
	if err = t.checkKind(p.Model.Kind); err == nil {
		if p.Model.Kind == rowmill.KindEmbedding {
			err = c.prepareEmbed(p)
		} else {
			err = c.prepareChat(p)
		}
	}
	if err == nil {
		err = c.prepareCountMethods(p)
	}
	if err != nil {
		return nil, fmt.Errorf("prepare %s on engine %s: %w", p.Model.ID, e.cfg.Name, err)
	}
	return c, nil
}

// refusalError reads the body of a reply with a status other than 200 and returns the
// error for it. private holds texts that the error must not contain. The caller must
// not use c afterwards.
func (e *Engine) refusalError(ctx context.Context, c *conn, asked requestSettings, promptTexts ...[]byte) error {
	x, _, err := e.readRefusal(ctx, c)
	if err != nil {
		return err
	}
	fault := x.classify(asked, promptTexts...)
	if extra := asked.findRefusedExtra(x.status, x.lowerCaseText(promptTexts...), x.fault.param); extra != "" && !fault.TooLong {
		return &extraRefusedError{fault, extra}
	}
	return fault
}

// readRefusal reads a reply with a status other than 200, and then returns c to the
// pool or closes c. text is the body. readRefusal returns an error only if ctx has
// ended.
func (e *Engine) readRefusal(ctx context.Context, c *conn) (x refusal, text []byte, err error) {
	x = refusal{
		status:     c.header.StatusCode(),
		retryAfter: parseRetryAfter(string(c.header.Peek("Retry-After")), time.Now()),
	}
	text, err = c.body.readUpTo(maxErrorBody)
	e.releaseConn(c)
	if ended := contextError(ctx); ended != nil {
		return x, nil, ended
	}
	if err == nil || len(text) > 0 { // an incomplete error message is also useful
		x.fault = parseFault(text)
	}
	return x, text, nil
}
