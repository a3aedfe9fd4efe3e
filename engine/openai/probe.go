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

// What is read of a page beside the rows. vLLM's metrics are below 200 KB; a
// list of a thousand models has as much. A page of JSON takes many times its
// size in memory, and one of metrics nothing.
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

// ask sends a request to a path below the server's root and reads the reply
// into buf, where it stays, up to limit bytes.
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

// read asks for a path and decodes the JSON that answers into out. It reports
// whether there was any.
func (e *Engine) read(ctx context.Context, path string, out any) bool {
	got, err := e.get(ctx, path)
	return err == nil && got.status == http.StatusOK && json.Unmarshal(got.body, out) == nil
}

// modelList is /v1/models with the fields that servers add to it.
type modelList struct {
	Simulated loose[bool]    `json:"simulated"` // our simulated server
	Slots     loose[float64] `json:"slots"`     // our simulated server
	Data      listedModels   `json:"data"`
}

// listedModels are at most maxModels, each with a name that can be one.
type listedModels []listedModel

type listedModel struct {
	ID          loose[string]  `json:"id"`
	Created     loose[float64] `json:"created"`
	OwnedBy     loose[string]  `json:"owned_by"`
	MaxModelLen loose[float64] `json:"max_model_len"` // vLLM, SGLang, ours
	Simulated   loose[bool]    `json:"simulated"`
	Meta        loose[struct {
		Context loose[float64] `json:"n_ctx"` // llama.cpp
	}] `json:"meta"`
	Root      loose[string]  `json:"root"`      // vLLM: the Hugging Face id or path that it was started with
	Parent    loose[string]  `json:"parent"`    // vLLM: what an adapter adapts
	Kind      loose[string]  `json:"kind"`      // ours
	Dimension loose[float64] `json:"dimension"` // ours
}

// loose is a member that says nothing where it is of another type than expected:
// servers write numbers with a point, null for what they do not know, and more.
// None of that is a reason to know nothing of their models.
type loose[T any] struct{ is T }

func (l *loose[T]) UnmarshalJSON(text []byte) error {
	var value T
	if json.Unmarshal(text, &value) == nil {
		l.is = value
	}
	return nil
}

// whole is a number that may be written with a point; 0 where it is none.
func whole(n loose[float64]) int {
	if n.is != math.Trunc(n.is) || math.Abs(n.is) > 1<<53 {
		return 0
	}
	return int(n.is)
}

// errManyModels says that a list is longer than any server's.
var errManyModels = fmt.Errorf("/v1/models lists more than %d models", maxModels)

// UnmarshalJSON reads a list one by one, so that a long one takes no memory.
func (l *listedModels) UnmarshalJSON(text []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	if start, err := decoder.Token(); err != nil || start == nil {
		return err // a null is no list
	} else if start != json.Delim('[') {
		return errors.New("no list of models")
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

// Probe asks the server what it is and what it serves.
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
	info := engine.Info{Kind: kindOther, Simulated: list.Simulated.is, Slots: whole(list.Slots)}
	for _, m := range list.Data {
		context := whole(m.MaxModelLen)
		if context == 0 {
			context = whole(m.Meta.is.Context)
		}
		info.Models = append(info.Models, engine.ServedModel{Name: m.ID.is, ContextLength: context})
		info.Simulated = info.Simulated || m.Simulated.is
	}
	var found facts
	e.identify(ctx, listed.server, list, &info, &found)
	keepUsable(&info, &found)
	describe(&info, found, list.Data)
	if info.Kind == kindOther || info.Kind == kindOllama {
		return info, found, nil // no health endpoint that means anything
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

// addMapped lists mapped models under their ids too, so that Info.Find sees
// them, as far as the server really serves them.
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

// remember keeps the last probe for Prepare, and tells what changed.
func (e *Engine) remember(info engine.Info, found facts) {
	e.mu.Lock()
	changed := !e.probed || e.info.Kind != info.Kind || e.info.Version != info.Version
	if changed || !e.steady {
		e.unparsed = nil // the server may have been started with a parser
	}
	e.probed, e.steady, e.info, e.facts = true, true, info, found
	e.mu.Unlock()
	if changed {
		e.cfg.Logger.Info("inference server found",
			slog.String("engine", e.cfg.Name), slog.String("kind", info.Kind), slog.String("version", info.Version),
			slog.Int("slots", info.Slots), slog.Int("models", len(info.Models)), slog.Bool("simulated", info.Simulated))
	}
}
