package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/rowmill/rowmill/engine"
)

// identifyServer finds the kind of the server and reads the properties that only servers of
// this kind report. It puts them into info and found.
func (e *Engine) identifyServer(ctx context.Context, server string, list modelsResponse, info *engine.ServerInfo, found *probeFacts) {
	owner, length := "", 0
	if len(list.Data) > 0 {
		owner, length = list.Data[0].OwnedBy.value, wholeOrZero(list.Data[0].MaxModelLen)
	}
	switch {
	case server == kindSim || owner == kindSim:
		info.Kind, info.Simulated = kindSim, true
		info.Version = e.fetchVersion(ctx, "/version")
	case server == kindLlama || owner == "llamacpp":
		info.Kind = kindLlama
		e.probeLlamaCpp(ctx, info, found)
	case owner == kindSGLang:
		info.Kind = kindSGLang
		e.probeSGLang(ctx, info, found)
	case owner == kindVLLM:
		info.Kind = kindVLLM
		info.Version = e.fetchVersion(ctx, "/version")
	case owner == kindInfinity:
		info.Kind = kindInfinity // Infinity reports no version
	case length > 0:
		// vLLM lists some models, such as adapters, with another owner
		if v := e.fetchVersion(ctx, "/version"); v != "" {
			info.Kind, info.Version = kindVLLM, v
		}
	default:
		if root, err := e.fetchPath(ctx, "/"); err == nil && strings.Contains(string(root.body), "Ollama is running") {
			info.Kind = kindOllama
			info.Version = e.fetchVersion(ctx, "/api/version")
			e.probeOllama(ctx, list, info, found)
		}
	}
}

// fetchVersion returns the field version of the JSON at path; empty if there is none.
func (e *Engine) fetchVersion(ctx context.Context, path string) string {
	var v struct {
		Version string `json:"version"`
	}
	e.fetchJSON(ctx, path, &v)
	return v.Version
}

// probeLlamaCpp reads llama.cpp's properties. It assumes that all slots share the context
// equally, because llama.cpp does not report whether --kv-unified is set.
func (e *Engine) probeLlamaCpp(ctx context.Context, info *engine.ServerInfo, found *probeFacts) {
	var props struct {
		Slots    int    `json:"total_slots"`
		Build    string `json:"build_info"`
		Defaults struct {
			Context int `json:"n_ctx"` // context length of one slot, tokens
		} `json:"default_generation_settings"`
	}
	if !e.fetchJSON(ctx, "/props", &props) {
		return // llama.cpp also works without /props
	}
	info.Slots, info.Version = zeroIfImplausible(props.Slots, maxSlots), props.Build
	length := zeroIfImplausible(props.Defaults.Context, maxContext)
	found.kvTokens = int64(info.Slots) * int64(length)
	if length > 0 {
		for i := range info.Models {
			info.Models[i].ContextLength = length
		}
	}
}

// probeSGLang reads SGLang's start options, but only in the first probe and after a
// failed probe. The request goes through SGLang's scheduler, and the options change
// only with a restart.
func (e *Engine) probeSGLang(ctx context.Context, info *engine.ServerInfo, found *probeFacts) {
	e.mu.Lock()
	known, before, learned := e.lastProbeSucceeded && e.info.Kind == kindSGLang && e.info.Version != "", e.info, e.facts
	e.mu.Unlock()
	if known {
		info.Version, info.Slots = before.Version, before.Slots
		*found = learned
		return
	}
	var args struct {
		Version string  `json:"version"`
		Parser  *string `json:"reasoning_parser"`
		Repeats *bool   `json:"enable_deterministic_inference"` // false: SGLang ignores seeds
		Ranks   int     `json:"dp_size"`
		Tokens  int64   `json:"max_total_num_tokens"` // per rank
		States  []struct {
			Running int `json:"effective_max_running_requests_per_dp"`
		} `json:"internal_states"`
	}
	// New releases of SGLang log a warning about the old path, so try the old path last.
	if e.fetchJSON(ctx, "/server_info", &args) || e.fetchJSON(ctx, "/get_server_info", &args) {
		ranks := max(zeroIfImplausible(args.Ranks, maxRanks), 1)
		info.Version = args.Version
		found.noParser = args.Parser == nil || *args.Parser == ""
		found.noSeeds = args.Repeats != nil && !*args.Repeats
		found.kvTokens = zeroIfImplausible(args.Tokens, maxCache) * int64(ranks)
		if len(args.States) > 0 {
			info.Slots = zeroIfImplausible(args.States[0].Running, maxSlots) * ranks
		}
	}
	var model struct {
		Generates *bool `json:"is_generation"`
	}
	if (e.fetchJSON(ctx, "/model_info", &model) || e.fetchJSON(ctx, "/get_model_info", &model)) && model.Generates != nil {
		able := embeds
		if *model.Generates {
			able = generates | thinks
		}
		found.able = map[string]abilitySet{}
		for _, m := range info.Models {
			found.able[m.Name] = able
		}
	}
}

