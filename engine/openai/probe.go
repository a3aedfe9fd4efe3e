package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"slices"

	"github.com/rowmill/rowmill/engine"
)

// Limits of replies that are no answers to rows, in bytes. vLLM's metrics have less
// than 200 KB, like a list of a thousand models. The limit of a JSON reply is lower,
// because decoded JSON takes many times its size in memory; metrics are not decoded.
const (
	maxMetrics = 4 << 20
	maxPage    = 1 << 20
)

// A probeReply is the reply to a request of a probe.
type probeReply struct {
	status int
	server string // value of the header Server
	body   []byte
}

// fetchPath sends a GET request to a path below the server's base URL.
func (e *Engine) fetchPath(ctx context.Context, path string) (probeReply, error) {
	return e.sendProbeRequest(ctx, http.MethodGet, path, nil, new(bytes.Buffer), maxPage)
}

// sendProbeRequest sends a request to a path below the server's base URL and reads up to
// limit bytes of the reply into buf. The body of the returned probeReply shares the memory
// of buf.
func (e *Engine) sendProbeRequest(ctx context.Context, method, path string, body []byte, buf *bytes.Buffer, limit int64) (probeReply, error) {
	req, err := http.NewRequestWithContext(ctx, method, e.base.JoinPath(path).String(), bytes.NewReader(body))
	if err != nil {
		return probeReply{}, fmt.Errorf("get %s: %w", path, err)
	}
	if len(body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("User-Agent", "rowmill")
	if value := e.authorization(); value != "" {
		req.Header.Set("Authorization", value)
	}
	res, err := e.probeClient.Do(req)
	if err != nil {
		return probeReply{}, fmt.Errorf("get %s: %w", path, err)
	}
	defer func() { _ = res.Body.Close() }()
	if _, err := buf.ReadFrom(io.LimitReader(res.Body, limit)); err != nil {
		return probeReply{}, fmt.Errorf("get %s: %w", path, err)
	}
	return probeReply{status: res.StatusCode, server: res.Header.Get("Server"), body: buf.Bytes()}, nil
}

// fetchJSON fetches a path and decodes the JSON reply into out. It reports whether the reply
// was 200 with valid JSON.
func (e *Engine) fetchJSON(ctx context.Context, path string, out any) bool {
	got, err := e.fetchPath(ctx, path)
	return err == nil && got.status == http.StatusOK && json.Unmarshal(got.body, out) == nil
}

// modelsResponse is the reply to /v1/models, with the additional fields of some servers.
type modelsResponse struct {
	Simulated lenientJSON[bool]    `json:"simulated"` // Rowmill's simulated server
	Slots     lenientJSON[float64] `json:"slots"`     // Rowmill's simulated server
	Data      listedModels         `json:"data"`
}

// info returns a description of the server that uses only the model list.
func (l modelsResponse) info() engine.ServerInfo {
	info := engine.ServerInfo{Kind: kindOther, Simulated: l.Simulated.value, Slots: wholeOrZero(l.Slots)}
	for _, m := range l.Data {
		context := wholeOrZero(m.MaxModelLen)
		if context == 0 {
			context = wholeOrZero(m.Meta.value.Context)
		}
		info.Models = append(info.Models, engine.ServedModel{Name: m.ID.value, ContextLength: context})
		info.Simulated = info.Simulated || m.Simulated.value
	}
	return info
}

// listedModels are the models in a modelsResponse: at most maxModels entries, each with a
// valid name.
type listedModels []listedModel

// listedModel is one entry of /v1/models.
type listedModel struct {
	ID          lenientJSON[string]  `json:"id"`
	Created     lenientJSON[float64] `json:"created"`
	OwnedBy     lenientJSON[string]  `json:"owned_by"`
	MaxModelLen lenientJSON[float64] `json:"max_model_len"` // vLLM, SGLang, Rowmill
	Simulated   lenientJSON[bool]    `json:"simulated"`
	Meta        lenientJSON[struct {
		Context lenientJSON[float64] `json:"n_ctx"` // llama.cpp
	}] `json:"meta"`
	Root      lenientJSON[string]  `json:"root"`      // vLLM: the Hugging Face id or path from the start options
	Parent    lenientJSON[string]  `json:"parent"`    // vLLM: the base model of an adapter
	Kind      lenientJSON[string]  `json:"kind"`      // Rowmill
	Dimension lenientJSON[float64] `json:"dimension"` // Rowmill
}

// lenientJSON is a JSON value that stays empty if the JSON has another type than T. Some
// servers write numbers with a decimal point, or null for an unknown value. Such a
// value must not make the rest of the list unreadable.
type lenientJSON[T any] struct{ value T }

// UnmarshalJSON decodes text and ignores errors.
func (l *lenientJSON[T]) UnmarshalJSON(text []byte) error {
	var value T
	if json.Unmarshal(text, &value) == nil {
		l.value = value
	}
	return nil
}

// wholeOrZero returns a number that the JSON may write with a decimal point, or 0 if it is no
// whole number.
func wholeOrZero(n lenientJSON[float64]) int {
	if n.value != math.Trunc(n.value) || math.Abs(n.value) > 1<<53 {
		return 0
	}
	return int(n.value)
}

// errManyModels reports a model list with more than maxModels entries. No real server
// lists so many.
var errManyModels = fmt.Errorf("/v1/models lists more than %d models", maxModels)

// UnmarshalJSON decodes one entry after the other, so that a list that is too long
// takes little memory.
func (l *listedModels) UnmarshalJSON(text []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	if start, err := decoder.Token(); err != nil || start == nil {
		return err // for null, err is nil and the list stays empty
	} else if start != json.Delim('[') {
		return errors.New("data is not a list of models")
	}
	for listed := 0; decoder.More(); listed++ {
		if listed == maxModels {
			return errManyModels
		}
		var m lenientJSON[listedModel]
		if err := decoder.Decode(&m); err != nil {
			return err
		}
		if printableOrEmpty(m.value.ID.value, maxName) != "" {
			*l = append(*l, m.value)
		}
	}
	return nil
}

// Probe asks the server for its kind and its models.
func (e *Engine) Probe(ctx context.Context) (engine.ServerInfo, error) {
	info, found, err := e.probe(ctx)
	if err != nil {
		e.mu.Lock()
		e.lastProbeSucceeded = false
		e.mu.Unlock()
		return engine.ServerInfo{}, fmt.Errorf("probe %s: %w", e.cfg.Name, err)
	}
	e.addMapped(&info)
	e.storeProbe(info, found)
	return info, nil
}

// probe asks the server for its models, its kind and its health. An error means that
// the server is unreachable, refuses the API key or is not ready.
func (e *Engine) probe(ctx context.Context) (engine.ServerInfo, probeFacts, error) {
	fail := func(format string, args ...any) (engine.ServerInfo, probeFacts, error) {
		return engine.ServerInfo{}, probeFacts{}, fmt.Errorf(format, args...)
	}
	listed, err := e.fetchPath(ctx, "/v1/models")
	if err != nil {
		return engine.ServerInfo{}, probeFacts{}, err
	}
	switch listed.status {
	case http.StatusOK:
	case http.StatusUnauthorized, http.StatusForbidden:
		return engine.ServerInfo{}, probeFacts{}, &engine.Error{
			Class: engine.ServerFault, Status: listed.status, Message: "set the engine's api_key: the server refuses our API key",
		}
	default:
		if listed.status == http.StatusNotFound {
			if info, found, ok, err := e.probeTEI(ctx); ok {
				return info, found, err
			}
		}
		return fail("/v1/models answered HTTP %d", listed.status)
	}
	var list modelsResponse
	if err := json.Unmarshal(listed.body, &list); errors.Is(err, errManyModels) {
		return engine.ServerInfo{}, probeFacts{}, err
	} else if err != nil {
		return fail("/v1/models is not the JSON expected: is this an OpenAI-compatible server?")
	}
	info := list.info()
	var found probeFacts
	e.identifyServer(ctx, listed.server, list, &info, &found)
	dropImplausible(&info, &found)
	addModelDetails(&info, found, list.Data)
	if info.Kind == kindOther || info.Kind == kindOllama {
		return info, found, nil // /health of these kinds is missing or says nothing
	}
	health, err := e.fetchPath(ctx, "/health")
	if err != nil {
		return engine.ServerInfo{}, probeFacts{}, err
	}
	if health.status != http.StatusOK && health.status != http.StatusNotFound {
		return fail("the server is not ready: /health answered HTTP %d", health.status)
	}
	return info, found, nil
}

// addMapped adds each served model of ModelMap to info a second time, with the catalog
// id as its name, so that Info.FindModel finds it by this id.
func (e *Engine) addMapped(info *engine.ServerInfo) {
	served := info.Models
	for _, id := range slices.Sorted(maps.Keys(e.cfg.ModelMap)) {
		for _, m := range served {
			if m.Name == e.cfg.ModelMap[id] && m.Name != id {
				m.Name = id
				info.Models = append(info.Models, m)
			}
		}
	}
}

// storeProbe stores the result of a probe for Prepare. It logs if the server's kind or
// version has changed.
func (e *Engine) storeProbe(info engine.ServerInfo, found probeFacts) {
	e.mu.Lock()
	changed := !e.probed || e.info.Kind != info.Kind || e.info.Version != info.Version
	if changed || !e.lastProbeSucceeded {
		e.unparsed = nil // after a restart the server may have a reasoning parser
	}
	e.probed, e.lastProbeSucceeded, e.info, e.facts = true, true, info, found
	e.mu.Unlock()
	if changed {
		e.cfg.Logger.Info("inference server found",
			slog.String("engine", e.cfg.Name), slog.String("kind", info.Kind), slog.String("version", info.Version),
			slog.Int("slots", info.Slots), slog.Int("models", len(info.Models)), slog.Bool("simulated", info.Simulated))
	}
}
