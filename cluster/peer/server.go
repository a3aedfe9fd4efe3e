package peer

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// Responder answers requests, whatever brings them: a Server, or a network that
// is none.
type Responder struct {
	cfg     Config
	metrics *metrics
	handler atomic.Pointer[Handler]
	slots   chan struct{} // one for each request under way
}

// NewResponder makes a responder. Until Serve is called it refuses every
// request with CodeStarting.
func NewResponder(cfg Config) *Responder {
	cfg = cfg.withDefaults()
	return &Responder{cfg: cfg, metrics: newMetrics(cfg.Metrics, "in"), slots: make(chan struct{}, cfg.MaxInFlight)}
}

// Serve gives the responder its handler and returns at once.
func (s *Responder) Serve(h Handler) { s.handler.Store(&h) }

// Server answers the other nodes over TCP.
type Server struct {
	*Responder
	listener net.Listener
	http     *http.Server
	stop     context.CancelFunc // ends the handlers' contexts
	ended    chan struct{}      // closed when the accept loop has ended
}

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
	s.http = &http.Server{
		Handler:           s.Responder,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: cfg.ReadTimeout,
		ReadTimeout:       cfg.ReadTimeout,
		WriteTimeout:      cfg.ReadTimeout + cfg.HandleTimeout,
		IdleTimeout:       serverIdle,
		MaxHeaderBytes:    16 << 10, // our own are under 1 KiB
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

// ServeHTTP answers one request of another node. Listen mounts it and nothing
// beside it.
func (s *Responder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != path || r.Method != http.MethodPost {
		http.Error(w, "this port is for requests between Rowmill nodes", http.StatusNotFound)
		return
	}
	s.metrics.inFlight.Inc()
	defer s.metrics.inFlight.Dec()
	began := time.Now()
	kind, a := s.answer(w, r)
	text, err := json.Marshal(a)
	if err == nil && int64(len(text)) > s.cfg.MaxBody {
		err = fmt.Errorf("%d bytes of at most %d", len(text), s.cfg.MaxBody)
	}
	if err != nil {
		s.cfg.Logger.Error("reply to a node cannot be sent", "kind", kind, "err", err)
		a = answer{Refusal: refuse(CodeInternal, "the reply to %s could not be sent; see the log of the node that was asked", kind)}
		text, _ = json.Marshal(a) // two strings
	}
	outcome := "ok"
	if a.Refusal != nil {
		outcome = a.Refusal.Code
	}
	s.metrics.requests.WithLabelValues(kind, outcome).Inc()
	s.metrics.seconds.WithLabelValues(kind).Observe(time.Since(began).Seconds())
	w.Header().Set("Content-Type", mediaType)
	n, err := w.Write(text)
	s.metrics.bytes.WithLabelValues("reply").Add(float64(n))
	if err != nil {
		s.cfg.Logger.Debug("reply to a node was not sent", "kind", kind, "err", err)
	}
}

// unknown is the label of requests whose kind nobody here has heard of: labels
// are never made of any text that comes in.
const unknown = "unknown"

// answer reads one request and has it handled. The kind is for metrics.
func (s *Responder) answer(w http.ResponseWriter, r *http.Request) (kind string, a answer) {
	handler := s.handler.Load()
	if handler == nil {
		return unknown, answer{Refusal: refuse(CodeStarting, "this node is starting; ask again")}
	}
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	default:
		return unknown, answer{Refusal: refuse(CodeBusy, "this node is answering %d requests; ask again", s.cfg.MaxInFlight)}
	}
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, s.cfg.MaxBody))
	s.metrics.bytes.WithLabelValues("request").Add(float64(len(text)))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return unknown, answer{Refusal: refuse(CodeTooLarge, "the request is over %d bytes", s.cfg.MaxBody)}
	case err != nil:
		return unknown, answer{Refusal: refuse(CodeInvalid, "the request broke off: %v", err)}
	}
	e, refusal := decode(text)
	if refusal != nil {
		return unknown, answer{Refusal: refusal}
	}
	ctx, cancel := context.WithTimeout(r.Context(), s.cfg.HandleTimeout)
	defer cancel()
	reply, refusal := s.handle(ctx, *handler, e)
	if refusal != nil && refusal.Code == CodeUnknownKind {
		return unknown, answer{Refusal: refusal}
	}
	return e.Kind, answer{Reply: reply, Refusal: refusal}
}

// handle calls the handler. What goes wrong in it, panics included, is logged
// here and becomes CodeInternal.
func (s *Responder) handle(ctx context.Context, h Handler, e Envelope) (reply json.RawMessage, refusal *Refusal) {
	internal := refuse(CodeInternal, "%s failed; see the log of the node that was asked", e.Kind)
	defer func() {
		if p := recover(); p != nil {
			s.cfg.Logger.Error("panic while answering a node", "kind", e.Kind, "node", e.From, "job", e.Job,
				"panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			reply, refusal = nil, internal
		}
	}()
	value, err := h(ctx, e)
	if err == nil {
		reply, err = json.Marshal(value)
	}
	switch {
	case err == nil:
		return reply, nil
	case errors.As(err, &refusal):
		return nil, refusal
	}
	s.cfg.Logger.Error("request of a node failed", "kind", e.Kind, "node", e.From, "job", e.Job, "err", err)
	return nil, internal
}
