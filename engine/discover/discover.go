// Package discover looks for inference servers at a few addresses. It decides whether
// an address has a usable server and reports each server once. It does not know how the
// servers are used, and speaks no protocol itself: engine adapters do.
package discover

import (
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

// Config sets the addresses, the interval and the adapter.
type Config struct {
	// Addresses are the addresses to probe, HOST:PORT. Default: DefaultAddresses.
	Addresses []string

	// Interval is the time between probes. Default 5 s: a model takes longer to load,
	// and a probe costs one refused connection per address.
	Interval time.Duration

	// Timeout limits one round of probes; all addresses are probed at once. Default 1
	// s: an idle server answers in milliseconds, and the start of a node waits for the
	// first round.
	Timeout time.Duration

	// Open makes an engine for the server at a base URL such as
	// "http://127.0.0.1:8000". The engine must not send a key, because an unknown
	// server listens there. Required.
	Open func(baseURL string) (engine.Engine, error)

	// Transport carries the request that recognises Rowmill nodes. Default: new
	// connections, with the proxy of the environment.
	Transport http.RoundTripper

	// Logger receives messages for operators. Default: nothing is logged.
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
	if c.Interval == 0 {
		c.Interval = 5 * time.Second
	}
	if c.Timeout == 0 {
		c.Timeout = time.Second
	}
	if c.Transport == nil {
		c.Transport = &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
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

// Found is an inference server that serves at least one model.
type Found struct {
	Address string // HOST:PORT
	Engine  engine.Engine
	Info    engine.Info // the result of the probe
}

// A Finder looks for inference servers. Its methods are for one goroutine.
type Finder struct {
	cfg        Config
	candidates []*candidate // addresses without a server so far
}

// A candidate is one address to probe.
type candidate struct {
	address string
	engine  engine.Engine
	logged  string // the last reason that was logged
}

// New returns a Finder; it does not probe yet.
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

// Waiting returns the addresses without a server so far.
func (f *Finder) Waiting() []string {
	addresses := make([]string, len(f.candidates))
	for i, s := range f.candidates {
		addresses[i] = s.address
	}
	return addresses
}

// Look probes all addresses without a server so far, all at once, and returns the
// servers that it finds in the order of the addresses. It takes at most Config.Timeout.
//
// If later a simulated server replaces a real server at an address, or a real server a
// simulated one, Probe of the returned engine fails.
func (f *Finder) Look(ctx context.Context) []Found {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.Timeout)
	defer cancel()
	infos := make([]*engine.Info, len(f.candidates))
	var wg sync.WaitGroup
	for i, s := range f.candidates {
		wg.Go(func() { infos[i] = f.check(ctx, s) })
	}
	wg.Wait()
	var found []Found
	var rest []*candidate
	for i, s := range f.candidates {
		if infos[i] == nil {
			rest = append(rest, s)
			continue
		}
		found = append(found, Found{Address: s.address, Info: *infos[i], Engine: pinned{s.engine, infos[i].Simulated}})
	}
	f.candidates = rest
	return found
}

// Run calls Look every Config.Interval, first after one interval, and passes each
// server to found. It returns when ctx ends or every address has a server.
func (f *Finder) Run(ctx context.Context, found func(Found)) {
	again := time.NewTicker(f.cfg.Interval)
	defer again.Stop()
	for len(f.candidates) > 0 {
		select {
		case <-again.C:
		case <-ctx.Done():
			return
		}
		for _, server := range f.Look(ctx) {
			found(server)
		}
	}
}

// Close closes the engines of the addresses without a server.
func (f *Finder) Close() {
	for _, s := range f.candidates {
		s.engine.Close()
	}
}
