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
	"github.com/rowmill/rowmill/internal/cache"
)

// Client sends requests to other nodes. It never repeats a request.
type Client struct {
	cfg     Config
	id      *identity         // nil without TLS
	kinds   map[string]string // by procedure: name of the request in metrics and logs
	metrics *metrics
	http    transport
	nodes   cache.LRU[string, peerv1connect.NodeServiceClient] // by address
	mu      sync.Mutex
	queues  map[string]*peerQueue // by address; only addresses with requests in progress or waiting
}

// transport sends HTTP requests, and can close its idle connections.
type transport interface {
	http.RoundTripper
	CloseIdleConnections()
}

// knownNodes is the number of addresses whose clients are kept. A new client takes 50 µs
// and 20 KB. Clusters have up to a hundred nodes.
const knownNodes = 128

// peerQueue limits the number of requests in progress to one address. If a peer does not
// answer, only the requests in its own queue wait.
type peerQueue struct {
	slots   chan struct{} // has an element for each request in progress
	present int           // requests in progress or waiting; guarded by Client.mu
}

// NewClient returns a client, or an error if the files in Config.TLS cannot be used.
func NewClient(cfg Config) (*Client, error) {
	c := &Client{cfg: cfg.withDefaults(), kinds: requestKinds(), queues: make(map[string]*peerQueue)}
	c.nodes.Most = knownNodes
	if cfg.TLS.enabled() {
		var err error
		if c.id, err = newIdentity(cfg.TLS, c.cfg.Logger); err != nil {
			return nil, err
		}
	}
	c.metrics = newMetrics(cfg.Metrics, "out")
	if cfg.Carrier != nil {
		c.http = carrierTransport{cfg.Carrier}
		return c, nil
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	c.http = &http.Transport{
		// No Proxy: the client connects to peers directly, even if the environment
		// names a proxy.
		DialContext:         c.dial,
		MaxIdleConns:        0, // no limit, because the number of peers limits it
		MaxIdleConnsPerHost: c.cfg.MaxConns,
		IdleConnTimeout:     clientIdle,
		DisableCompression:  true,
		Protocols:           protocols,
	}
	return c, nil
}

// carrierTransport is a Config.Carrier as a transport: CloseIdleConnections does not
// reach the Carrier.
type carrierTransport struct{ http.RoundTripper }

// CloseIdleConnections does nothing.
func (carrierTransport) CloseIdleConnections() {}

// Close closes idle connections. Requests in progress continue.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// sender is the HTTP client of Connect: it sends each request to the node at one address.
type sender struct {
	*Client
	address string
}

// Node returns a client for the node at an address, HOST:PORT. When the peer refuses, a
// method returns a *Refusal. When the peer does not answer, it returns ErrRefused or
// ErrUnreachable. When the caller cancels, it returns the error of the context. A
// method waits until the context ends, but at most for HandleTimeout.
func (c *Client) Node(address string) peerv1connect.NodeServiceClient {
	node, known := c.nodes.Get(address)
	if !known {
		s := sender{c, address}
		interceptors := slices.Concat(c.cfg.Interceptors, []connect.Interceptor{connect.UnaryInterceptorFunc(s.limitCalls), connect.UnaryInterceptorFunc(traceCalls)})
		node = peerv1connect.NewNodeServiceClient(s, "http://node",
			connect.WithAcceptCompression("gzip", nil, nil), // messages are small
			connect.WithReadMaxBytes(int(c.cfg.MaxBody)), connect.WithSendMaxBytes(int(c.cfg.MaxBody)),
			connect.WithInterceptors(interceptors...))
		c.nodes.Put(address, node)
	}
	return node
}

// A nodeCall is one request to a node.
type nodeCall struct {
	ctx     context.Context // context of the request, with its deadline
	message proto.Message   // the request message
	sent    bool            // true after the request was passed to the transport
	failure error           // error of the transport if there is no answer; otherwise nil
}

type callKey struct{}

// callOf returns the call that limitCalls has put into a context; nil if there is none.
func callOf(ctx context.Context) *nodeCall {
	c, _ := ctx.Value(callKey{}).(*nodeCall)
	return c
}

// limitCalls is the interceptor that applies the client's limits to a call, measures it
// and translates its error.
func (s sender) limitCalls(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		kind, began := s.kinds[r.Spec().Procedure], time.Now()
		if deadline, bound := ctx.Deadline(); !bound || deadline.Sub(began) > s.cfg.HandleTimeout {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, s.cfg.HandleTimeout)
			defer cancel()
		}
		call := &nodeCall{ctx: ctx}
		call.message, _ = r.Any().(proto.Message)
		if s.cfg.Node != "" {
			r.Header()[headerNode] = []string{s.cfg.Node}
		}
		res, err := s.ask(context.WithValue(ctx, callKey{}, call), call, r, next)
		s.metrics.seconds.WithLabelValues(kind).Observe(time.Since(began).Seconds())
		s.metrics.requests.WithLabelValues(kind, outcomeOf(err)).Inc()
		if err != nil {
			return nil, fmt.Errorf("ask %s for %s: %w", s.address, kind, err)
		}
		return res, nil
	}
}

