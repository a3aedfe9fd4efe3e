package served

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/engine/catalog"
	"github.com/rowmill/rowmill/internal/must"
)

const file = `
aliases: {small: acme/Own, gone: nowhere, short: whole}
models:
  - {id: whole, kind: generation, context_length: 1000, engine_names: [org/Whole], input_price: 1, output_price: 2}
  - {id: both, kind: generation, context_length: 500, engine_names: [org/Both], request_extras: {think: false}}
  - {id: both-thinking, kind: reasoning, context_length: 500, engine_names: [org/Both], request_extras: {think: true}}
  - {id: left-out, engine_names: [org/Left-Out], sampling: {temperature: 0.5}}
  - {id: vectors, kind: embedding}
`

// models returns the models of the file and of servers.
func models(t *testing.T, servers ...Server) *Models {
	t.Helper()
	c := must.Get(catalog.Load(strings.NewReader(file)))(t)
	return New(c, func() []Server { return servers })
}

func server(node string, served ...engine.ServedModel) Server {
	return Server{Node: node, Name: node + ":8000", Kind: "vllm", Models: served}
}

func TestFind(t *testing.T) {
	t.Parallel()
	o := models(t,
		server("a",
			engine.ServedModel{Name: "own", Origin: "acme/Own", Kind: rowmill.KindGeneration, ContextLength: 4096},
			engine.ServedModel{Name: "org/Both", Kind: rowmill.KindReasoning, ContextLength: 300},
			engine.ServedModel{Name: "renamed", Origin: "org/Whole", ContextLength: 800},
			engine.ServedModel{Name: "org/Left-Out", Kind: rowmill.KindReasoning, ContextLength: 700},
			engine.ServedModel{Name: "Qwen/Qwen3-4B", Kind: rowmill.KindReasoning},
			engine.ServedModel{Name: "my-llama", Origin: "meta-llama/Llama-3.2-1B", Kind: rowmill.KindGeneration},
			engine.ServedModel{Name: "vectors", Kind: rowmill.KindEmbedding, Dimension: 64, ContextLength: 512},
			engine.ServedModel{Name: "tagged:latest", Kind: rowmill.KindGeneration, ContextLength: 128},
			engine.ServedModel{Name: "whole:latest", ContextLength: 128},
		),
		server("b",
			engine.ServedModel{Name: "acme/Own", Kind: rowmill.KindGeneration, ContextLength: 2048},
			engine.ServedModel{Name: "Qwen/Qwen3-4B", Kind: rowmill.KindGeneration},
		))
	llama := map[string]any{"temperature": 0.75, "top_p": 1.0, "max_tokens": int64(4096), "repetition_penalty": 1.0}
	qwen := map[string]any{"temperature": 0.6, "top_p": 0.95, "top_k": int64(20), "max_tokens": int64(4096), "repetition_penalty": 1.0}
	for name, want := range map[string]rowmill.Model{
		"whole":                   {ID: "whole", Kind: rowmill.KindGeneration, ContextLength: 1000, EngineNames: []string{"org/Whole"}, InputPrice: 1, OutputPrice: 2},
		"short":                   {ID: "whole", Kind: rowmill.KindGeneration, ContextLength: 1000, EngineNames: []string{"org/Whole"}, InputPrice: 1, OutputPrice: 2},
		"tagged":                  {ID: "tagged", Kind: rowmill.KindGeneration, ContextLength: 128, NoPrice: true},
		"tagged:latest":           {ID: "tagged:latest", Kind: rowmill.KindGeneration, ContextLength: 128, NoPrice: true},
		"org/Whole":               {ID: "org/Whole", Kind: rowmill.KindGeneration, ContextLength: 1000, InputPrice: 1, OutputPrice: 2},
		"renamed":                 {ID: "renamed", Kind: rowmill.KindGeneration, ContextLength: 1000, InputPrice: 1, OutputPrice: 2},
		"org/Both":                {ID: "org/Both", Kind: rowmill.KindReasoning, ContextLength: 500, RequestExtras: map[string]any{"think": true}, NoPrice: true},
		"left-out":                {ID: "left-out", Kind: rowmill.KindReasoning, ContextLength: 700, EngineNames: []string{"org/Left-Out"}, Sampling: map[string]any{"temperature": 0.5}, NoPrice: true},
		"own":                     {ID: "own", Kind: rowmill.KindGeneration, ContextLength: 4096, NoPrice: true},
		"acme/Own":                {ID: "acme/Own", Kind: rowmill.KindGeneration, ContextLength: 2048, NoPrice: true},
		"small":                   {ID: "acme/Own", Kind: rowmill.KindGeneration, ContextLength: 2048, NoPrice: true},
		"my-llama":                {ID: "my-llama", Kind: rowmill.KindGeneration, Sampling: llama, NoPrice: true},
		"meta-llama/Llama-3.2-1B": {ID: "meta-llama/Llama-3.2-1B", Kind: rowmill.KindGeneration, Sampling: llama, NoPrice: true},

		"Qwen/Qwen3-4B": {ID: "Qwen/Qwen3-4B", Kind: rowmill.KindReasoning, Sampling: qwen, NoPrice: true},
		"vectors":       {ID: "vectors", Kind: rowmill.KindEmbedding, Dimension: 64, ContextLength: 512, NoPrice: true},
	} {
		got, err := o.Find(name)
		if want.Sampling == nil {
			want.Sampling = map[string]any{}
		}
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
		if !o.HasModel(name) {
			t.Errorf("%s is not known", name)
		}
	}
	for name, near := range map[string]string{
		"": "", "acme/own": "acme/Own", "Left-Out": "left-out", "Qwen3-4B": "Qwen/Qwen3-4B", "something-else": "", "Whole": "whole", "meta-llama/Llama-3.2-1b": "meta-llama/Llama-3.2-1B",
	} {
		_, err := o.Find(name)
		var unknown *UnknownModelError
		if !errors.As(err, &unknown) || unknown.Near != near || o.HasModel(name) {
			t.Errorf("%q: %v, want it unknown and near %q", name, err, near)
		}
	}
}

