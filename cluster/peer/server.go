package peer

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"google.golang.org/protobuf/proto"

	"github.com/rowmill/rowmill/cluster/peer/peerv1/peerv1connect"
)

// Responder answers the requests of other nodes, which come through a Server or a
// simulated network.
type Responder struct {
	cfg     Config
	kinds   map[string]string
	metrics *metrics
	service atomic.Pointer[http.Handler] // handler of the node service; nil until Serve is called
	health  http.Handler
	errors  *connect.ErrorWriter
	slots   chan struct{} // has an element for each request in progress
}

// NewResponder returns a responder. Until Serve is called, it refuses every request
// with CodeStarting.
func NewResponder(cfg Config) *Responder {
	cfg = cfg.withDefaults()
	s := &Responder{cfg: cfg, kinds: requestKinds(), metrics: newMetrics(cfg.Metrics, "in"), errors: connect.NewErrorWriter(), slots: make(chan struct{}, cfg.MaxInFlight)}
	s.health = newHealth(s)
	return s
}

// SetHandler sets the handler and returns at once. When a method returns a *Refusal, the
// caller gets the same refusal. Any other error is logged on this node, and the caller
// gets CodeInternal. The context of a method ends when the caller disconnects, when the
// caller's deadline passes, and after Config.HandleTimeout. When a method returns the
// error of its ended context, the caller gets no Refusal.
//
// A request may be handled after its caller has given up, for example if this process
// was suspended. Handlers compare the epoch in the request, so that a late request has
// no effect.
func (s *Responder) SetHandler(h peerv1connect.NodeServiceHandler) {
	interceptors := slices.Concat([]connect.Interceptor{connect.UnaryInterceptorFunc(traceCalls)}, s.cfg.Interceptors, []connect.Interceptor{connect.UnaryInterceptorFunc(s.guardHandler)})
	_, handler := peerv1connect.NewNodeServiceHandler(h, s.options(connect.WithInterceptors(interceptors...))...)
	s.service.Store(&handler)
}

// options returns the options that all handlers of a Responder share, after the options
// in more.
func (s *Responder) options(more ...connect.HandlerOption) []connect.HandlerOption {
	return append(more, connect.WithCompression("gzip", nil, nil), connect.WithReadMaxBytes(int(s.cfg.MaxBody)))
}

// Server is a Responder for requests over TCP.
type Server struct {
	*Responder
	listener net.Listener
	http     *http.Server
	stop     context.CancelFunc // ends the contexts of all running handlers
	ended    chan struct{}      // closed after the accept loop has ended
}

// maxStreams is the largest number of requests in progress on one HTTP/2 connection.
// HTTP/2 is only for gRPC clients that check the health of the node, one request at a
// time.
const maxStreams = 8

// Listen opens the port and returns a Server, which refuses all requests with
// CodeStarting until Serve is called. The caller can announce the address before that.
func Listen(cfg Config) (*Server, error) {
	cfg = cfg.withDefaults()
	var id *identity
	if cfg.TLS.enabled() {
		var err error
		if id, err = newIdentity(cfg.TLS, cfg.Logger); err != nil {
			return nil, err
		}
	}
	listener, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen for other nodes on %q: %w", cfg.Listen, err)
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &Server{Responder: NewResponder(cfg), listener: listener, stop: stop, ended: make(chan struct{})}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(id == nil)
	s.http = &http.Server{
		Handler:           s.Responder,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: cfg.ReadTimeout,
		ReadTimeout:       cfg.ReadTimeout,
		WriteTimeout:      cfg.ReadTimeout + cfg.HandleTimeout,
		IdleTimeout:       serverIdle,
		MaxHeaderBytes:    16 << 10, // the header of our requests is under 1 KiB
		Protocols:         protocols,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
		ErrorLog:          slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelDebug),
	}
	if id != nil {
		listener = tls.NewListener(listener, id.server())
	}
	go func() {
		defer close(s.ended)
		if err := s.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			cfg.Logger.Error("listening for other nodes failed; this node receives no more requests", "address", s.Addr().String(), "err", err)
		}
	}()
	return s, nil
}

// Addr returns the address on which the server listens.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Close stops listening and waits for requests in progress. If ctx ends first, it cuts
// the connections of the remaining requests. A second call is harmless.
func (s *Server) Close(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(fmt.Errorf("wait for requests of other nodes: %w", err), s.http.Close())
	}
	s.stop()
	<-s.ended
	return err
}

// typeMessage is the content type of requests and replies.
const typeMessage = "application/proto"

// The prefixes of the URL paths that a Responder answers.
const (
	pathService = "/" + peerv1connect.NodeServiceName + "/"
	pathHealth  = "/" + grpchealth.HealthV1ServiceName + "/"
)

