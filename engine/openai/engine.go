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

	chatHead  []byte // heads of the two row requests, up to the value of Content-Length
	embedHead []byte
	apiKey    atomic.Pointer[string] // the last key of SetAPIKey

	side *http.Client // sends the requests for probes and gauges

	mu       sync.Mutex
	probed   bool
	info     engine.Info // of the last successful probe
	facts    facts       // of the last successful probe
	steady   bool        // the last probe succeeded
	ollama   ollamaModels
	left     map[string]leftOut // by the server's name of a model
	unparsed map[string]bool    // models, by the server's name, that left their reasoning in an answer
}

var _ engine.Engine = (*Engine)(nil)

// New makes the engine; it sends nothing to the server.
func New(cfg Config) (*Engine, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("engine %q: %w", cfg.Name, err)
	}
	base, err := cfg.base()
	if err != nil {
		return nil, fmt.Errorf("engine %q: %w", cfg.Name, err)
	}
	e := &Engine{cfg: cfg, base: base}
	e.apiKey.Store(&cfg.APIKey)

	port, tlsConfig := "80", (*tls.Config)(nil)
	if base.Scheme == "https" {
		port, tlsConfig = "443", tlsTo(base, cfg.TLS)
	}
	proxy, err := proxyTo(base, &cfg)
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
	e.chatHead = e.head("/v1/chat/completions")
	e.embedHead = e.head("/v1/embeddings")
	e.side = &http.Client{
		Timeout: cfg.ProbeTimeout,
		Transport: &http.Transport{
			Proxy:                  http.ProxyURL(proxy),
			DialContext:            e.pool.dialer.DialContext,
			TLSClientConfig:        tlsConfig,
			DisableKeepAlives:      true, // leftover bytes of a page must not become part of the next page
			DisableCompression:     true, // Python servers need longer to compress a page of metrics than to send it
			MaxResponseHeaderBytes: 64 << 10,
		},
		// A redirect is a misconfiguration, and following it would forward the key.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return e, nil
}

// tlsTo returns the configuration of TLS connections to a server; given may be nil.
func tlsTo(base *url.URL, given *tls.Config) *tls.Config {
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

// hostPort returns the address of a URL, with port as the default.
func hostPort(u *url.URL, port string) string {
	if u.Port() != "" {
		port = u.Port()
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// head returns the head of a request with additional header lines, up to the value of
// Content-Length, which comes last.
func (e *Engine) head(path string, more ...string) []byte {
	target, proxied := e.base.EscapedPath()+path, ""
	if proxy := e.pool.proxy; proxy != nil && e.pool.tls == nil {
		target, proxied = "http://"+e.base.Host+target, proxyHeader(proxy)
	}
	head := "POST " + target + " HTTP/1.1\r\n" +
		"Host: " + e.base.Host + "\r\n" + proxied +
		"User-Agent: rowmill\r\n" +
		"Accept: application/json\r\n" +
		"Content-Type: application/json\r\n"
	return []byte(head + strings.Join(more, "") + "Content-Length: ")
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
func (e *Engine) Prepare(p engine.Params) (engine.Call, error) {
	t, err := e.served(p.Model)
	if err != nil {
		return nil, err
	}
	c := &call{engine: e, target: t, model: p.Model, system: []byte(p.System)}
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
		err = c.prepareCount(p)
	}
	if err != nil {
		return nil, fmt.Errorf("prepare %s on engine %s: %w", p.Model.ID, e.cfg.Name, err)
	}
	return c, nil
}

// refusalError reads the body of a reply with a status other than 200 and returns its error.
// The caller must not use c afterwards.
func (e *Engine) refusalError(ctx context.Context, c *conn, asked asked, private ...[]byte) error {
	x, _, err := e.readRefusal(ctx, c)
	if err != nil {
		return err
	}
	fault := x.classify(asked, private...)
	if extra := asked.refusedExtra(x.status, x.words(private...), x.fault.param); extra != "" && !fault.TooLong {
		return &extraRefused{fault, extra}
	}
	return fault
}

// readRefusal reads a reply with a status other than 200, and then returns c to the pool
// or closes it. err is not nil only if ctx has ended.
func (e *Engine) readRefusal(ctx context.Context, c *conn) (x refusal, text []byte, err error) {
	x = refusal{
		status:     c.header.StatusCode(),
		retryAfter: parseRetryAfter(string(c.header.Peek("Retry-After")), time.Now()),
	}
	text, err = c.body.readUpTo(maxErrorBody)
	e.finish(c)
	if ended := ended(ctx); ended != nil {
		return x, nil, ended
	}
	if err == nil || len(text) > 0 { // part of an error message is useful too
		x.fault = parseFault(text)
	}
	return x, text, nil
}
