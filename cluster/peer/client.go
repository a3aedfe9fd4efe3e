package peer

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/rowmill/rowmill/cluster/peer/peerv1/peerv1connect"
)

// Client asks other nodes. It never sends a request twice.
type Client struct {
	cfg     Config
	id      *identity // nil without TLS
	kinds   map[string]string
	metrics *metrics
	http    transport
	service peerv1connect.NodeServiceClient // of the node that a call is for
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
	c := &Client{cfg: cfg.withDefaults(), kinds: kinds(), queues: make(map[string]*queue)}
	if cfg.TLS.enabled() {
		var err error
		if c.id, err = newIdentity(cfg.TLS, c.cfg.Logger); err != nil {
			return nil, err
		}
	}
	c.metrics = newMetrics(cfg.Metrics, "out")
	interceptors := slices.Concat(cfg.Interceptors, []connect.Interceptor{connect.UnaryInterceptorFunc(c.bounded), connect.UnaryInterceptorFunc(traced)})
	c.service = peerv1connect.NewNodeServiceClient(sender{c}, "http://node",
		connect.WithAcceptCompression("gzip", nil, nil), // messages are small
		connect.WithReadMaxBytes(int(c.cfg.MaxBody)), connect.WithSendMaxBytes(int(c.cfg.MaxBody)),
		connect.WithInterceptors(interceptors...))
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

// A call is one request for a node.
type call struct {
	address string
	ctx     context.Context // of the request, once that has a deadline
	message proto.Message   // what is asked
	sent    bool            // it was handed to the transport
	failure error           // the error of the transport, where there is no answer
}

type callKey struct{}

// callOf is the call that a context is of.
func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// bounded keeps a call within its limits, and says what its error means.
func (c *Client) bounded(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		call, kind, began := callOf(ctx), c.kinds[r.Spec().Procedure], time.Now()
		if deadline, bound := ctx.Deadline(); !bound || deadline.Sub(began) > c.cfg.HandleTimeout {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, c.cfg.HandleTimeout)
			defer cancel()
		}
		call.ctx = ctx
		call.message, _ = r.Any().(proto.Message)
		if c.cfg.Node != "" {
			r.Header()[headerNode] = []string{c.cfg.Node}
		}
		res, err := c.ask(ctx, call, r, next)
		c.metrics.seconds.WithLabelValues(kind).Observe(time.Since(began).Seconds())
		c.metrics.requests.WithLabelValues(kind, outcomeOf(err)).Inc()
		if err != nil {
			return nil, fmt.Errorf("ask %s for %s: %w", call.address, kind, err)
		}
		return res, nil
	}
}

func (c *Client) ask(ctx context.Context, call *call, r connect.AnyRequest, next connect.UnaryFunc) (connect.AnyResponse, error) {
	leave, err := c.enter(ctx, call.address)
	if err != nil {
		return nil, err
	}
	defer leave()
	c.metrics.inFlight.Inc()
	defer c.metrics.inFlight.Dec()
	res, err := next(ctx, r)
	if err != nil {
		return nil, c.meaning(ctx, call, err)
	}
	return res, nil
}

// meaning is what the error of a call means for the one who asked.
func (c *Client) meaning(ctx context.Context, call *call, err error) error {
	var refusal *Refusal
	switch {
	case errors.As(call.failure, &refusal):
		return refusal
	case call.failure != nil:
		return unanswered(ctx, call.failure)
	case !call.sent && connect.CodeOf(err) == connect.CodeResourceExhausted:
		return refuse(CodeTooLarge, "the request is over %d bytes; it was not sent", c.cfg.MaxBody)
	case !call.sent:
		return fmt.Errorf("encode the request: %w", err)
	case connect.IsWireError(err):
		return said(err)
	case connect.CodeOf(err) == connect.CodeResourceExhausted:
		return refuse(CodeTooLarge, "the reply is over %d bytes", c.cfg.MaxBody)
	case connect.CodeOf(err) == connect.CodeInvalidArgument:
		return fmt.Errorf("decode the reply: %w", err)
	}
	return unanswered(ctx, err)
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

const (
	// headerNode names the asker.
	headerNode = "Rowmill-Node"
	// headerContract marks an answer as one of this package's, so that somebody
	// else's server at the address is recognised.
	headerContract = "Rowmill-Contract"
)

var errUnencoded = errors.New("the message could not be encoded")

// sender sends requests to the nodes that their calls are for.
type sender struct{ *Client }

// Do sends one request. What it fails of is kept with the call, which Connect would
// turn into a code.
func (s sender) Do(r *http.Request) (*http.Response, error) {
	call := callOf(r.Context())
	if r.ContentLength == 0 && proto.Size(call.message) > 0 {
		// Connect sends a request without its message where that cannot be encoded. By
		// then the call has ended, and is not to be touched.
		return nil, errUnencoded
	}
	call.sent = true
	// The scheme is http even with TLS, which dial adds.
	r.URL.Host, r.Host = call.address, call.address
	var res *http.Response
	res, call.failure = s.exchange(r)
	return res, call.failure
}

func (c *Client) exchange(r *http.Request) (*http.Response, error) {
	// What no node reads is not sent.
	r.Header["User-Agent"] = nil
	delete(r.Header, "Accept-Encoding")
	if r.ContentLength > 0 {
		// What net/http does not know to be in memory it sends apart from the head, in a
		// packet of its own.
		text := make([]byte, r.ContentLength)
		if _, err := io.ReadFull(r.Body, text); err != nil {
			return nil, err
		}
		r.Body, r.GetBody = io.NopCloser(bytes.NewReader(text)), func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil }
		c.metrics.bytes.WithLabelValues("request").Add(float64(len(text)))
	}
	res, err := c.http.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if res.Header[headerContract] == nil {
		_ = res.Body.Close()
		return nil, fmt.Errorf("what listens there is no peer of this node (status %s); look for wrong addresses, and for TLS on one side only", res.Status)
	}
	if res.ContentLength >= 0 {
		c.metrics.bytes.WithLabelValues("reply").Add(float64(res.ContentLength))
	} else {
		res.Body = &counted{res.Body, c.metrics.bytes.WithLabelValues("reply")}
	}
	return res, nil
}

// counted counts what is read of a body.
type counted struct {
	io.ReadCloser
	bytes prometheus.Counter
}

// Read reads and counts.
func (b *counted) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.bytes.Add(float64(n))
	return n, err
}

// dial makes a connection, TLS included, within the time its asker has: net/http
// gives it a context that outlives the request, and a connection that nobody waits
// for any more is not to be waited for here either.
func (c *Client) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.DialTimeout)
	defer cancel()
	if call := callOf(ctx); call != nil {
		defer context.AfterFunc(call.ctx, cancel)()
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

// outcomeOf is the label of an error of a request.
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
