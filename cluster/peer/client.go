package peer

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"
)

// Client asks other nodes. It never sends a request twice.
type Client struct {
	cfg     Config
	id      *identity // nil without TLS
	metrics *metrics
	http    transport
	mu      sync.Mutex
	queues  map[string]*queue // by address, while somebody asks there
}

// transport carries requests.
type transport interface {
	http.RoundTripper
	CloseIdleConnections()
}

// queue bounds what is under way to one address. A peer that does not answer
// holds up its own queue only.
type queue struct {
	slots   chan struct{} // one for each request under way
	present int           // requests under way or waiting; guarded by Client.mu
}

// NewClient makes a client. An error is about Config.TLS.
func NewClient(cfg Config) (*Client, error) {
	c := &Client{cfg: cfg.withDefaults(), queues: make(map[string]*queue)}
	if cfg.TLS.enabled() {
		var err error
		if c.id, err = newIdentity(cfg.TLS, c.cfg.Logger); err != nil {
			return nil, err
		}
	}
	c.metrics = newMetrics(cfg.Metrics, "out")
	if cfg.Carrier != nil {
		c.http = carried{cfg.Carrier}
		return c, nil
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	c.http = &http.Transport{
		// No Proxy: peers are asked directly, whatever the environment says.
		DialContext:         c.dial,
		MaxIdleConns:        0, // as many as there are peers
		MaxIdleConnsPerHost: c.cfg.MaxConns,
		IdleConnTimeout:     clientIdle,
		DisableCompression:  true,
		Protocols:           protocols,
	}
	return c, nil
}

// carried is a transport without connections.
type carried struct{ http.RoundTripper }

// CloseIdleConnections has nothing to close.
func (carried) CloseIdleConnections() {}

// Close closes idle connections. Requests under way go on.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Ask sends a request to the server at addr, HOST:PORT, and decodes its answer
// into reply, unless that is nil. Its error is a *Refusal when the peer said
// no, ErrRefused or ErrUnreachable (see there) when it did not answer, and the
// context's own when the caller cancelled. It waits until the context ends, and
// HandleTimeout at most.
func (c *Client) Ask(ctx context.Context, addr string, e Envelope, reply any) error {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, c.cfg.HandleTimeout)
	defer cancel()
	err := c.ask(ctx, addr, e, reply)
	c.metrics.seconds.WithLabelValues(e.Kind).Observe(time.Since(began).Seconds())
	c.metrics.requests.WithLabelValues(e.Kind, outcomeOf(err)).Inc()
	if err != nil {
		return fmt.Errorf("ask %s for %s: %w", addr, e.Kind, err)
	}
	return nil
}

func (c *Client) ask(ctx context.Context, addr string, e Envelope, reply any) error {
	e.Protocol = Protocol
	text, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode the request: %w", err)
	}
	if int64(len(text)) > c.cfg.MaxBody {
		return refuse(CodeTooLarge, "the request has %d bytes, %d are allowed; it was not sent", len(text), c.cfg.MaxBody)
	}
	leave, err := c.enter(ctx, addr)
	if err != nil {
		return err
	}
	defer leave()
	c.metrics.inFlight.Inc()
	defer c.metrics.inFlight.Dec()
	a, err := c.exchange(ctx, addr, text)
	switch {
	case err != nil:
		return err
	case a.Refusal != nil:
		return a.Refusal
	case reply == nil:
		return nil
	}
	if err := json.Unmarshal(a.Reply, reply); err != nil {
		return fmt.Errorf("decode the reply: %w", err)
	}
	return nil
}

// enter waits until a request to addr may go out. The function it returns ends
// that request.
func (c *Client) enter(ctx context.Context, addr string) (leave func(), err error) {
	c.mu.Lock()
	q := c.queues[addr]
	if q == nil {
		q = &queue{slots: make(chan struct{}, c.cfg.MaxConns)}
		c.queues[addr] = q
	}
	if q.present >= c.cfg.MaxConns+c.cfg.MaxWaiting {
		c.mu.Unlock()
		return nil, fmt.Errorf("%w (%d): %w", ErrBusy, c.cfg.MaxWaiting, ErrUnreachable)
	}
	q.present++
	c.mu.Unlock()
	c.metrics.waiting.Inc()
	defer c.metrics.waiting.Dec()
	select {
	case q.slots <- struct{}{}:
		return func() { <-q.slots; c.leave(addr, q) }, nil
	case <-ctx.Done():
		c.leave(addr, q)
		return nil, unanswered(ctx, errors.New("earlier requests to this peer are not answered"))
	}
}

// leave forgets a queue that nobody uses: addresses come and go.
func (c *Client) leave(addr string, q *queue) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if q.present--; q.present == 0 {
		delete(c.queues, addr)
	}
}

// exchange posts a request and reads its answer.
func (c *Client) exchange(ctx context.Context, addr string, text []byte) (answer, error) {
	// The scheme is http even with TLS, which dial adds.
	req, err := http.NewRequestWithContext(context.WithValue(ctx, asker{}, ctx), http.MethodPost, "http://"+addr+path, bytes.NewReader(text))
	if err != nil {
		return answer{}, fmt.Errorf("address %q: %w", addr, err)
	}
	req.Header.Set("Content-Type", "application/json")
	c.metrics.bytes.WithLabelValues("request").Add(float64(len(text)))
	res, err := c.http.RoundTrip(req)
	if err != nil {
		return answer{}, unanswered(ctx, err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.Header.Get("Content-Type") != mediaType {
		return answer{}, fmt.Errorf("%w: what listens there is no peer of this node (status %s); look for wrong addresses, and for TLS on one side only", ErrUnreachable, res.Status)
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, c.cfg.MaxBody+1))
	c.metrics.bytes.WithLabelValues("reply").Add(float64(len(body)))
	if err != nil {
		return answer{}, unanswered(ctx, err)
	}
	if int64(len(body)) > c.cfg.MaxBody {
		return answer{}, refuse(CodeTooLarge, "the reply is over %d bytes", c.cfg.MaxBody)
	}
	var a answer
	if err := json.Unmarshal(body, &a); err != nil {
		return answer{}, fmt.Errorf("%w: its answer cannot be read: %w", ErrUnreachable, err)
	}
	return a, nil
}

// asker is the context key under which a request carries its own context:
// net/http gives dial one that outlives the request. A connection that nobody
// waits for any more is not to be waited for here either.
type asker struct{}

// dial makes a connection, TLS included, within the time its asker has.
func (c *Client) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.DialTimeout)
	defer cancel()
	if own, ok := ctx.Value(asker{}).(context.Context); ok {
		defer context.AfterFunc(own, cancel)()
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil || c.id == nil {
		return conn, err
	}
	secure := tls.Client(conn, c.id.client())
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("TLS: %w", err)
	}
	return secure, nil
}

// unanswered sorts the error of a request that got no answer.
func unanswered(ctx context.Context, err error) error {
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	case ctx.Err() != nil:
		return fmt.Errorf("%w: no answer in time: %w", ErrUnreachable, ctx.Err())
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return fmt.Errorf("%w: %w", ErrUnreachable, err)
}

// outcomeOf is the label of an error of ask.
func outcomeOf(err error) string {
	var refusal *Refusal
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &refusal):
		return refusal.Code
	case errors.Is(err, ErrRefused):
		return "refused"
	case errors.Is(err, ErrBusy):
		return "busy_here"
	case errors.Is(err, ErrUnreachable):
		return "unreachable"
	case errors.Is(err, context.Canceled):
		return "cancelled"
	}
	return "unreadable"
}
