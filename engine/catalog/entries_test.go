package catalog

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
)

func load(t *testing.T, file string) *Catalog {
	t.Helper()
	c := must.Get(Load(strings.NewReader(file)))(t)
	return c
}

// An entry may omit the fields that servers report. Its sampling overrides the family's
// defaults once the kind is known, and null still removes a default.
func TestLoad_EntriesThatServersComplete(t *testing.T) {
	t.Parallel()
	c := load(t, "models:\n  - {id: my/Qwen3-4B, input_price: 1, sampling: {temperature: 0.1, top_k: null}}\n")
	m, found := c.Find("my/Qwen3-4B")
	if !found || m.Kind != "" || m.ContextLength != 0 {
		t.Fatalf("found %t, %+v", found, m)
	}
	for kind, want := range map[rowmill.Kind]map[string]any{
		rowmill.KindGeneration: {"temperature": 0.1, "top_p": 0.8, "max_tokens": int64(4096), "repetition_penalty": 1.0},
		rowmill.KindReasoning:  {"temperature": 0.1, "top_p": 0.95, "max_tokens": int64(4096), "repetition_penalty": 1.0},
		rowmill.KindEmbedding:  {},
	} {
		whole := WithKind(m, kind, m.ID)
		if diff := cmp.Diff(want, whole.Sampling); diff != "" || whole.Kind != kind {
			t.Errorf("%s (-want +got):\n%s", kind, diff)
		}
	}
	if again, _ := c.Find("my/Qwen3-4B"); len(again.Sampling) != 2 {
		t.Errorf("the entry has changed: %v", again.Sampling)
	}
}

// No price differs from a price of 0. One of the two prices is enough.
func TestLoad_Prices(t *testing.T) {
	t.Parallel()
	c := load(t, "models:\n  - {id: none}\n  - {id: free, input_price: 0}\n  - {id: half, output_price: 2}\n")
	for id, want := range map[string]bool{"none": true, "free": false, "half": false} {
		if m, _ := c.Find(id); m.NoPrice != want {
			t.Errorf("%s: no price %t, want %t", id, m.NoPrice, want)
		}
	}
}

func TestLoad_ExtendsTheDefault(t *testing.T) {
	t.Parallel()
	c := load(t, "extends: default\naliases: {cheap: org/Served}\nmodels:\n  - {id: llama-3.1-8b, input_price: 9}\n  - {id: mine, engine_names: [org/Served]}\n")
	if len(c.All()) != len(Default().All())+1 {
		t.Errorf("%d models, want one more than the default's %d", len(c.All()), len(Default().All()))
	}
	if m, _ := c.Find("llama-3.1-8b"); m.InputPrice != 9 || m.Kind != "" {
		t.Errorf("the file's entry does not replace the default's: %+v", m)
	}
	if m, found := c.Find(DefaultModel); !found || m.Kind != rowmill.KindReasoning {
		t.Errorf("the default model: %t, %+v", found, m)
	}
	if c.ResolveAlias("cheap") != "org/Served" || c.ResolveAlias("mine") != "mine" {
		t.Errorf("cheap is %q, mine %q", c.ResolveAlias("cheap"), c.ResolveAlias("mine"))
	}
	if called := c.FindByEngineName("org/Served"); len(called) != 1 || called[0].ID != "mine" {
		t.Errorf("ByEngineName(org/Served) = %v", called)
	}
	if only := load(t, "extends: default\n"); len(only.All()) != len(Default().All()) {
		t.Errorf("%d models of a file without any", len(only.All()))
	}
}

// Two entries may list the same engine name. The first entry of the file comes first.
func TestByEngineName_InTheOrderOfTheFile(t *testing.T) {
	t.Parallel()
	var ids []string
	for _, m := range Default().FindByEngineName("Qwen/Qwen3-30B-A3B") {
		ids = append(ids, m.ID)
	}
	if diff := cmp.Diff([]string{"qwen-3-30b-a3b", "qwen-3-30b-a3b-thinking"}, ids); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if called := Default().FindByEngineName("unknown/model"); len(called) != 0 {
		t.Errorf("ByEngineName(unknown/model) = %v", called)
	}
}

func TestHasReasoningName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"Qwen/Qwen3-4B-Thinking-2507": true, "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B": true, "deepseek-ai/DeepSeek-R1": true,
		"openai/gpt-oss-120b": true, "microsoft/Phi-4-reasoning": true, "Qwen/QwQ-32B": true,
		"meta-llama/Llama-3.1-8B-Instruct": false, "my-model": false, "r1": false,
	} {
		if got := HasReasoningName(name); got != want {
			t.Errorf("%s: %t, want %t", name, got, want)
		}
	}
}
