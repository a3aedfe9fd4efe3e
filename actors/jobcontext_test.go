package actors

import (
	"strings"
	"testing"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/internal/shard"
	"github.com/rowmill/rowmill/store"
)

func TestPin(t *testing.T) {
	t.Parallel()
	tokens := func(n int) map[string]any { return map[string]any{"max_tokens": float64(n)} }
	serving := func(contexts ...int) (out []engineView) {
		for _, n := range contexts {
			out = append(out, engineView{up: true, info: engine.ServerInfo{Models: []engine.ServedModel{{Name: "m", ContextLength: n}}}})
		}
		return out
	}
	for _, test := range []struct {
		name       string
		catalog    int
		model, job map[string]any
		engines    []engineView
		context    int
		maxTokens  int
		prompt     int
		warns      bool
		fails      bool
	}{
		{name: "the catalog's", catalog: 4096, model: tokens(100), engines: serving(0), context: 4096, maxTokens: 100, prompt: 3995},
		{name: "the smallest of all", catalog: 4096, model: tokens(100), engines: serving(8192, 2048, 3000), context: 2048, maxTokens: 100, prompt: 1947},
		{name: "one that is down does not count", catalog: 4096, model: tokens(100), engines: append(serving(2048), engineView{info: engine.ServerInfo{Models: []engine.ServedModel{{Name: "m", ContextLength: 512}}}}), context: 2048, maxTokens: 100, prompt: 1947},
		{name: "no context is known", model: tokens(100), engines: serving(0), maxTokens: 100},
		{name: "the default leaves no room", model: tokens(4096), engines: serving(1000), context: 1000, maxTokens: 500, prompt: 499, warns: true},
		{name: "the caller's leaves no room", model: tokens(100), job: tokens(1000), engines: serving(1000), context: 1000, fails: true},
	} {
		spec := rowmill.Spec{Model: rowmill.Model{ID: "m", Kind: rowmill.KindGeneration, ContextLength: test.catalog, Sampling: test.model}, Sampling: test.model}
		if test.job != nil {
			spec.Sampling = test.job
		}
		rec := &store.Record{Job: rowmill.Job{ID: "job-1"}, Spec: spec}
		j, err := newJobContext(t.Context(), Config{}.WithDefaults(), rec, store.Fence{}, shard.Manifest{}, nil)
		if err != nil {
			t.Fatal(test.name, err)
		}
		warning, failure := j.pinContextLength(test.engines)
		if (warning != "") != test.warns || (failure != nil) != test.fails {
			t.Errorf("%s: warning %q, failure %v", test.name, warning, failure)
		}
		if failure != nil {
			if failure.Code != rowmill.CodeRowTooLong || !strings.Contains(failure.Message, "Lower max_tokens.") {
				t.Errorf("%s: %+v", test.name, failure)
			}
			continue
		}
		if j.context != test.context || j.maxTokens != test.maxTokens || j.promptLimit() != test.prompt {
			t.Errorf("%s: a context of %d, answers of %d, prompts of %d", test.name, j.context, j.maxTokens, j.promptLimit())
		}
		if sent := j.sampling()["max_tokens"]; sent != int64(test.maxTokens) || j.matchesSampling(spec.Sampling) == test.warns || !j.matchesSampling(j.sampling()) {
			t.Errorf("%s: max_tokens %v is sent, which differs from the job's own: %v", test.name, sent, !j.matchesSampling(spec.Sampling))
		}
	}
}