// ollamaModelCache caches the details of Ollama's models, which need one request per model.
type ollamaModelCache struct {
	shown  map[string]ollamaModelDetails // details of each model, by its name and time of creation
	loaded map[string]int                // context length in tokens of the model instance that was loaded last, by name of the model
}

// ollamaModelDetails holds the details of a model from Ollama's /api/show.
type ollamaModelDetails struct {
	able      abilitySet
	context   int  // tokens: the setting in the model file, otherwise the model's own maximum
	set       bool // the model file sets the context length
	dimension int  // numbers per embedding; 0 if the model has no embeddings
}

// probeOllama finds the context length and the abilities of each model. The context
// length is the length of the loaded model; otherwise the setting in the model file;
// otherwise the model's own maximum. This maximum is only an upper limit: when the
// first row loads the model, the server may use a smaller default.
func (e *Engine) probeOllama(ctx context.Context, list modelsResponse, info *engine.ServerInfo, found *probeFacts) {
	var running struct {
		Models []struct {
			Name    string `json:"name"`
			Context int    `json:"context_length"`
		} `json:"models"`
	}
	e.fetchJSON(ctx, "/api/ps", &running)
	var stored struct {
		Models []struct {
			Name   string `json:"name"`
			Digest string `json:"digest"`
		} `json:"models"`
	}
	e.fetchJSON(ctx, "/api/tags", &stored)
	digests := map[string]string{}
	for _, m := range stored.Models[:min(len(stored.Models), maxModels)] {
		digests[m.Name] = shortRevision(m.Digest)
	}
	e.mu.Lock()
	known := e.ollama
	e.mu.Unlock()
	next := ollamaModelCache{shown: map[string]ollamaModelDetails{}, loaded: map[string]int{}}
	for _, m := range list.Data {
		if known.loaded[m.ID.value] > 0 {
			next.loaded[m.ID.value] = known.loaded[m.ID.value]
		}
	}
	for _, m := range running.Models[:min(len(running.Models), maxModels)] {
		if m.Context > 0 {
			next.loaded[m.Name] = m.Context
		}
	}
	found.able, found.dimension, found.atMost = map[string]abilitySet{}, map[string]int{}, map[string]bool{}
	for i, m := range list.Data {
		name := m.ID.value
		key := name + "@" + strconv.Itoa(wholeOrZero(m.Created))
		shown, ok := known.shown[key]
		if !ok {
			shown, ok = e.fetchOllamaDetails(ctx, name)
		}
		info.Models[i].ContextLength, info.Models[i].Revision = next.loaded[name], digests[name]
		if !ok {
			continue // the next probe asks again
		}
		next.shown[key] = shown
		if info.Models[i].ContextLength == 0 {
			info.Models[i].ContextLength = shown.context
			found.atMost[name] = !shown.set
		}
		if shown.able != 0 {
			found.able[name], found.dimension[name] = shown.able, zeroIfImplausible(shown.dimension, maxDimension)
		}
	}
	e.mu.Lock()
	e.ollama = next
	e.mu.Unlock()
}

// fetchOllamaDetails asks Ollama for the details of a model; false if Ollama gives none.
func (e *Engine) fetchOllamaDetails(ctx context.Context, name string) (ollamaModelDetails, bool) {
	body, err := json.Marshal(map[string]string{"model": name})
	if err != nil {
		return ollamaModelDetails{}, false
	}
	got, err := e.sendProbeRequest(ctx, http.MethodPost, "/api/show", body, new(bytes.Buffer), maxPage)
	if err != nil || got.status != http.StatusOK {
		return ollamaModelDetails{}, false
	}
	var said struct {
		Parameters   string                     `json:"parameters"` // lines with a name and a value
		Capabilities []string                   `json:"capabilities"`
		Info         map[string]json.RawMessage `json:"model_info"`
	}
	if json.Unmarshal(got.body, &said) != nil {
		return ollamaModelDetails{}, false
	}
	var shown ollamaModelDetails
	for word, able := range map[string]abilitySet{"completion": generates, "embedding": embeds, "thinking": thinks} {
		if slices.Contains(said.Capabilities, word) {
			shown.able |= able
		}
	}
	for key, value := range said.Info {
		switch { // a key begins with the name of the architecture; a value of another type is ignored
		case strings.HasSuffix(key, ".context_length"):
			_ = json.Unmarshal(value, &shown.context)
		case strings.HasSuffix(key, ".embedding_length"):
			_ = json.Unmarshal(value, &shown.dimension)
		}
	}
	for line := range strings.Lines(said.Parameters) {
		if words := strings.Fields(line); len(words) == 2 && words[0] == "num_ctx" {
			if n, err := strconv.Atoi(words[1]); err == nil && n > 0 {
				shown.context, shown.set = n, true
			}
		}
	}
	return shown, true
}