// The error for an unknown name lists the available models, served models first.
func TestUnknownListsModels(t *testing.T) {
	t.Parallel()
	served := make([]engine.ServedModel, 12)
	for i := range served {
		served[i] = engine.ServedModel{Name: "served-" + string(rune('a'+i)), Kind: rowmill.KindGeneration}
	}
	_, err := models(t, server("a", append(served, engine.ServedModel{Name: "org/Whole"})...)).Find("something-else")
	want := `"something-else" is no model of this service; there are whole, served-a, served-b, served-c, served-d, served-e, served-f, served-g, served-h, served-i, served-j, served-k and 5 more (GET /v1/models lists all)`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// A model of unknown kind cannot be used yet. A model whose server refuses every row
// cannot be used at all.
func TestFind_Unsettled(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		model  string
		served []engine.ServedModel
		says   string
		soon   bool
	}{
		"an alias without a model": {"gone", nil, `is an alias of "nowhere"`, false},
		"not asked yet":            {"own", []engine.ServedModel{{Name: "own"}}, "try again in a few seconds", true},
		"refused":                  {"own", []engine.ServedModel{{Name: "own", Unusable: "no template"}}, "cannot be used: no template", false},
		"no server serves it":      {"left-out", nil, "without its kind, and no live server reports it", false},
		"without its dimension":    {"vectors", nil, "without its dimension", false},
		"dimension not known":      {"vectors", []engine.ServedModel{{Name: "vectors", Kind: rowmill.KindEmbedding}}, "try again", true},
	} {
		o := models(t, server("a", test.served...))
		_, err := o.Find(test.model)
		var unusable *UnusableModelError
		if !errors.As(err, &unusable) || unusable.Soon != test.soon || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v", name, err)
		}
		if !o.HasModel(test.model) {
			t.Errorf("%s: Known is false", name)
		}
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	o := models(t,
		server("a", engine.ServedModel{Name: "zebra"}, engine.ServedModel{Name: "own", Origin: "acme/Own", Kind: rowmill.KindGeneration}, engine.ServedModel{Name: "renamed", Origin: "org/Whole", ContextLength: 800}),
		server("b", engine.ServedModel{Name: "acme/Own", Kind: rowmill.KindGeneration}, engine.ServedModel{Name: "org/Both", ContextLength: 900}))
	type line struct {
		ID, Kind string
		Context  int
		Aliases  []string
		By       []string
		Problem  bool
	}
	var got []line
	for _, m := range o.List() {
		l := line{m.Model.ID, string(m.Model.Kind), m.Model.ContextLength, m.Aliases, nil, m.Problem != ""}
		for _, s := range m.Servers {
			l.By = append(l.By, s.Node+" "+s.Models[0].Name)
		}
		got = append(got, l)
	}
	want := []line{
		{"whole", "generation", 800, []string{"short"}, []string{"a renamed"}, false},
		{"both", "generation", 500, nil, []string{"b org/Both"}, false},
		{"both-thinking", "reasoning", 500, nil, []string{"b org/Both"}, false},
		{"left-out", "", 0, nil, nil, true},
		{"vectors", "embedding", 0, nil, nil, true},
		{"acme/Own", "generation", 0, []string{"small"}, []string{"a own", "b acme/Own"}, false},
		{"own", "generation", 0, nil, []string{"a own"}, false},
		{"zebra", "", 0, nil, []string{"a zebra"}, true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if empty := New(catalog.Default(), nil).List(); len(empty) != len(catalog.Default().All()) {
		t.Errorf("without servers the list has %d models", len(empty))
	}
}
