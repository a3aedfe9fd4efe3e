package catalog

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
)

func TestDefault_HoldsEveryModelOfTheInterface(t *testing.T) {
	t.Parallel()
	want := map[string]rowmill.Kind{
		"gpt-oss-20b":               rowmill.KindReasoning,
		"llama-3.1-8b":              rowmill.KindGeneration,
		"qwen-3-14b-thinking":       rowmill.KindReasoning,
		"qwen-3-32b-thinking":       rowmill.KindReasoning,
		"qwen-3-30b-a3b":            rowmill.KindGeneration,
		"qwen-3-235b-a22b":          rowmill.KindGeneration,
		"qwen-3-30b-a3b-thinking":   rowmill.KindReasoning,
		"qwen-3-235b-a22b-thinking": rowmill.KindReasoning,
		"qwen-3-embedding-0.6b":     rowmill.KindEmbedding,
		"gemma-3-12b-it":            rowmill.KindGeneration,
	}
	got := map[string]rowmill.Kind{}
	for _, m := range Default().All() {
		got[m.ID] = m.Kind
		if len(m.EngineNames) == 0 {
			t.Errorf("%s has no engine name", m.ID)
		}
		if want[m.ID] == "" {
			continue
		}
		if m.InputPrice <= 0 {
			t.Errorf("%s has no input price", m.ID)
		}
		if m.Tokenizer == "" || m.Template == "" {
			t.Errorf("%s has tokenizer %q and template %q", m.ID, m.Tokenizer, m.Template)
		}
	}
	for id, kind := range want {
		if got[id] != kind {
			t.Errorf("%s is %q, want %s", id, got[id], kind)
		}
	}
	m, found := Default().Find("qwen-3-embedding-0.6b")
	if !found || m.Dimension != 1024 {
		t.Errorf("embedding model: found %t, dimension %d, want 1024", found, m.Dimension)
	}
	if _, found := Default().Find(DefaultModel); !found {
		t.Errorf("the default model %s is missing", DefaultModel)
	}
	if _, found := Default().Find("no-such"); found {
		t.Error("found a model that does not exist")
	}
}

func TestDefault_SamplingDefaultsOfTheInterface(t *testing.T) {
	t.Parallel()
	qwen := func(temperature, topP float64, maxTokens int64) map[string]any {
		return map[string]any{
			"temperature": temperature, "top_p": topP, "top_k": int64(20),
			"max_tokens": maxTokens, "repetition_penalty": 1.0,
		}
	}
	want := map[string]map[string]any{
		"gpt-oss-20b": {},
		"llama-3.1-8b": {
			"temperature": 0.75, "top_p": 1.0, "max_tokens": int64(4096), "repetition_penalty": 1.0,
		},
		"qwen-3-14b-thinking":       qwen(0.6, 0.95, 4096),
		"qwen-3-32b-thinking":       qwen(0.6, 0.95, 4096),
		"qwen-3-30b-a3b":            qwen(0.7, 0.8, 16384),
		"qwen-3-235b-a22b":          qwen(0.7, 0.8, 16384),
		"qwen-3-30b-a3b-thinking":   qwen(0.6, 0.95, 32768),
		"qwen-3-235b-a22b-thinking": qwen(0.6, 0.95, 32768),
		"gemma-3-12b-it": {
			"temperature": 0.95, "top_p": 0.95, "top_k": int64(64), "max_tokens": int64(4096), "repetition_penalty": 1.0,
		},
		"qwen-3-embedding-0.6b": {},
	}
	for _, m := range Default().All() {
		effective, warnings, err := MergeSampling(m, nil)
		if err != nil || len(warnings) > 0 {
			t.Errorf("%s: warnings %q, error %v", m.ID, warnings, err)
		}
		family := want[m.ID]
		if family == nil { // models outside the interface get the defaults of their family
			family = FamilyDefaults(m.ID, m.Kind)
		}
		if diff := cmp.Diff(family, effective); diff != "" {
			t.Errorf("%s (-want +got):\n%s", m.ID, diff)
		}
	}
}

