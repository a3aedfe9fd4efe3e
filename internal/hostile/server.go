package hostile

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
)

// Config describes a Server and its answers.
type Config struct {
	// Flavor is the inference server that the honest answers imitate: "vllm", the
	// default, "llama.cpp", "sglang" or "ollama".
	Flavor string

	// Model is the served model. Dimension is the length of its embeddings; default 2.
	Model     string
	Dimension int

	// Answer is the content of an honest answer. Default {"n":5}.
	Answer string

	// Choose selects the kind of bad answer to a request. If Choose is nil or returns
	// nil, the answer is honest. n is the number of the request, from 0.
	Choose func(r Request, n uint64) *AnswerKind
}

// typeStream is the content type of an event stream.
const typeStream = "text/event-stream"

// NewShareChooser returns a function for Config.Choose. It chooses a random bad kind for this
// share of the requests (0 to 1), and the honest answer for the other requests. It
// never chooses kinds that wait.
func NewShareChooser(share float64, seed uint64) func(Request, uint64) *AnswerKind {
	return func(r Request, n uint64) *AnswerKind {
		d := newRand(seed ^ n*0x9e3779b97f4a7c15)
		if d.Float64() >= share {
			return nil
		}
		path := r.Path
		if r.Type == typeStream {
			path = Stream
		}
		for {
			if k := Draw(Kinds(path), d.Uint64()); !k.Waits {
				return &k
			}
		}
	}
}

// A Server is a misbehaving inference server on its own port of this machine.
type Server struct {
	config     Config
	socket     net.Listener
	requests   atomic.Uint64
	badAnswers atomic.Uint64

	mu    sync.Mutex
	conns map[net.Conn]bool // open connections; nil after Stop
	wg    sync.WaitGroup
}

// Start starts a server on a free port of 127.0.0.1.
func Start(ctx context.Context, c Config) (*Server, error) {
	if c.Flavor == "" {
		c.Flavor = "vllm"
	}
	if c.Answer == "" {
		c.Answer = `{"n":5}`
	}
	if c.Dimension == 0 {
		c.Dimension = 2
	}
	var config net.ListenConfig
	socket, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start hostile server: %w", err)
	}
	s := &Server{config: c, socket: socket, conns: map[net.Conn]bool{}}
	s.wg.Go(s.accept)
	return s, nil
}

// URL returns the server's base URL.
func (s *Server) URL() string { return "http://" + s.socket.Addr().String() }

// BadAnswers returns how many requests got a bad answer, which Config.Choose selected.
func (s *Server) BadAnswers() uint64 { return s.badAnswers.Load() }

// Stop closes all connections and returns after all goroutines of the server have
// ended.
func (s *Server) Stop() {
	_ = s.socket.Close()
	s.mu.Lock()
	for conn := range s.conns {
		_ = conn.Close()
	}
	s.conns = nil
	s.mu.Unlock()
	s.wg.Wait()
}

func (s *Server) accept() {
	for {
		conn, err := s.socket.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		if s.conns == nil {
			_ = conn.Close()
		} else {
			s.conns[conn] = true
			s.wg.Go(func() { s.serve(conn) })
		}
		s.mu.Unlock()
	}
}

// serve answers the requests of a connection. The first bad answer closes the
// connection.
func (s *Server) serve(conn net.Conn) {
	defer func() {
		_ = conn.Close()
		s.mu.Lock()
		delete(s.conns, conn)
		s.mu.Unlock()
	}()
	in := bufio.NewReader(conn)
	for {
		request, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		var body bytes.Buffer
		if _, err := io.Copy(&body, request.Body); err != nil {
			return
		}
		r := s.config.honestRequest(request.URL.Path, body.Bytes())
		n := s.requests.Add(1) - 1
		r.Seed = n
		if s.config.Choose != nil {
			if kind := s.config.Choose(r, n); kind != nil {
				s.badAnswers.Add(1)
				kind.Answer(conn, r)
				return
			}
		}
		status := http.StatusOK
		if r.Good == nil {
			status = http.StatusNotFound
		}
		_, err = fmt.Fprintf(conn, "HTTP/1.1 %d Something\r\nServer: %s\r\nX-Simulated: true\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s",
			status, s.name(), r.Type, len(r.Good), r.Good)
		if err != nil {
			return
		}
	}
}