// ask waits until the queue of the address has room, and then sends the call.
func (s sender) ask(ctx context.Context, call *nodeCall, r connect.AnyRequest, next connect.UnaryFunc) (connect.AnyResponse, error) {
	leave, err := s.enterQueue(ctx, s.address)
	if err != nil {
		return nil, err
	}
	defer leave()
	s.metrics.inFlight.Inc()
	defer s.metrics.inFlight.Dec()
	res, err := next(ctx, r)
	if err != nil {
		return nil, s.translateError(ctx, call, err)
	}
	return res, nil
}

// translateError converts the error of a call: into a *Refusal, into ErrRefused or
// ErrUnreachable, or into an error about the encoding.
func (c *Client) translateError(ctx context.Context, call *nodeCall, err error) error {
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
		return errorFromWire(err)
	case connect.CodeOf(err) == connect.CodeResourceExhausted:
		return refuse(CodeTooLarge, "the reply is over %d bytes", c.cfg.MaxBody)
	case connect.CodeOf(err) == connect.CodeInvalidArgument:
		return fmt.Errorf("decode the reply: %w", err)
	}
	return unanswered(ctx, err)
}

// enterQueue waits until a request to addr may be sent. The caller calls leave when the
// request has ended.
func (c *Client) enterQueue(ctx context.Context, addr string) (leave func(), err error) {
	c.mu.Lock()
	q := c.queues[addr]
	if q == nil {
		q = &peerQueue{slots: make(chan struct{}, c.cfg.MaxConns)}
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
		return nil, unanswered(ctx, errors.New("this peer does not answer earlier requests"))
	}
}

// leave takes a request out of the count of a queue. It removes an empty queue: the
// addresses of nodes change, so empty queues would pile up.
func (c *Client) leave(addr string, q *peerQueue) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if q.present--; q.present == 0 {
		delete(c.queues, addr)
	}
}

const (
	// headerNode names the node that sends the request.
	headerNode = "Rowmill-Node"
	// headerContract is in every answer of a Responder. Without this header, the answer
	// comes from a server that is no node.
	headerContract = "Rowmill-Contract"
)

var errUnencoded = errors.New("the message could not be encoded")

// Do sends one request. It stores the error in the call, because Connect would reduce
// the error to a code.
func (s sender) Do(r *http.Request) (*http.Response, error) {
	call := callOf(r.Context())
	if r.ContentLength == 0 && proto.Size(call.message) > 0 {
		// If the message cannot be encoded, Connect still sends the request, but
		// without the message. The call has ended by then and must not be used.
		return nil, errUnencoded
	}
	call.sent = true
	// The scheme is http even with TLS, because dial adds the TLS.
	r.URL.Host, r.Host = s.address, s.address
	var res *http.Response
	res, call.failure = s.exchange(r)
	return res, call.failure
}

// exchange sends one HTTP request. It returns an error if the answer does not come from
// a node.
func (c *Client) exchange(r *http.Request) (*http.Response, error) {
	// Remove request headers that no node reads.
	r.Header["User-Agent"] = nil
	delete(r.Header, "Accept-Encoding")
	if r.ContentLength > 0 {
		// net/http would send the header and the body in separate packets if it did not
		// know that the body is in memory.
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
		return nil, fmt.Errorf("the server at this address is not a peer of this node (status %s); check the peer addresses, and that both nodes use TLS or neither does", res.Status)
	}
	if res.ContentLength >= 0 {
		c.metrics.bytes.WithLabelValues("reply").Add(float64(res.ContentLength))
	} else {
		res.Body = &countingBody{res.Body, c.metrics.bytes.WithLabelValues("reply")}
	}
	return res, nil
}

// countingBody counts the bytes that are read from a body.
type countingBody struct {
	io.ReadCloser
	bytes prometheus.Counter
}

func (b *countingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.bytes.Add(float64(n))
	return n, err
}

// dial opens a connection, with TLS if configured. It also ends when the context of the
// call ends: net/http passes a context that lasts longer than the request, but dial
// must not go on after the caller has stopped waiting.
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

// unanswered returns the error for a request without an answer: the context's error if
// the caller cancelled, else ErrRefused or ErrUnreachable.
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

// outcomeOf returns the value of the label outcome for the error of a request.
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
