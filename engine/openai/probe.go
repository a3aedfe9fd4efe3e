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

// Limits of pages other than row replies, in bytes. vLLM's metrics have less than 200
// KB, like a list of a thousand models. A JSON page takes many times its size in memory
// when it is decoded; a page of metrics is not decoded.
const (
	maxMetrics = 4 << 20
	maxPage    = 1 << 20
)

// A page is a small reply to a probe.
type page struct {
	status int
	server string // header Server
	body   []byte
}

// get fetches a path below the server's root.
func (e *Engine) get(ctx context.Context, path string) (page, error) {
	return e.ask(ctx, http.MethodGet, path, nil, new(bytes.Buffer), maxPage)
}

// ask sends a request to a path below the server's root and reads up to limit bytes of
// the reply into buf. The returned page shares buf's memory.
func (e *Engine) ask(ctx context.Context, method, path string, body []byte, buf *bytes.Buffer, limit int64) (page, error) {
	req, err := http.NewRequestWithContext(ctx, method, e.base.JoinPath(path).String(), bytes.NewReader(body))
	if err != nil {
		return page{}, fmt.Errorf("get %s: %w", path, err)
	}
	if len(body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("User-Agent", "rowmill")
	if value := e.authorization(); value != "" {
		req.Header.Set("Authorization", value)
	}
	res, err := e.side.Do(req)
	if err != nil {
		return page{}, fmt.Errorf("get %s: %w", path, err)
	}
	defer func() { _ = res.Body.Close() }()
	if _, err := buf.ReadFrom(io.LimitReader(res.Body, limit)); err != nil {
		return page{}, fmt.Errorf("get %s: %w", path, err)
	}
	return page{status: res.StatusCode, server: res.Header.Get("Server"), body: buf.Bytes()}, nil
}

// read fetches a path and decodes its JSON into out. It reports whether that succeeded.
func (e *Engine) read(ctx context.Context, path string, out any) bool {
	got, err := e.get(ctx, path)
	return err == nil && got.status == http.StatusOK && json.Unmarshal(got.body, out) == nil
}

// modelList is /v1/models with the additional fields of some servers.
type modelList struct {
	Simulated loose[bool]    `json:"simulated"` // Rowmill's simulated server
	Slots     loose[float64] `json:"slots"`     // Rowmill's simulated server
	Data      listedModels   `json:"data"`
}

// info returns the facts that the list alone gives.
func (l modelList) info() engine.Info {
	info := engine.Info{Kind: kindOther, Simulated: l.Simulated.is, Slots: whole(l.Slots)}
	for _, m := range l.Data {
		context := whole(m.MaxModelLen)
		if context == 0 {
			context = whole(m.Meta.is.Context)
		}
		info.Models = append(info.Models, engine.ServedModel{Name: m.ID.is, ContextLength: context})
		info.Simulated = info.Simulated || m.Simulated.is
	}
	return info
}

// listedModels has at most maxModels entries, each with a valid name.
type listedModels []listedModel

type listedModel struct {
	ID          loose[string]  `json:"id"`
	Created     loose[float64] `json:"created"`
	OwnedBy     loose[string]  `json:"owned_by"`
	MaxModelLen loose[float64] `json:"max_model_len"` // vLLM, SGLang, Rowmill
	Simulated   loose[bool]    `json:"simulated"`
	Meta        loose[struct {
		Context loose[float64] `json:"n_ctx"` // llama.cpp
	}] `json:"meta"`
	Root      loose[string]  `json:"root"`      // vLLM: the Hugging Face id or path from the start options
	Parent    loose[string]  `json:"parent"`    // vLLM: the base model of an adapter
	Kind      loose[string]  `json:"kind"`      // Rowmill
	Dimension loose[float64] `json:"dimension"` // Rowmill
}

// loose is a JSON value that stays empty if it has another type than expected. Servers
// write numbers with a decimal point, null for unknown values, and more; such a value
// must not hide the rest of their models.
type loose[T any] struct{ is T }

func (l *loose[T]) UnmarshalJSON(text []byte) error {
	var value T
	if json.Unmarshal(text, &value) == nil {
		l.is = value
	}
	return nil
}

// whole returns a number that may be written with a decimal point; 0 if it is not a
// whole number.
func whole(n loose[float64]) int {
	if n.is != math.Trunc(n.is) || math.Abs(n.is) > 1<<53 {
		return 0
	}
	return int(n.is)
}

// errManyModels reports a list longer than that of any real server.
var errManyModels = fmt.Errorf("/v1/models lists more than %d models", maxModels)

// UnmarshalJSON reads the list entry by entry, so that a long list takes no memory.
func (l *listedModels) UnmarshalJSON(text []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	if start, err := decoder.Token(); err != nil || start == nil {
		return err // null decodes to an empty list; err is then nil
	} else if start != json.Delim('[') {
		return errors.New("data is not a list of models")
	}
	for listed := 0; decoder.More(); listed++ {
		if listed == maxModels {
			return errManyModels
		}
		var m loose[listedModel]
		if err := decoder.Decode(&m); err != nil {
			return err
		}
		if shortWord(m.is.ID.is, maxName) != "" {
			*l = append(*l, m.is)
		}
	}
	return nil
}

// Probe asks the server for its kind and its models.
func (e *Engine) Probe(ctx context.Context) (engine.Info, error) {
	info, found, err := e.probe(ctx)
	if err != nil {
		e.mu.Lock()
		e.steady = false
		e.mu.Unlock()
		return engine.Info{}, fmt.Errorf("probe %s: %w", e.cfg.Name, err)
	}
	e.addMapped(&info)
	e.remember(info, found)
	return info, nil
}

func (e *Engine) probe(ctx context.Context) (engine.Info, facts, error) {
	fail := func(format string, args ...any) (engine.Info, facts, error) {
		return engine.Info{}, facts{}, fmt.Errorf(format, args...)
	}
	listed, err := e.get(ctx, "/v1/models")
	if err != nil {
		return engine.Info{}, facts{}, err
	}
	switch listed.status {
	case http.StatusOK:
	case http.StatusUnauthorized, http.StatusForbidden:
		return engine.Info{}, facts{}, &engine.Error{
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
	var list modelList
	if err := json.Unmarshal(listed.body, &list); errors.Is(err, errManyModels) {
		return engine.Info{}, facts{}, err
	} else if err != nil {
		return fail("/v1/models is not the JSON expected: is this an OpenAI-compatible server?")
	}
	info := list.info()
	var found facts
	e.identify(ctx, listed.server, list, &info, &found)
	dropImplausible(&info, &found)
	describe(&info, found, list.Data)
	if info.Kind == kindOther || info.Kind == kindOllama {
		return info, found, nil // these kinds have no useful health endpoint
	}
	health, err := e.get(ctx, "/health")
	if err != nil {
		return engine.Info{}, facts{}, err
	}
	if health.status != http.StatusOK && health.status != http.StatusNotFound {
		return fail("the server is not ready: /health answered HTTP %d", health.status)
	}
	return info, found, nil
}

// addMapped adds the models of ModelMap that the server serves to info again, under their
// catalog ids, so that Info.Find finds them.
func (e *Engine) addMapped(info *engine.Info) {
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

// remember keeps the result of the probe for Prepare and logs a change of the server.
func (e *Engine) remember(info engine.Info, found facts) {
	e.mu.Lock()
	changed := !e.probed || e.info.Kind != info.Kind || e.info.Version != info.Version
	if changed || !e.steady {
		e.unparsed = nil // the server may have been restarted with a reasoning parser
	}
	e.probed, e.steady, e.info, e.facts = true, true, info, found
	e.mu.Unlock()
	if changed {
		e.cfg.Logger.Info("inference server found",
			slog.String("engine", e.cfg.Name), slog.String("kind", info.Kind), slog.String("version", info.Version),
			slog.Int("slots", info.Slots), slog.Int("models", len(info.Models)), slog.Bool("simulated", info.Simulated))
	}
}
