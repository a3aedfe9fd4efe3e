package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rowmill/rowmill"
)

// ServerName is the value of the header Server.
const ServerName = "rowmill-sim"

// Server is a simulated inference server. All methods are safe for concurrent
// use.
type Server struct {
	log      *slog.Logger
	writer   answerWriter
	maxBody  int
	pace     LatencyModel
	gpu      *BatchingEngine // the pace, if Config.GPU is set; otherwise nil
	models   map[string]*servedModel
	names    []string // keys of models, in the order of the configuration
	adapters sync.Map // *servedModel of each loaded adapter, by name
	schemas  schemaCache
	faults   faultInjector
	requests *requestLog
	counts   counters
	pool     sync.Pool // *chatGeneration
	created  time.Time
	serial   atomic.Uint64 // number of the last answer

	stopping chan struct{} // closed by Stop
	stopOnce sync.Once
	dead     atomic.Bool
	asleep   atomic.Bool // the server sleeps, see POST /sleep
	mu       sync.Mutex
	life     deathTimer
	listener *listener // nil until Start
	buffers  sync.Pool // *buffers
}

// servedModel describes a model that the server serves under one name.
type servedModel struct {
	id        string // ID of the model in the catalog
	base      string // for an adapter (LoRA): the name of the base model
	context   int    // tokens
	embeds    bool
	thinks    bool // reasons unless the request forbids it
	dimension int
	seed      int64 // Config.Seed of the server
}

// kind returns the kind of the model as /v1/models reports it.
func (m *servedModel) kind() rowmill.Kind {
	switch {
	case m.embeds:
		return rowmill.KindEmbedding
	case m.thinks:
		return rowmill.KindReasoning
	}
	return rowmill.KindGeneration
}

// New makes a server. It serves requests after Start, or as an http.Handler.
func New(c Config) (*Server, error) {
	c = c.WithDefaults()
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("simulated server: %w", err)
	}
	s := &Server{
		log:      c.Logger,
		writer:   answerWriter{newVocabulary(), c.Profile},
		maxBody:  c.MaxBody,
		models:   map[string]*servedModel{},
		requests: newRequestLog(c.RequestLog, c.Logger),
		created:  time.Now(),
		stopping: make(chan struct{}),
	}
	s.faults.seed = splitMix64(c.Seed)
	s.faults.set(c.Faults)
	s.pool.New = func() any { return new(chatGeneration) }
	longest := 0
	for _, m := range c.Models {
		longest = max(longest, s.addModel(m, c))
	}
	if c.GPU == nil {
		s.pace = newFixed(c.Profile, longest)
	} else {
		config := *c.GPU
		if config.Seed == 0 {
			config.Seed = c.Seed
		}
		gpu, err := NewBatchingEngine(config)
		if err != nil {
			return nil, fmt.Errorf("simulated server: %w", err)
		}
		s.pace, s.gpu = gpu, gpu
	}
	s.planDeath(c.Faults)
	return s, nil
}

// addModel adds a model under all its names, and returns its context length in tokens.
// Models that share a name become one served model: it can reason if any of the models
// can, and its context is the shortest.
func (s *Server) addModel(m rowmill.Model, c Config) (contextTokens int) {
	contextTokens = m.ContextLength
	if c.MaxContext > 0 {
		contextTokens = c.MaxContext
	} else if contextTokens == 0 {
		contextTokens = defaultContext
	}
	for _, name := range append([]string{m.ID}, m.EngineNames...) {
		entry := s.models[name]
		if entry == nil {
			entry = &servedModel{id: m.ID, context: contextTokens, seed: c.Seed}
			s.models[name] = entry
			s.names = append(s.names, name)
		}
		entry.context = min(entry.context, contextTokens)
		entry.thinks = entry.thinks || m.Kind == rowmill.KindReasoning
		if m.Kind == rowmill.KindEmbedding {
			entry.embeds, entry.dimension = true, m.Dimension
		}
	}
	return contextTokens
}

// findModel returns the model with this name. The error is an *apiError with status 404.
func (s *Server) findModel(name string) (*servedModel, error) {
	if m, ok := s.models[name]; ok {
		return m, nil
	}
	if m, ok := s.adapters.Load(name); ok {
		return m.(*servedModel), nil
	}
	return nil, &apiError{
		status: http.StatusNotFound, kind: "NotFoundError", param: "model",
		text: fmt.Sprintf("The model %q does not exist.", name),
	}
}

// SetFaults changes the faults injected from now on.
func (s *Server) SetFaults(f Faults) error {
	if err := f.Validate(); err != nil {
		return fmt.Errorf("set faults: %w", err)
	}
	s.faults.set(f)
	s.planDeath(f)
	return nil
}

// Faults returns the faults being injected.
func (s *Server) Faults() Faults { return s.faults.get() }

// Load returns how busy the server is.
func (s *Server) Load() EngineLoad { return s.pace.Load() }

// Start listens on addr, such as "127.0.0.1:8000" or ":0", and returns when requests
// are accepted. A server can be started only once.
func (s *Server) Start(ctx context.Context, addr string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener != nil {
		return errors.New("start simulated server: the server was already started")
	}
	select {
	case <-s.stopping:
		return errors.New("start simulated server: the server was stopped")
	default:
	}
	listener, err := listen(ctx, addr, s)
	if err != nil {
		return fmt.Errorf("start simulated server: %w", err)
	}
	s.listener = listener
	if s.dead.Load() {
		listener.die()
	}
	s.log.Info("simulated inference server listening: its outputs are made up", slog.String("addr", listener.addr.String()))
	return nil
}

