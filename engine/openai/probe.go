package openai

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/rowmill/rowmill/engine"
)

// maxSideBody bounds the body of a probe or of a page of metrics: vLLM's
// metrics, the largest, are below 200 KB.
const maxSideBody = 4 << 20

// A page is a small reply to a probe.
type page struct {
	status int
	server string // header Server
	body   []byte
}

// get fetches a path below the server's root.
func (e *Engine) get(ctx context.Context, path string) (page, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.base.JoinPath(path).String(), nil)
	if err != nil {
		return page{}, fmt.Errorf("get %s: %w", path, err)
	}
	req.Header.Set("User-Agent", "rowmill")
	if e.cfg.APIKey != "" {
		req.Header.Set("Authorization", "Bearer "+e.cfg.APIKey)
	}
	res, err := e.side.Do(req)
	if err != nil {
		return page{}, fmt.Errorf("get %s: %w", path, err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxSideBody))
	if err != nil {
		return page{}, fmt.Errorf("get %s: %w", path, err)
	}
	return page{status: res.StatusCode, server: res.Header.Get("Server"), body: body}, nil
}

// modelList is /v1/models with the fields that servers add to it.
type modelList struct {
	Simulated bool `json:"simulated"` // our simulated server
	Slots     int  `json:"slots"`     // our simulated server
	Data      []struct {
		ID          string `json:"id"`
		OwnedBy     string `json:"owned_by"`
		MaxModelLen int    `json:"max_model_len"` // vLLM, SGLang, ours
		Simulated   bool   `json:"simulated"`
		Meta        struct {
			Context int `json:"n_ctx"` // llama.cpp
		} `json:"meta"`
	} `json:"data"`
}

// Probe asks the server what it is and what it serves.
func (e *Engine) Probe(ctx context.Context) (engine.Info, error) {
	listed, err := e.get(ctx, "/v1/models")
	if err != nil {
		return engine.Info{}, fmt.Errorf("probe %s: %w", e.cfg.Name, err)
	}
	switch listed.status {
	case http.StatusOK:
	case http.StatusUnauthorized, http.StatusForbidden:
		return engine.Info{}, fmt.Errorf("probe %s: the server refuses our API key (HTTP %d): set the engine's api key", e.cfg.Name, listed.status)
	default:
		return engine.Info{}, fmt.Errorf("probe %s: /v1/models answered HTTP %d", e.cfg.Name, listed.status)
	}
	var list modelList
	if err := json.Unmarshal(listed.body, &list); err != nil {
		return engine.Info{}, fmt.Errorf("probe %s: /v1/models is not the JSON expected: is this an OpenAI-compatible server?", e.cfg.Name)
	}
	info := engine.Info{Kind: kindOther, Simulated: list.Simulated, Slots: list.Slots}
	for _, m := range list.Data {
		context := m.MaxModelLen
		if context == 0 {
			context = m.Meta.Context
		}
		info.Models = append(info.Models, engine.ServedModel{Name: m.ID, ContextLength: context})
		info.Simulated = info.Simulated || m.Simulated
	}
	if err := e.identify(ctx, listed.server, list, &info); err != nil {
		return engine.Info{}, fmt.Errorf("probe %s: %w", e.cfg.Name, err)
	}
	e.addMapped(&info)
	e.remember(info)
	return info, nil
}

// identify finds the kind of server, and asks it what only its kind can tell.
func (e *Engine) identify(ctx context.Context, server string, list modelList, info *engine.Info) error {
	owner := ""
	if len(list.Data) > 0 {
		owner = list.Data[0].OwnedBy
	}
	switch {
	case server == kindSim || owner == kindSim:
		info.Kind, info.Simulated = kindSim, true
		info.Version = e.askVersion(ctx, "/version")
	case server == kindLlama || owner == "llamacpp":
		info.Kind = kindLlama
		e.askLlama(ctx, info)
	case owner == kindSGLang:
		info.Kind = kindSGLang
	case owner == kindVLLM:
		info.Kind = kindVLLM
		info.Version = e.askVersion(ctx, "/version")
	default:
		if root, err := e.get(ctx, "/"); err == nil && strings.Contains(string(root.body), "Ollama is running") {
			info.Kind = kindOllama
			info.Version = e.askVersion(ctx, "/api/version")
		} else if len(list.Data) > 0 && list.Data[0].MaxModelLen > 0 {
			// A served model under another owner's name, such as vLLM's adapters.
			if v := e.askVersion(ctx, "/version"); v != "" {
				info.Kind, info.Version = kindVLLM, v
			}
		}
	}
	if info.Kind == kindOther || info.Kind == kindOllama {
		return nil // no health endpoint that means anything
	}
	health, err := e.get(ctx, "/health")
	if err != nil {
		return err
	}
	if health.status != http.StatusOK && health.status != http.StatusNotFound {
		return fmt.Errorf("the server is not ready: /health answered HTTP %d", health.status)
	}
	return nil
}

// askLlama reads llama.cpp's properties: its context is divided among slots.
func (e *Engine) askLlama(ctx context.Context, info *engine.Info) {
	var props struct {
		Slots    int    `json:"total_slots"`
		Build    string `json:"build_info"`
		Defaults struct {
			Context int `json:"n_ctx"` // of one slot
		} `json:"default_generation_settings"`
	}
	got, err := e.get(ctx, "/props")
	if err != nil || got.status != http.StatusOK || json.Unmarshal(got.body, &props) != nil {
		return // a server without them works too
	}
	info.Slots, info.Version = props.Slots, props.Build
	if props.Defaults.Context > 0 {
		for i := range info.Models {
			info.Models[i].ContextLength = props.Defaults.Context
		}
	}
}

// askVersion reads {"version": …}, empty where there is none.
func (e *Engine) askVersion(ctx context.Context, path string) string {
	var v struct {
		Version string `json:"version"`
	}
	got, err := e.get(ctx, path)
	if err != nil || got.status != http.StatusOK || json.Unmarshal(got.body, &v) != nil {
		return ""
	}
	return v.Version
}

// addMapped lists mapped models under their ids too, so that Info.Find sees
// them, as far as the server really serves them.
func (e *Engine) addMapped(info *engine.Info) {
	served := info.Models
	for _, id := range slices.Sorted(maps.Keys(e.cfg.ModelMap)) {
		for _, m := range served {
			if m.Name == e.cfg.ModelMap[id] && m.Name != id {
				info.Models = append(info.Models, engine.ServedModel{Name: id, ContextLength: m.ContextLength})
			}
		}
	}
}

// remember keeps the last probe for Prepare, and tells what changed.
func (e *Engine) remember(info engine.Info) {
	e.mu.Lock()
	changed := !e.probed || e.info.Kind != info.Kind || e.info.Version != info.Version
	e.probed, e.info = true, info
	e.mu.Unlock()
	if changed {
		e.cfg.Logger.Info("inference server found",
			slog.String("engine", e.cfg.Name), slog.String("kind", info.Kind), slog.String("version", info.Version),
			slog.Int("slots", info.Slots), slog.Int("models", len(info.Models)), slog.Bool("simulated", info.Simulated))
	}
}