// Current clients offer these models.
func TestDefault_HoldsClientModels(t *testing.T) {
	t.Parallel()
	for _, id := range []string{
		"embeddinggemma-300m", "qwen-3-embedding-0.6b", "qwen-3-embedding-4b", "qwen-3-embedding-8b",
		"qwen-3.5-2b", "qwen-3.5-2b-thinking", "qwen-3.5-27b", "qwen-3.5-27b-thinking",
		"qwen-3.5-35b-a3b", "qwen-3.5-35b-a3b-thinking", "qwen-3.5-122b-a10b", "qwen-3.5-122b-a10b-thinking",
		"gpt-oss-20b", "gpt-oss-120b", "gpt-oss-20b-no-thinking", "gpt-oss-120b-no-thinking",
		"nemotron-3-super-120b-a12b", "nemotron-3-super-120b-a12b-thinking", "nemotron-3-nano-30b-a3b", "nemotron-3-nano-30b-a3b-thinking",
		"gemma-4-31b-it", "gemma-4-31b-it-thinking", "gemma-4-26b-a4b-it", "gemma-4-26b-a4b-it-thinking", "gemma-3-12b-it",
	} {
		m, found := Default().Find(id)
		thinks := strings.HasSuffix(id, "-thinking") && !strings.HasSuffix(id, "-no-thinking") || id == "gpt-oss-20b" || id == "gpt-oss-120b"
		if !found || thinks != (m.Kind == rowmill.KindReasoning) {
			t.Errorf("%s: found %t, %q", id, found, m.Kind)
		}
	}
}

// Within one kind, each engine name belongs to one entry, so a served model has one
// price.
func TestDefault_EngineNameHasOneEntryPerKind(t *testing.T) {
	t.Parallel()
	for _, m := range Default().All() {
		for _, name := range m.EngineNames {
			for _, other := range Default().FindByEngineName(name) {
				if other.Kind == m.Kind && other.ID != m.ID {
					t.Errorf("%s is %s and %s", name, m.ID, other.ID)
				}
			}
		}
	}
}

// The defaults depend on the prefix of the name, not on the ids of the embedded
// catalog. The sampling of a file's entry overrides them.
func TestLoad_SamplingDefaultsOfTheFamily(t *testing.T) {
	t.Parallel()
	entry := func(id, kind, rest string) string {
		return "  - {id: " + id + ", kind: " + kind + ", context_length: 100000" + rest + "}\n"
	}
	c := must.Get(Load(strings.NewReader("models:\n" +
		entry("Llama-3.3-70b", "generation", "") +
		entry("llama-4-scout", "generation", ", sampling: {temperature: 0.1, top_p: null, min_p: 0.2}") +
		entry("qwen3-4b", "generation", "") +
		entry("qwen-3-next-thinking", "reasoning", "") +
		entry("qwen-3-embedding-8b", "embedding", ", dimension: 4096") +
		entry("qwen-2.5-7b", "generation", "") +
		entry("gemma-4-2b", "generation", ", sampling: {}") +
		entry("my-llama", "generation", ""))))(t)
	for id, want := range map[string]map[string]any{
		"Llama-3.3-70b":        {"temperature": 0.75, "top_p": 1.0, "max_tokens": int64(4096), "repetition_penalty": 1.0},
		"llama-4-scout":        {"temperature": 0.1, "min_p": 0.2, "max_tokens": int64(4096), "repetition_penalty": 1.0},
		"qwen3-4b":             {"temperature": 0.7, "top_p": 0.8, "top_k": int64(20), "max_tokens": int64(4096), "repetition_penalty": 1.0},
		"qwen-3-next-thinking": {"temperature": 0.6, "top_p": 0.95, "top_k": int64(20), "max_tokens": int64(4096), "repetition_penalty": 1.0},
		"qwen-3-embedding-8b":  {},
		"qwen-2.5-7b":          {},
		"gemma-4-2b":           {"temperature": 0.95, "top_p": 0.95, "top_k": int64(64), "max_tokens": int64(4096), "repetition_penalty": 1.0},
		"my-llama":             {},
	} {
		m, _ := c.Find(id)
		if diff := cmp.Diff(want, m.Sampling); diff != "" {
			t.Errorf("%s (-want +got):\n%s", id, diff)
		}
	}
	if got := FamilyDefaults("meta-llama/Llama-3.1-8B-Instruct", rowmill.KindGeneration); got["temperature"] != 0.75 {
		t.Errorf("defaults by the name of a server %v", got)
	}
}

func TestDefault_PlainAndThinkingShareAServer(t *testing.T) {
	t.Parallel()
	for _, pair := range [][2]string{
		{"qwen-3-30b-a3b", "qwen-3-30b-a3b-thinking"},
		{"qwen-3-235b-a22b", "qwen-3-235b-a22b-thinking"},
	} {
		for i, id := range pair {
			m, _ := Default().Find(id)
			plain, _ := Default().Find(pair[0])
			if m.EngineNames[0] != plain.EngineNames[0] {
				t.Errorf("%s does not share %s", id, plain.EngineNames[0])
			}
			want := map[string]any{"chat_template_kwargs": map[string]any{"enable_thinking": i == 1}}
			if diff := cmp.Diff(want, m.RequestExtras); diff != "" {
				t.Errorf("%s extras (-want +got):\n%s", id, diff)
			}
		}
	}
}