// Addr returns the address that Start listens on; nil before Start.
func (s *Server) Addr() net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener == nil {
		return nil
	}
	return s.listener.addr
}

// URL returns the base URL of a started server, such as "http://127.0.0.1:8000"; empty
// before Start.
func (s *Server) URL() string {
	if addr := s.Addr(); addr != nil {
		return "http://" + addr.String()
	}
	return ""
}

// Stop stops the server: the server accepts no more requests, lets running requests
// finish until ctx ends, and then ends the other requests. It ends hung requests at
// once. Stop returns when the server has stopped. Calling Stop twice is harmless.
func (s *Server) Stop(ctx context.Context) error {
	s.stopOnce.Do(func() { close(s.stopping) })
	s.mu.Lock()
	s.cancelDeath()
	listener := s.listener
	s.mu.Unlock()
	if listener != nil {
		listener.stop(ctx)
	}
	if s.gpu != nil {
		s.gpu.Close()
	}
	if err := s.requests.flush(); err != nil {
		return fmt.Errorf("stop simulated server: %w", err)
	}
	return nil
}

// route is one endpoint.
type route struct {
	method string
	serve  func(*Server, *httpExchange)
	always bool // the route answers even while the server is starting
}

// endpoints has the routes of the server, by URL path.
var endpoints = map[string][]route{
	"/v1/chat/completions":  {{http.MethodPost, (*Server).serveChat, false}},
	"/v1/completions":       {{http.MethodPost, adapterHandler(completionsAPI{}), false}},
	"/v1/responses":         {{http.MethodPost, adapterHandler(responsesAPI{}), false}},
	"/v1/messages":          {{http.MethodPost, adapterHandler(messagesAPI{}), false}},
	"/v1/embeddings":        {{http.MethodPost, (*Server).serveEmbeddings, false}},
	"/tokenize":             {{http.MethodPost, (*Server).serveTokenize, false}},
	"/v1/models":            {{http.MethodGet, (*Server).listModels, false}},
	"/health":               {{http.MethodGet, constantHandler(map[string]any{"status": "ok", "simulated": true}), false}},
	"/version":              {{http.MethodGet, constantHandler(map[string]any{"version": simVersion, "simulated": true, "server": ServerName}), false}},
	"/metrics":              {{http.MethodGet, (*Server).serveMetrics, false}},
	"/v1/load_lora_adapter": {{http.MethodPost, (*Server).loadAdapter, false}},
	"/sleep":                {{http.MethodPost, sleepHandler(true), true}},
	"/wake_up":              {{http.MethodPost, sleepHandler(false), true}},
	"/is_sleeping":          {{http.MethodGet, (*Server).isSleeping, false}},
	"/sim/faults":           {{http.MethodGet, (*Server).getFaults, true}, {http.MethodPost, (*Server).postFaults, true}},
}

// constantHandler returns a handler that sends the same value as JSON to every request.
func constantHandler(value any) func(*Server, *httpExchange) {
	return func(s *Server, x *httpExchange) { s.replyJSON(x, value) }
}

// serve answers one request.
func (s *Server) serve(x *httpExchange) {
	routes := endpoints[x.r.URL.Path]
	if routes == nil {
		s.replyError(x, &apiError{status: 404, kind: "NotFoundError", text: "there is no " + strconv.Quote(x.r.URL.Path) + " on the simulated server"})
		return
	}
	for _, r := range routes {
		if r.method != x.r.Method {
			continue
		}
		if s.dead.Load() {
			x.resetWithoutAnswer()
			return
		}
		if wait := s.faults.startupRemaining(); wait > 0 && !r.always {
			s.replyError(x, &apiError{status: 503, kind: "ServiceUnavailableError", text: "the simulated server is starting", wait: wait})
			return
		}
		if s.asleep.Load() && r.method == http.MethodPost && !r.always {
			s.replyError(x, &apiError{status: 503, kind: "ServiceUnavailableError", text: "the simulated server sleeps; wake it with POST /wake_up"})
			return
		}
		r.serve(s, x)
		return
	}
	s.replyError(x, &apiError{status: 405, kind: "MethodNotAllowedError", text: "the method is not allowed here: use " + routes[0].method})
}

// replyError answers with an error. If err is not an *apiError, it is a fault of the
// simulator and the status is 500.
func (s *Server) replyError(x *httpExchange, err error) {
	var f *apiError
	if !errors.As(err, &f) {
		f = &apiError{status: 500, kind: "InternalServerError", text: err.Error()}
	}
	s.counts.status[f.status].Add(1)
	x.writeAnswer(f.status, typeJSON, f.wait, f.appendBody(x.buffer()))
}

// replyOK sends an answer with status 200.
func (s *Server) replyOK(x *httpExchange, contentType string, body []byte) {
	s.counts.status[http.StatusOK].Add(1)
	x.writeAnswer(http.StatusOK, contentType, 0, body)
}

// replyJSON sends any value as JSON, with status 200. It is too slow for frequent
// requests.
func (s *Server) replyJSON(x *httpExchange, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		s.replyError(x, fmt.Errorf("write answer: %w", err))
		return
	}
	s.replyOK(x, typeJSON, append(x.buffer(), body...))
}
