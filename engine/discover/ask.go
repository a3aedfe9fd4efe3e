package discover

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/rowmill/rowmill/engine"
)

// unidentified is the kind of a server that an adapter could talk to without
// recognising it.
const unidentified = "openai"

// ask returns what the server at s says about itself, nil where there is none
// that may be used.
func (f *Finder) ask(ctx context.Context, s *spot) *engine.Info {
	info, err := s.engine.Probe(ctx)
	if err != nil {
		f.cfg.Logger.Debug("no inference server", "address", s.address, "err", err)
		return nil
	}
	switch {
	case info.Kind == unidentified && len(info.Models) > 0:
		// Whoever lists something under /v1/models: prompts go there only
		// where somebody said so.
		f.tell(s, "its kind is not known; name it with --engine to use it")
		return nil
	case info.Kind == unidentified:
		return nil
	case len(info.Models) == 0:
		f.tell(s, "it offers no model yet")
		return nil
	}
	if ours, err := f.isNode(ctx, s.address); ours || err != nil {
		if ours {
			f.tell(s, "it is a Rowmill node, no inference server")
		}
		return nil
	}
	return &info
}

// tell logs, once, why what listens at an address is not used.
func (f *Finder) tell(s *spot, why string) {
	if s.told != why {
		s.told = why
		f.cfg.Logger.Info("server found and not used", "address", s.address, "reason", why)
	}
}

// isNode reports whether a Rowmill node listens at an address. It is asked for
// what no inference server answers: which build it is. An error means that it
// cannot be told now.
func (f *Finder) isNode(ctx context.Context, address string) (bool, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/version", nil)
	if err != nil {
		return false, fmt.Errorf("ask %s for its build: %w", address, err)
	}
	req.Header.Set("User-Agent", "rowmill")
	res, err := f.cfg.Transport.RoundTrip(req)
	if err != nil {
		return false, fmt.Errorf("ask %s for its build: %w", address, err)
	}
	defer func() { _ = res.Body.Close() }()
	const large = 64 << 10
	body, err := io.ReadAll(io.LimitReader(res.Body, large))
	if err != nil {
		return false, fmt.Errorf("ask %s for its build: %w", address, err)
	}
	var build struct {
		Commit *string `json:"commit"`
		Built  *string `json:"built"`
		Go     string  `json:"go"`
	}
	err = json.Unmarshal(body, &build)
	return err == nil && build.Commit != nil && build.Built != nil && strings.HasPrefix(build.Go, "go"), nil
}

// steadfast is an engine that stays real, or stays simulated, whatever takes
// its server's place.
type steadfast struct {
	engine.Engine
	simulated bool
}

// Probe asks the server, and refuses one of the other sort.
func (e steadfast) Probe(ctx context.Context) (engine.Info, error) {
	info, err := e.Engine.Probe(ctx)
	switch {
	case err != nil || info.Simulated == e.simulated:
		return info, err
	case info.Simulated:
		return engine.Info{}, fmt.Errorf("%s is a simulated server now and was a real one: start the real one again, or restart this node", e.Name())
	}
	return engine.Info{}, fmt.Errorf("%s is a real server now and was a simulated one: restart this node to use it", e.Name())
}