func TestLoad_NamesEntryAndField(t *testing.T) {
	t.Parallel()
	const good = "models:\n  - {id: a, kind: generation, context_length: 10, engine_names: [x]}\n"
	if _, err := Load(strings.NewReader(good)); err != nil {
		t.Fatalf("good file: %v", err)
	}
	entry := func(fields string) string { return "models:\n  - {" + fields + "}\n" }
	for name, c := range map[string]struct{ file, want string }{
		"empty file":             {"", "models: the list is empty"},
		"empty list":             {"models: []", "models: the list is empty"},
		"not YAML":               {"models: [", "parse models file"},
		"unknown field":          {entry("id: a, kind: generation, context_length: 10, speed: 3"), "field speed not found"},
		"bad id":                 {entry("id: 'a b', kind: generation, context_length: 10"), `models[0] (a b): id: "a b" must be`},
		"no id":                  {entry("kind: generation, context_length: 10"), "models[0] (without id): id:"},
		"twice":                  {good + "  - {id: a, kind: generation, context_length: 10}\n", "models[1] (a): id: is the id of models[0]"},
		"kind":                   {entry("id: a, kind: vision, context_length: 10"), `models[0] (a): kind: "vision" must be`},
		"context":                {entry("id: a, kind: generation, context_length: 1"), "models[0] (a): context_length: 1 must"},
		"no dimension":           {entry("id: a, kind: embedding, context_length: 10, dimension: -1"), "models[0] (a): dimension: -1 must be"},
		"extends":                {"extends: others\n" + good, `extends: "others" must be default`},
		"alias without a target": {"aliases: {b: ''}\n" + good, `aliases: "b" must have as its target`},
		"alias chain":            {"aliases: {b: c, c: a}\n" + good, `aliases: "b" has the target "c", which is an alias too`},
		"alias of an id":         {"aliases: {a: x}\n" + good, `aliases: "a" is the id of a model already`},
		"alias too long":         {"aliases: {" + strings.Repeat("a", 257) + ": a}\n" + good, "must be a name of 1 to 256 bytes"},
		"dimension":              {entry("id: a, kind: generation, context_length: 10, dimension: 4"), "models[0] (a): dimension: 4 is given"},
		"engine name":            {entry("id: a, kind: generation, context_length: 10, engine_names: ['']"), "models[0] (a): engine_names[0]: must not be empty"},
		"engine twice":           {entry("id: a, kind: generation, context_length: 10, engine_names: [x, x]"), "models[0] (a): engine_names[1]: \"x\" is listed twice"},
		"price":                  {entry("id: a, kind: generation, context_length: 10, input_price: -1"), "models[0] (a): input_price: -1 is negative"},
		"output price":           {entry("id: a, kind: generation, context_length: 10, output_price: -0.5"), "models[0] (a): output_price: -0.5 is negative"},
		"no price":               {entry("id: a, kind: generation, context_length: 10, output_price: .nan"), "models[0] (a): output_price: NaN is not a number"},
		"endless price":          {entry("id: a, kind: generation, context_length: 10, input_price: .inf"), "models[0] (a): input_price: +Inf is not a number"},
		"template":               {entry("id: a, kind: generation, context_length: 10, template: llama3"), `models[0] (a): template: "llama3" is not known: use one of chatml, `},
		"tokenizer":              {entry("id: a, kind: generation, context_length: 10, tokenizer: ../x.json"), `models[0] (a): tokenizer: "../x.json" must be the name`},
		"sampling name":          {entry("id: a, kind: generation, context_length: 10, sampling: {top_pp: 1}"), `models[0] (a): sampling.top_pp: is not a sampling parameter; did you mean "top_p"?`},
		"sampling value":         {entry("id: a, kind: generation, context_length: 10, sampling: {top_p: 2}"), "models[0] (a): sampling.top_p: must be a number above 0"},
		"embedding param":        {entry("id: a, kind: embedding, dimension: 3, context_length: 10, sampling: {top_p: 1}"), "models[0] (a): sampling: embedding models"},
		"too large":              {good + strings.Repeat("#", maxFileBytes), "larger than"},
	} {
		_, err := Load(strings.NewReader(c.file))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one containing %q", name, err, c.want)
		}
	}
}

func TestLoad_ReportsAllProblems(t *testing.T) {
	t.Parallel()
	_, err := Load(strings.NewReader("models:\n  - {id: a, kind: vision, context_length: 1}\n"))
	if err == nil || !strings.Contains(err.Error(), "kind") || !strings.Contains(err.Error(), "context_length") {
		t.Errorf("error %v, want both fields", err)
	}
}

func TestNearest(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{
		"llama-3-8b":    "llama-3.1-8b",
		"gpt-oss20b":    "gpt-oss-20b",
		"GPT-OSS-20B":   "gpt-oss-20b",
		"my-function":   "",
		"":              "",
		"qwen-3-30ba3b": "qwen-3-30b-a3b",
	} {
		if got := Default().Nearest(id); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", id, got, want)
		}
	}
}