// ServeHTTP answers one request of another node. It is the only handler of a Server.
func (s *Responder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.HasPrefix(r.URL.Path, pathService):
		w.Header()[headerContract] = []string{version}
		s.answer(newExchange(w, r, s.kinds[r.URL.Path], s.cfg.MaxBody), r)
	case strings.HasPrefix(r.URL.Path, pathHealth):
		s.health.ServeHTTP(w, r)
	default:
		http.Error(w, "this port is for requests between Rowmill nodes", http.StatusNotFound)
	}
}

// answer answers a request within the limits of this node.
func (s *Responder) answer(e *serverExchange, r *http.Request) {
	s.metrics.inFlight.Inc()
	defer s.metrics.inFlight.Dec()
	defer s.countRequest(e, time.Now())
	r.Body = e
	service := s.service.Load()
	if service == nil {
		s.refuse(e, r, refuse(CodeStarting, "this node is starting; ask again"))
		return
	}
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	default:
		s.refuse(e, r, refuse(CodeBusy, "this node is answering %d requests; ask again", s.cfg.MaxInFlight))
		return
	}
	ctx := context.WithValue(r.Context(), exchangeKey{}, e)
	if !s.hasOwnDeadline(r) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.cfg.HandleTimeout)
		defer cancel()
	}
	r = r.WithContext(ctx)
	if e.kind == "" {
		s.refuse(e, r, refuse(CodeUnknownKind, "this node does not know the procedure %.200q", r.URL.Path))
		return
	}
	(*service).ServeHTTP(e, r)
}

// hasOwnDeadline reports whether the deadline in the request's header ends the handler
// within HandleTimeout.
func (s *Responder) hasOwnDeadline(r *http.Request) bool {
	ms, err := strconv.ParseInt(r.Header.Get("Connect-Timeout-Ms"), 10, 64)
	return err == nil && r.Header.Get("Content-Type") == typeMessage && ms >= 0 && ms <= s.cfg.HandleTimeout.Milliseconds()
}

// countRequest adds a finished request to the metrics.
func (s *Responder) countRequest(e *serverExchange, began time.Time) {
	kind, outcome := cmp.Or(e.kind, unknown), "ok"
	switch {
	case e.refusal == unread && e.read > s.cfg.MaxBody:
		outcome = CodeTooLarge
	case e.refusal != nil:
		outcome = e.refusal.Code
	case e.status >= http.StatusBadRequest:
		outcome = CodeInternal
		s.cfg.Logger.Error("encoding the reply to a node failed", "kind", kind)
	}
	s.metrics.requests.WithLabelValues(kind, outcome).Inc()
	s.metrics.seconds.WithLabelValues(kind).Observe(time.Since(began).Seconds())
	s.metrics.bytes.WithLabelValues("request").Add(float64(e.read))
	s.metrics.bytes.WithLabelValues("reply").Add(float64(e.written))
	if e.failed != nil {
		s.cfg.Logger.Debug("reply to a node was not sent", "kind", kind, "err", e.failed)
	}
}

// refuse answers a request without calling its handler.
func (s *Responder) refuse(e *serverExchange, r *http.Request, refusal *Refusal) {
	e.refusal = refusal
	_ = s.errors.Write(e, r, refusal.toConnectError()) // the exchange records a failed write
}

// guardHandler is the interceptor around the handler. It logs errors and panics of the
// handler, and returns CodeInternal for them.
func (s *Responder) guardHandler(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (res connect.AnyResponse, err error) {
		e, _ := ctx.Value(exchangeKey{}).(*serverExchange)
		log := func() *slog.Logger {
			return s.cfg.Logger.With("kind", e.kind, "node", r.Header().Get(headerNode))
		}
		defer func() {
			if p := recover(); p != nil {
				log().Error("panic while answering a node", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
				res, err = nil, e.recordRefusal(internalRefusal(e.kind))
			}
		}()
		res, err = next(ctx, r)
		if err == nil {
			err = s.checkReplySize(res)
		}
		var refusal *Refusal
		switch {
		case err == nil:
			e.refusal = nil
			return res, nil
		case errors.As(err, &refusal):
		case connect.CodeOf(err) == connect.CodeUnimplemented:
			refusal = refuse(CodeUnknownKind, "this node does not answer %s", e.kind)
		case ctx.Err() != nil && errors.Is(err, ctx.Err()):
			e.refusal = refuse("cancelled", "the deadline of the request passed")
			return nil, err
		default:
			log().Error("handling a request from another node failed", "err", err)
			refusal = internalRefusal(e.kind)
		}
		return nil, e.recordRefusal(refusal)
	}
}

// internalRefusal returns the refusal that hides the error of a handler from the caller.
func internalRefusal(kind string) *Refusal {
	return refuse(CodeInternal, "%s failed; see the log of the node that was asked", kind)
}

// checkReplySize returns an error if a reply is larger than MaxBody.
func (s *Responder) checkReplySize(res connect.AnyResponse) error {
	if m, is := res.Any().(proto.Message); is && int64(proto.Size(m)) > s.cfg.MaxBody {
		return fmt.Errorf("the reply has %d bytes, at most %d are allowed", proto.Size(m), s.cfg.MaxBody)
	}
	return nil
}
