package openai

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
)

// answers returns a server that answers the rows of each model in its own way.
func answers(chat, embeddings map[string]string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var asked struct {
			Model     string `json:"model"`
			MaxTokens int    `json:"max_tokens"`
		}
		_ = json.NewDecoder(r.Body).Decode(&asked)
		answer := embeddings[asked.Model]
		if strings.HasSuffix(r.URL.Path, "/completions") {
			answer = chat[asked.Model]
		}
		status := http.StatusOK
		switch {
		case answer == "":
			status, answer = http.StatusBadRequest, `{"error":{"message":"not with `+asked.Model+`","type":"BadRequestError","code":400}}`
		case answer == "none":
			status, answer = http.StatusNotFound, `{"detail":"Not Found"}`
		case answer == "unable": // llama-cpp-python
			status, answer = http.StatusInternalServerError, `{"error":{"message":"Llama model must be created with embedding=True to call this method","type":"internal_server_error"}}`
		case answer == "busy":
			status, answer = http.StatusServiceUnavailable, `{"error":{"message":"later"}}`
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, answer)
	}
}

func said(message string) string {
	return `{"choices":[{"index":0,"message":` + message + `,"finish_reason":"length"}],"usage":{"prompt_tokens":5,"completion_tokens":32}}`
}

func TestFindCapability(t *testing.T) {
	t.Parallel()
	vector := `{"data":[{"index":0,"embedding":[0.5,0.25,0.125]}],"usage":{"prompt_tokens":1}}`
	chat := map[string]string{
		"talks": said(`{"role":"assistant","content":"Hello! How"}`), "thinks": said(`{"role":"assistant","content":null,"reasoning":"Okay, the user"}`),
		"older": said(`{"role":"assistant","content":"","reasoning_content":"Okay"}`), "tagged": said(`{"role":"assistant","content":"<think>Okay, the user"}`),
		"closed": said(`{"role":"assistant","content":"Okay.</think>Hello"}`), "gone": "none", "busy": "busy", "python": said(`{"role":"assistant","content":"Hello"}`),
	}
	f := &fake{pages: map[string]string{
		"/v1/models": `{"object":"list","data":[{"id":"talks","owned_by":"vllm"},{"id":"thinks"},{"id":"older"},{"id":"tagged"},{"id":"closed"},{"id":"vectors"},{"id":"gone"},{"id":"python"},{"id":"nothing"},{"id":"busy"}]}`,
		"/version":   `{"version":"0.32.0"}`, "/health": "",
	}, chat: answers(chat, map[string]string{"vectors": vector, "gone": vector, "python": "unable"})}
	e := f.start(t, nil)
	for model, want := range map[string]engine.Capability{
		"talks": {Kind: rowmill.KindGeneration}, "thinks": {Kind: rowmill.KindReasoning}, "older": {Kind: rowmill.KindReasoning},
		"tagged": {Kind: rowmill.KindReasoning}, "closed": {Kind: rowmill.KindReasoning}, "python": {Kind: rowmill.KindGeneration},
		"vectors": {Kind: rowmill.KindEmbedding, Dimension: 3}, "gone": {Kind: rowmill.KindEmbedding, Dimension: 3},
	} {
		got, err := engine.ProbeCapability(t.Context(), e, model, time.Minute)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", model, err, diff)
		}
	}
	got, err := engine.ProbeCapability(t.Context(), e, "nothing", time.Minute)
	if err != nil || got.Kind != "" || strings.Count(got.Refusal, "not with nothing") != 2 {
		t.Errorf("a model that runs no row is %+v, %v", got, err)
	}
	if got, err := engine.ProbeCapability(t.Context(), e, "busy", time.Minute); err == nil {
		t.Errorf("a server that is busy says %+v", got)
	}
}

// TestProbe_KindsOfModels checks the descriptions of models in the formats of several
// servers. Unreadable values count as missing.
func TestProbe_KindsOfModels(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		pages map[string]string
		want  []engine.ServedModel
	}{
		"vLLM with an adapter": {map[string]string{
			"/v1/models": `{"data":[{"id":"base","owned_by":"vllm","root":"acme/Base-7B","parent":null,"max_model_len":64},
				{"id":"tuned","owned_by":"vllm","root":"/adapters/tuned","parent":"base","max_model_len":64},{"id":"path","root":"/models/x","parent":7},
				{"id":"snapshot","root":"/hub/models--acme--Base-7B/snapshots/0123456789abcdef0123456789abcdef01234567/"},{"id":"odd","root":"/hub/snapshots/main"}]}`,
			"/version": `{"version":"0.32.0"}`, "/health": "",
		}, []engine.ServedModel{{Name: "base", Origin: "acme/Base-7B", ContextLength: 64}, {Name: "tuned", Base: "base", ContextLength: 64}, {Name: "path"}, {Name: "snapshot", Revision: "0123456789ab"}, {Name: "odd"}}},
		"ours": {map[string]string{
			"/v1/models": `{"simulated":true,"data":[{"id":"a","owned_by":"rowmill-sim","kind":"reasoning"},{"id":"b","kind":"embedding","dimension":7},{"id":"c","kind":"embedding"},{"id":"d","kind":"poetry"},{"id":"e","kind":[]}]}`,
			"/version":   `{"version":"1"}`, "/health": "",
		}, []engine.ServedModel{{Name: "a", Kind: rowmill.KindReasoning}, {Name: "b", Kind: rowmill.KindEmbedding, Dimension: 7}, {Name: "c"}, {Name: "d"}, {Name: "e"}}},
		"Ollama": {map[string]string{
			"/v1/models": `{"data":[{"id":"hf.co/acme/Own-GGUF:Q4","owned_by":"library"},{"id":"deep:8b","owned_by":"library"},{"id":"vec","owned_by":"library"},{"id":"old","owned_by":"library"}]}`,
			"/":          "Ollama is running", "/api/version": `{"version":"0.17.4"}`, "/api/ps": `{"models":[]}`,
			"/api/tags":                        `{"models":[{"name":"vec","digest":"` + strings.Repeat("0f", 32) + `"},{"name":"old","digest":"?"}]}`,
			"/api/show hf.co/acme/Own-GGUF:Q4": `{"capabilities":["completion"],"model_info":{"x.context_length":512}}`,
			"/api/show deep:8b":                `{"capabilities":["completion","thinking"],"model_info":{"x.context_length":512,"x.embedding_length":4096}}`,
			"/api/show vec":                    `{"capabilities":["embedding"],"model_info":{"x.context_length":256,"x.embedding_length":768}}`,
			"/api/show old":                    `{"model_info":{"x.context_length":"long"}}`,
		}, []engine.ServedModel{
			{Name: "hf.co/acme/Own-GGUF:Q4", Origin: "acme/Own-GGUF", Kind: rowmill.KindGeneration, ContextLength: 512},
			{Name: "deep:8b", Kind: rowmill.KindReasoning, ContextLength: 512},
			{Name: "vec", Kind: rowmill.KindEmbedding, Dimension: 768, ContextLength: 256, Revision: "0f0f0f0f0f0f"},
			{Name: "old"},
		}},
	} {
		e := (&fake{pages: test.pages}).start(t, nil)
		info, err := e.Probe(t.Context())
		if diff := cmp.Diff(test.want, info.Models); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
}