func (s *Server) name() string {
	if s.config.Flavor == "llama.cpp" {
		return "llama.cpp"
	}
	return "uvicorn"
}

// honestRequest returns a Request for path with its honest answer in Good. If Good is nil, the
// server has no such page.
func (c Config) honestRequest(path string, body []byte) Request {
	owner := map[string]string{"vllm": "vllm", "sglang": "sglang", "llama.cpp": "llamacpp", "ollama": "library"}[c.Flavor]
	text := map[string]string{
		Models:    fmt.Sprintf(`{"object":"list","data":[{"id":%q,"owned_by":%q,"max_model_len":4096,"meta":{"n_ctx":4096}}]}`, c.Model, owner),
		"/health": "{}",
		Metrics:   "vllm:num_requests_running 0\nvllm:num_requests_waiting 0\n",
	}
	switch c.Flavor {
	case "llama.cpp":
		text["/props"] = `{"total_slots":4,"build_info":"b1","default_generation_settings":{"n_ctx":4096}}`
		text["/v1/chat/completions/input_tokens"] = `{"input_tokens":3}`
	case "sglang":
		text["/server_info"] = `{"version":"0.5.0","dp_size":1,"max_total_num_tokens":8192,"internal_states":[{"effective_max_running_requests_per_dp":8}]}`
		text["/model_info"] = `{"is_generation":true}`
	case "ollama":
		text["/"] = "Ollama is running"
		text["/api/version"] = `{"version":"0.12.0"}`
		text["/api/tags"] = fmt.Sprintf(`{"models":[{"name":%q,"digest":%q}]}`, c.Model, strings.Repeat("0f", 32))
		text["/api/ps"] = fmt.Sprintf(`{"models":[{"name":%q,"context_length":4096}]}`, c.Model)
		text["/api/show"] = `{"parameters":"num_ctx 4096","capabilities":["completion"],"model_info":{"x.context_length":4096}}`
	default:
		text["/version"] = `{"version":"0.11.0"}`
	}
	text[Tokenize] = `{"count":3,"tokens":[1,2,3]}`
	r := Request{Path: path, Type: "application/json"}
	switch {
	case path == Chat && bytes.Contains(body, []byte(`"stream":true`)):
		r.Type = typeStream
		text[path] = c.streamBody()
	case path == Chat:
		text[path] = fmt.Sprintf(`{"simulated":true,"choices":[{"index":0,"message":{"role":"assistant","content":%s},"finish_reason":"stop",`+
			`"logprobs":{"content":[{"token":"x","logprob":-0.5,"bytes":[120],"top_logprobs":[]}]}}],`+
			`"usage":{"prompt_tokens":3,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":1}}}`, quoted(c.Answer))
	case path == Embeddings:
		text[path] = c.embeddings(body)
	}
	if page, there := text[path]; there {
		r.Good = []byte(page)
	}
	return r
}

func (c Config) streamBody() string {
	var all strings.Builder
	for i, letter := range c.Answer {
		role := ""
		if i == 0 {
			role = `"role":"assistant",`
		}
		fmt.Fprintf(&all, "data: {\"choices\":[{\"delta\":{%s\"content\":%s}}]}\n\n", role, quoted(string(letter)))
	}
	return all.String() + `data: {"choices":[{"delta":{},"finish_reason":"stop"}]}` + "\n\n" +
		`data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":3}}` + "\n\ndata: [DONE]\n\n"
}

// embeddings returns the same embedding for every text.
func (c Config) embeddings(body []byte) string {
	var request struct {
		Input []string `json:"input"`
	}
	_ = json.Unmarshal(body, &request) // without texts the answer has no embeddings
	items := make([]string, len(request.Input))
	for i := range items {
		items[i] = fmt.Sprintf(`{"index":%d,"embedding":[0.5%s]}`, i, strings.Repeat(",0.25", c.Dimension-1))
	}
	return fmt.Sprintf(`{"data":[%s],"usage":{"prompt_tokens":%d}}`, strings.Join(items, ","), 3*len(items))
}

func quoted(text string) []byte {
	b, _ := json.Marshal(text) // a string can always be encoded
	return b
}
