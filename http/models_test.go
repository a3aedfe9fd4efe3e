package http

import (
	"testing"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/engine/served"
)

func TestModels_List(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.service.servers = []served.Server{
		{Node: "gpu1", Name: "a:8000", Kind: "vllm", Counts: true, Models: []engine.ServedModel{
			{Name: "own", Origin: "acme/Own-7B", Kind: rowmill.KindReasoning, ContextLength: 2048},
			{Name: "openai/gpt-oss-20b", ContextLength: 8192},
		}},
		{Node: "gpu2", Name: "b:11434", Kind: "ollama", Models: []engine.ServedModel{{Name: "vectors", Kind: rowmill.KindEmbedding, Dimension: 64}, {Name: "new"}}},
	}
	off := 1.5
	w.service.counting = map[string]TokenCounting{"gpt-oss-20b": {Exact: true, MeanError: &off}}
	all := w.get("/v1/models").want(200).json()["data"].([]any)
	found := map[string]map[string]any{}
	for _, m := range all {
		found[m.(map[string]any)["id"].(string)] = m.(map[string]any)
	}
	if first := all[0].(map[string]any)["id"]; first != "gpt-oss-20b" {
		t.Errorf("the first is %v", first)
	}
	for id, want := range map[string]map[string]any{
		"gpt-oss-20b": {"kind": "reasoning", "context_length": 8192.0, "input_price": 0.05, "counted": "exact", "count_error": 1.5, "problem": nil},
		"own":         {"kind": "reasoning", "context_length": 2048.0, "input_price": nil, "output_price": nil, "counted": "server", "count_error": nil, "dimension": nil},
		"vectors":     {"kind": "embedding", "context_length": nil, "dimension": 64.0, "counted": "estimated"},
		"new":         {"kind": nil, "counted": "estimated"},
	} {
		for name, value := range want {
			if found[id][name] != value {
				t.Errorf("%s: %s is %v, want %v", id, name, found[id][name], value)
			}
		}
	}
	if by := found["own"]["served_by"].([]any)[0].(map[string]any); by["node"] != "gpu1" || by["engine"] != "a:8000" || by["model"] != "own" {
		t.Errorf("own is served by %v", by)
	}
	if found["new"]["problem"] == nil || len(found["llama-3.1-8b"]["served_by"].([]any)) != 0 {
		t.Errorf("new %v, llama %v", found["new"], found["llama-3.1-8b"])
	}
	// A submission accepts every name in the list.
	for _, name := range []string{"own", "acme/Own-7B", "openai/gpt-oss-20b"} {
		w.post(`{"inputs":["a"],"model":"` + name + `"}`).want(200)
	}
	w.post(`{"inputs":["a"],"model":"new"}`).wantError(503, "model_not_ready", "try again in a few seconds")
	w.post(`{"inputs":["a"],"model":"owm"}`).wantField("model", `did you mean "own"?`)
}
