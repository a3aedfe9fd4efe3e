package openai

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/rowmill/rowmill/internal/must"
)

// aProxy is a forward proxy for requests and tunnels. Only the proxy knows the server's
// address. It may require a user and a password, and it records its requests.
type aProxy struct {
	server string // address of the server, whatever name the request has
	user   string // the required "name:password", empty for none
	mu     sync.Mutex
	asked  []string
}

func (p *aProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.asked = append(p.asked, r.Method+" "+r.URL.Host+r.URL.Path)
	p.mu.Unlock()
	want := &http.Request{Header: http.Header{}}
	if name, password, is := strings.Cut(p.user, ":"); is {
		want.SetBasicAuth(name, password)
	}
	if r.Header.Get("Proxy-Authorization") != want.Header.Get("Authorization") {
		w.WriteHeader(http.StatusProxyAuthRequired)
		return
	}
	if r.Method != http.MethodConnect {
		ask := r.Clone(r.Context())
		ask.URL.Host, ask.RequestURI = p.server, ""
		ask.Header.Del("Proxy-Authorization")
		answer, err := http.DefaultTransport.RoundTrip(ask)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer answer.Body.Close()
		w.WriteHeader(answer.StatusCode)
		_, _ = io.Copy(w, answer.Body)
		return
	}
	there, err := (&net.Dialer{}).DialContext(r.Context(), "tcp", p.server)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	here, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	_, _ = io.WriteString(here, "HTTP/1.1 200 Connection established\r\n\r\n")
	go func() {
		_, _ = io.Copy(there, here)
		_ = there.Close()
	}()
	_, _ = io.Copy(here, there)
	_ = here.Close()
}

// A server behind a proxy of the environment is probed and used through it: plain HTTP
// with full URLs, TLS through a tunnel. If cfg.Proxy returns none, like
// http.ProxyFromEnvironment for NO_PROXY, the connection is direct
// (BerriAI/litellm#2127, n8n-io/n8n#16171, langchain-ai/langchain#5243).
func TestProxyOfTheEnvironment(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		secure bool
		user   string // that the proxy requires
		sent   string // in the environment
		fails  string
	}{
		{name: "plain"},
		{name: "TLS", secure: true},
		{name: "plain, with a user", user: "me:s e%c", sent: "me:s e%c"},
		{name: "TLS, with a user", secure: true, user: "me:secret", sent: "me:secret"},
		{name: "plain, refused", user: "me:secret", fails: "407"},
		{name: "TLS, refused", secure: true, user: "me:secret", sent: "me:wrong", fails: "the proxy answers 407"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			mux := http.NewServeMux()
			mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, `{"object":"list","data":[{"id":"m","owned_by":"vllm","max_model_len":100}]}`)
			})
			mux.HandleFunc("POST /v1/", func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Proxy-Authorization") != "" {
					t.Error("the server sees the password of the proxy")
				}
				_, _ = io.WriteString(w, good)
			})
			server, scheme := httptest.NewUnstartedServer(mux), "http"
			if test.secure {
				scheme = "https"
				server.StartTLS()
			} else {
				server.Start()
			}
			t.Cleanup(server.Close)
			p := &aProxy{server: server.Listener.Addr().String(), user: test.user}
			front := httptest.NewServer(p)
			t.Cleanup(front.Close)
			address := must.Get(url.Parse(front.URL))(t)
			if name, password, is := strings.Cut(test.sent, ":"); is {
				address.User = url.UserPassword(name, password)
			}
			cfg := Config{BaseURL: scheme + "://engine.invalid:8000", Proxy: http.ProxyURL(address)}
			if test.secure {
				roots := x509.NewCertPool()
				roots.AddCert(server.Certificate())
				cfg.TLS = &tls.Config{RootCAs: roots, ServerName: "example.com", MinVersion: tls.VersionTLS12}
			}
			e, err := New(cfg)
			must.Succeed(t, err)
			t.Cleanup(e.Close)
			_, err = e.Probe(t.Context())
			if test.fails != "" {
				if err == nil {
					t.Fatal("the server was reached")
				}
				_, err = e.pool.dial(t.Context(), newCallTimeout(e.cfg.ConnectTimeout).until)
				if test.secure && (err == nil || !strings.Contains(err.Error(), test.fails)) {
					t.Errorf("error %v, want %q", err, test.fails)
				}
				return
			}
			must.Succeed(t, err)
			for range 2 {
				if reply, err := generate(t, e, "x"); err != nil || reply.Content != "fine" {
					t.Errorf("%q, %v", reply.Content, err)
				}
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			for _, asked := range p.asked {
				if !strings.Contains(asked, "engine.invalid:8000") {
					t.Errorf("the proxy was asked for %s", asked)
				}
			}
			if len(p.asked) < 2 {
				t.Errorf("the proxy was asked for %v", p.asked)
			}
		})
	}
}

// The connection to a server in NO_PROXY is direct.
func TestNoProxy(t *testing.T) {
	t.Parallel()
	e := serve(t, func(c *Config) {
		c.Proxy = func(r *http.Request) (*url.URL, error) {
			if r.URL.Hostname() == "127.0.0.1" {
				return nil, nil
			}
			return url.Parse("http://proxy.invalid:3128")
		}
	}, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, good) })
	if reply, err := generate(t, e, "x"); err != nil || reply.Content != "fine" {
		t.Errorf("%q, %v", reply.Content, err)
	}
}

// An unusable proxy gives an error with the remedy, and not a server that is down
// (microsoft/promptflow#2239 asks for socks5).
func TestProxyOfAnotherScheme(t *testing.T) {
	t.Parallel()
	socks, _ := url.Parse("socks5://me:secret@127.0.0.1:1080")
	_, err := New(Config{BaseURL: "http://engine.invalid:8000", Proxy: http.ProxyURL(socks)})
	if err == nil || !strings.Contains(err.Error(), "add engine.invalid to NO_PROXY") || strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
}
