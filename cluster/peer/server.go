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

// Responder answers requests, whatever brings them: a Server, or a network that
// is none.
type Responder struct {
	cfg     Config
	kinds   map[string]string
	metrics *metrics
	service atomic.Pointer[http.Handler] // nil until Serve
	health  http.Handler
	errors  *connect.ErrorWriter
	slots   chan struct{} // one for each request under way
}

// NewResponder makes a responder. Until Serve is called it refuses every
// request with CodeStarting.
func NewResponder(cfg Config) *Responder {
	cfg = cfg.withDefaults()
	s := &Responder{cfg: cfg, kinds: kinds(), metrics: newMetrics(cfg.Metrics, "in"), errors: connect.NewErrorWriter(), slots: make(chan struct{}, cfg.MaxInFlight)}
	s.health = newHealth(s)
	return s
}

// Serve gives the responder what it answers with and returns at once. An error of a
// method that is a *Refusal reaches the asker as it is; any other is logged here and
// reaches the asker as CodeInternal. The context of a method ends when the asker hangs
// up, when the time is over that the asker has given it, and after
// Config.HandleTimeout; where it ends with that, the asker learns no more.
//
// An asker that gave up does not undo a request: a process that was stopped
// may read it later. What must not happen late is for the epoch to prevent.
func (s *Responder) Serve(h peerv1connect.NodeServiceHandler) {
	interceptors := slices.Concat([]connect.Interceptor{connect.UnaryInterceptorFunc(traced)}, s.cfg.Interceptors, []connect.Interceptor{connect.UnaryInterceptorFunc(s.guarded)})
	_, handler := peerv1connect.NewNodeServiceHandler(h, s.options(connect.WithInterceptors(interceptors...))...)
	s.service.Store(&handler)
}

// options are those of all handlers here.
func (s *Responder) options(more ...connect.HandlerOption) []connect.HandlerOption {
	return append(more, connect.WithCompression("gzip", nil, nil), connect.WithReadMaxBytes(int(s.cfg.MaxBody)))
}

// Server answers the other nodes over TCP.
type Server struct {
	*Responder
	listener net.Listener
	http     *http.Server
	stop     context.CancelFunc // ends the handlers' contexts
	ended    chan struct{}      // closed when the accept loop has ended
}

// maxStreams is how many requests a connection of HTTP/2 has under way at most: it is
// there for gRPC clients that look how a node is, one question at a time.
const maxStreams = 8

// Listen opens the port, so that its address can be announced.
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
		MaxHeaderBytes:    16 << 10, // our own are under 1 KiB
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
			cfg.Logger.Error("no longer listening for other nodes", "address", s.Addr().String(), "err", err)
		}
	}()
	return s, nil
}

// Addr is where the server listens.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Close stops listening, waits for the requests under way until the context
// ends, and then cuts those that are left. Twice is harmless.
func (s *Server) Close(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(fmt.Errorf("wait for requests of other nodes: %w", err), s.http.Close())
	}
	s.stop()
	<-s.ended
	return err
}

// typeMessage is that of messages, of requests and replies alike.
const typeMessage = "application/proto"

// What is answered here.
const (
	pathService = "/" + peerv1connect.NodeServiceName + "/"
	pathHealth  = "/" + grpchealth.HealthV1ServiceName + "/"
)

// ServeHTTP answers one request of another node. Listen mounts it and nothing
// beside it.
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

// answer has a request answered within the limits of this node.
func (s *Responder) answer(e *exchange, r *http.Request) {
	s.metrics.inFlight.Inc()
	defer s.metrics.inFlight.Dec()
	defer s.note(e, time.Now())
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
	if !s.bounds(r) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.cfg.HandleTimeout)
		defer cancel()
	}
	r = r.WithContext(ctx)
	if e.kind == "" {
		s.refuse(e, r, refuse(CodeUnknownKind, "%.200q is nothing that this node knows", r.URL.Path))
		return
	}
	(*service).ServeHTTP(e, r)
}

// bounds reports whether a request itself has its handler end in time.
func (s *Responder) bounds(r *http.Request) bool {
	ms, err := strconv.ParseInt(r.Header.Get("Connect-Timeout-Ms"), 10, 64)
	return err == nil && r.Header.Get("Content-Type") == typeMessage && ms >= 0 && ms <= s.cfg.HandleTimeout.Milliseconds()
}

// note counts a request that has been answered, or has not.
func (s *Responder) note(e *exchange, began time.Time) {
	kind, outcome := cmp.Or(e.kind, unknown), "ok"
	switch {
	case e.refusal == unread && e.read > s.cfg.MaxBody:
		outcome = CodeTooLarge
	case e.refusal != nil:
		outcome = e.refusal.Code
	case e.status >= http.StatusBadRequest:
		outcome = CodeInternal
		s.cfg.Logger.Error("reply to a node cannot be encoded", "kind", kind)
	}
	s.metrics.requests.WithLabelValues(kind, outcome).Inc()
	s.metrics.seconds.WithLabelValues(kind).Observe(time.Since(began).Seconds())
	s.metrics.bytes.WithLabelValues("request").Add(float64(e.read))
	s.metrics.bytes.WithLabelValues("reply").Add(float64(e.written))
	if e.failed != nil {
		s.cfg.Logger.Debug("reply to a node was not sent", "kind", kind, "err", e.failed)
	}
}

// refuse answers a request that is not handled.
func (s *Responder) refuse(e *exchange, r *http.Request, refusal *Refusal) {
	e.refusal = refusal
	_ = s.errors.Write(e, r, refusal.wire()) // the exchange notes that it failed
}

// guarded calls the handler. What goes wrong in it, panics included, is logged here
// and becomes CodeInternal.
func (s *Responder) guarded(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (res connect.AnyResponse, err error) {
		e, _ := ctx.Value(exchangeKey{}).(*exchange)
		log := func() *slog.Logger {
			return s.cfg.Logger.With("kind", e.kind, "node", r.Header().Get(headerNode))
		}
		defer func() {
			if p := recover(); p != nil {
				log().Error("panic while answering a node", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
				res, err = nil, e.refused(internal(e.kind))
			}
		}()
		res, err = next(ctx, r)
		if err == nil {
			err = s.fits(res)
		}
		var refusal *Refusal
		switch {
		case err == nil:
			e.refusal = nil
			return res, nil
		case errors.As(err, &refusal):
		case connect.CodeOf(err) == connect.CodeUnimplemented:
			refusal = refuse(CodeUnknownKind, "%s is nothing that this node answers", e.kind)
		case ctx.Err() != nil && errors.Is(err, ctx.Err()):
			e.refusal = refuse("cancelled", "the time for it was over")
			return nil, err
		default:
			log().Error("request of a node failed", "err", err)
			refusal = internal(e.kind)
		}
		return nil, e.refused(refusal)
	}
}

func internal(kind string) *Refusal {
	return refuse(CodeInternal, "%s failed; see the log of the node that was asked", kind)
}

// fits reports a reply that its asker would not take.
func (s *Responder) fits(res connect.AnyResponse) error {
	if m, is := res.Any().(proto.Message); is && int64(proto.Size(m)) > s.cfg.MaxBody {
		return fmt.Errorf("the reply has %d bytes of at most %d", proto.Size(m), s.cfg.MaxBody)
	}
	return nil
}
