// Package discover finds inference servers by looking: it asks what listens at
// a few addresses whether it is one. It owns what counts as a server and that
// each is reported once. It does not know what becomes of those it finds, and
// speaks no dialect itself: engine adapters do.
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

// Config says where to look, and how.
type Config struct {
	// Addresses are the places to look at, HOST:PORT. Default: DefaultAddresses.
	Addresses []string

	// Interval is the time between looks. Default 5 s: a model takes longer to
	// load, and a look costs one refused connection per address.
	Interval time.Duration

	// Timeout bounds one look; addresses are asked at the same time. Default
	// 1 s: an idle server answers in milliseconds, and a start waits for it.
	Timeout time.Duration

	// Open makes an engine for the server at a base URL such as
	// "http://127.0.0.1:8000". It must not send a key: who listens there is
	// not known. Required.
	Open func(baseURL string) (engine.Engine, error)

	// Transport carries the question whether a server is a node of ours.
	// Default: plain connections, no proxy.
	Transport http.RoundTripper

	// Logger receives what an operator should know once. Default: nothing is
	// logged.
	Logger *slog.Logger
}

// DefaultAddresses returns the usual ports on this machine: those of vLLM,
// llama.cpp, Ollama and SGLang.
func DefaultAddresses() []string {
	return []string{"127.0.0.1:8000", "127.0.0.1:8080", "127.0.0.1:11434", "127.0.0.1:30000"}
}

// WithDefaults returns c with every unset field at its default.
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

// Validate names the first field that cannot work.
func (c Config) Validate() error {
	for i, address := range c.Addresses {
		if host, port, err := net.SplitHostPort(address); err != nil || host == "" || port == "" {
			return fmt.Errorf("discover: Addresses[%d] must be HOST:PORT, is %q", i, address)
		}
		if slices.Contains(c.Addresses[:i], address) {
			return fmt.Errorf("discover: Addresses[%d]: %s is named twice", i, address)
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
	Info    engine.Info // what it said
}

// A Finder looks for inference servers. Its methods are for one goroutine.
type Finder struct {
	cfg   Config
	spots []*spot // those where no server was found yet
}

// A spot is one address to look at.
type spot struct {
	address string
	engine  engine.Engine
	told    string // the last thing said about it
}

// New prepares a Finder; it looks at nothing yet.
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
		f.spots = append(f.spots, &spot{address: address, engine: e})
	}
	return f, nil
}

// Waiting returns the addresses at which no server was found yet.
func (f *Finder) Waiting() []string {
	addresses := make([]string, len(f.spots))
	for i, s := range f.spots {
		addresses[i] = s.address
	}
	return addresses
}

// Look asks at all addresses where no server was found yet, at the same time,
// and returns the servers found, in the order of the addresses. It takes no
// longer than Config.Timeout.
//
// The engine of a server keeps to what the server was: where real outputs came
// from, simulated ones are refused by its Probe, and the reverse.
func (f *Finder) Look(ctx context.Context) []Found {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.Timeout)
	defer cancel()
	infos := make([]*engine.Info, len(f.spots))
	var asked sync.WaitGroup
	for i, s := range f.spots {
		asked.Go(func() { infos[i] = f.ask(ctx, s) })
	}
	asked.Wait()
	var found []Found
	var rest []*spot
	for i, s := range f.spots {
		if infos[i] == nil {
			rest = append(rest, s)
			continue
		}
		found = append(found, Found{Address: s.address, Info: *infos[i], Engine: steadfast{s.engine, infos[i].Simulated}})
	}
	f.spots = rest
	return found
}

// Run looks every Config.Interval, for the first time after one, and passes on
// what it finds, until ctx ends or there is a server at every address.
func (f *Finder) Run(ctx context.Context, found func(Found)) {
	again := time.NewTicker(f.cfg.Interval)
	defer again.Stop()
	for len(f.spots) > 0 {
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

// Close drops the connections to the addresses where no server was found.
func (f *Finder) Close() {
	for _, s := range f.spots {
		s.engine.Close()
	}
}
