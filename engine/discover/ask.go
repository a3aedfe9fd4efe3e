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

// unidentified is the kind in engine.ServerInfo of a server whose kind is unknown, although
// it answers the requests of the adapter.
const unidentified = "openai"

// probeCandidate probes the server at a candidate's address. It returns nil if no usable server
// answers there.
func (f *Finder) probeCandidate(ctx context.Context, s *candidate) *engine.ServerInfo {
	info, err := s.engine.Probe(ctx)
	if err != nil {
		f.cfg.Logger.Debug("no inference server at this address: the probe failed", "address", s.address, "err", err)
		return nil
	}
	switch {
	case info.Kind == unidentified && len(info.Models) > 0:
		// Any web server may answer /v1/models with a list. Rowmill sends prompts to such a
		// server only if the operator names the server.
		f.logSkipReason(s, "the kind of the server is unknown; to use the server, name it with --engine")
		return nil
	case info.Kind == unidentified:
		return nil
	case len(info.Models) == 0:
		f.logSkipReason(s, "the server serves no model yet")
		return nil
	}
	ours, err := f.isRowmillNode(ctx, s.address)
	switch {
	case err != nil: // the answer is unknown; the next round asks again
		return nil
	case ours:
		f.logSkipReason(s, "the server is a Rowmill node, not an inference server")
		return nil
	}
	return &info
}

// logSkipReason logs why the server of a candidate is not used. It logs the same reason only
// once in a row.
func (f *Finder) logSkipReason(s *candidate, why string) {
	if s.logged != why {
		s.logged = why
		f.cfg.Logger.Info("server found but not used", "address", s.address, "reason", why)
	}
}

// isRowmillNode reports whether a Rowmill node listens at an address. It asks for /version,
// where only a node has the fields commit and built. An error means that the answer is
// unknown now.
func (f *Finder) isRowmillNode(ctx context.Context, address string) (bool, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/version", nil)
	if err != nil {
		return false, err
	}
	req.Header.Set("User-Agent", "rowmill")
	res, err := f.cfg.Transport.RoundTrip(req)
	if err != nil {
		return false, err
	}
	defer func() { _ = res.Body.Close() }()
	const large = 64 << 10
	body, err := io.ReadAll(io.LimitReader(res.Body, large))
	if err != nil {
		return false, err
	}
	var build struct {
		Commit *string `json:"commit"`
		Built  *string `json:"built"`
		Go     string  `json:"go"`
	}
	err = json.Unmarshal(body, &build)
	return err == nil && build.Commit != nil && build.Built != nil && strings.HasPrefix(build.Go, "go"), nil
}

// pinnedEngine is an engine that keeps real and simulated servers apart: its Probe fails if a
// simulated server replaces a real server at the same address, or the other way round.
type pinnedEngine struct {
	engine.Engine
	simulated bool // the server was simulated when it was found
}

// Probe asks the server for its description. It returns an error if a simulated server
// has replaced a real server, or a real server a simulated one.
func (e pinnedEngine) Probe(ctx context.Context) (engine.ServerInfo, error) {
	info, err := e.Engine.Probe(ctx)
	switch {
	case err != nil || info.Simulated == e.simulated:
		return info, err
	case info.Simulated:
		return engine.ServerInfo{}, fmt.Errorf("%s is a simulated server now, but was a real one: start the real one again, or restart this node", e.Name())
	}
	return engine.ServerInfo{}, fmt.Errorf("%s is a real server now, but was a simulated one: restart this node to use it", e.Name())
}
