// Package discover searches for inference servers at a few addresses. It decides
// whether a usable server listens at an address, and reports each server once. It does
// not know how the servers are used. It speaks no protocol of a server itself: engine
// adapters do.
package discover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/rowmill/rowmill/engine"
)

// Config sets the addresses to probe, the interval and the function that opens engines.
type Config struct {
	// Addresses are the addresses to probe, HOST:PORT. Default: DefaultAddresses.
	Addresses []string

	// Interval is the time between two rounds of probes. Default 5 s: a server takes
	// longer to load a model, and a probe of a free address costs only one refused
	// connection.
	Interval time.Duration

	// Timeout limits one round, which probes all addresses at the same time. Default 1
	// s: an idle server answers in milliseconds, and the start of a node waits for the
	// first round.
	Timeout time.Duration

	// Open makes an engine for the server at a base URL such as
	// "http://127.0.0.1:8000". The engine must not send a key, because an unknown
	// server listens there. Required.
	Open func(baseURL string) (engine.Engine, error)

	// Transport sends the request GET /version, by which a Finder recognises Rowmill
	// nodes. Default: a new connection per request, with the proxy of the environment.
	Transport http.RoundTripper

	// Logger receives messages for operators. Default: a Finder logs nothing.
	Logger *slog.Logger
}

// DefaultAddresses returns the default ports of vLLM, llama.cpp, Ollama and SGLang on
// this machine.
func DefaultAddresses() []string {
	return []string{"127.0.0.1:8000", "127.0.0.1:8080", "127.0.0.1:11434", "127.0.0.1:30000"}
}

// WithDefaults returns c with a default in every unset field.
func (c Config) WithDefaults() Config {
	if c.Addresses == nil {
		c.Addresses = DefaultAddresses()
	}
	c.Interval = cmp.Or(c.Interval, 5*time.Second)
	c.Timeout = cmp.Or(c.Timeout, time.Second)
	if c.Transport == nil {
		c.Transport = &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true}
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

// Validate returns an error that names the first invalid field.
func (c Config) Validate() error {
	for i, address := range c.Addresses {
		if host, port, err := net.SplitHostPort(address); err != nil || host == "" || port == "" {
			return fmt.Errorf("discover: Addresses[%d] must be HOST:PORT, is %q", i, address)
		}
		if slices.Contains(c.Addresses[:i], address) {
			return fmt.Errorf("discover: Addresses[%d]: %s is listed twice", i, address)
		}
	}
	switch {
	case c.Open == nil:
		return errors.New("discover: Open is missing")
	case c.Interval <= 0 || c.Timeout <= 0:
		return errors.New("discover: Interval and Timeout must be positive")
	}
	return nil
}

// FoundServer is an inference server that serves at least one model.
type FoundServer struct {
	Address string // HOST:PORT
	Engine  engine.Engine
	Info    engine.ServerInfo // the result of the probe
}

// A Finder looks for inference servers. Its methods are for one goroutine.
type Finder struct {
	cfg        Config
	candidates []*candidate // addresses at which no server was found yet
}

// A candidate is one address to probe.
type candidate struct {
	address string
	engine  engine.Engine
	logged  string // last logged reason why the server is not used; empty if none
}

// New returns a Finder. New sends no probe; ProbePending and Run send probes.
func New(cfg Config) (*Finder, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	f := &Finder{cfg: cfg}
	for _, address := range cfg.Addresses {
		e, err := cfg.Open("http://" + address)
		if err != nil {
			return nil, fmt.Errorf("discover: %s: %w", address, err)
		}
		f.candidates = append(f.candidates, &candidate{address: address, engine: e})
	}
	return f, nil
}

// PendingAddresses returns the addresses at which no server was found yet.
func (f *Finder) PendingAddresses() []string {
	addresses := make([]string, len(f.candidates))
	for i, s := range f.candidates {
		addresses[i] = s.address
	}
	return addresses
}

// ProbePending probes all addresses at which no server was found yet, at the same time. It
// returns the servers that it finds, in the order of the addresses. It takes at most
// Config.Timeout.
//
// If a simulated server later replaces a real server at an address, or a real server a
// simulated one, the Probe method of the returned engine fails.
func (f *Finder) ProbePending(ctx context.Context) []FoundServer {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.Timeout)
	defer cancel()
	infos := make([]*engine.ServerInfo, len(f.candidates))
	var wg sync.WaitGroup
	for i, s := range f.candidates {
		wg.Go(func() { infos[i] = f.probeCandidate(ctx, s) })
	}
	wg.Wait()
	var found []FoundServer
	var rest []*candidate
	for i, s := range f.candidates {
		if infos[i] == nil {
			rest = append(rest, s)
			continue
		}
		found = append(found, FoundServer{Address: s.address, Info: *infos[i], Engine: pinnedEngine{s.engine, infos[i].Simulated}})
	}
	f.candidates = rest
	return found
}

// Run calls ProbePending every Config.Interval, the first time after one interval, and passes
// each server to onFound. It returns when ctx ends or when a server was found at every
// address.
func (f *Finder) Run(ctx context.Context, onFound func(FoundServer)) {
	again := time.NewTicker(f.cfg.Interval)
	defer again.Stop()
	for len(f.candidates) > 0 {
		select {
		case <-again.C:
		case <-ctx.Done():
			return
		}
		for _, server := range f.ProbePending(ctx) {
			onFound(server)
		}
	}
}

// Close closes the engines of the addresses at which no server was found.
func (f *Finder) Close() {
	for _, s := range f.candidates {
		s.engine.Close()
	}
}
