package nodes

import (
	"strings"
	"testing"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/engine/served"
)

func TestModels(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.fleet.servers = []served.Server{
		{Node: "gpu1", Name: "a:8000", Kind: "vllm", Counts: true, Models: []engine.ServedModel{
			{Name: "own\x1b[31m", Origin: "acme/Own-7B", Kind: rowmill.KindGeneration, ContextLength: 2048},
			{Name: "openai/gpt-oss-20b", ContextLength: 8192},
		}},
		{Node: "gpu2", Name: "b:8000", Kind: "ollama", Stopped: true, Models: []engine.ServedModel{{Name: "vectors", Kind: rowmill.KindEmbedding, Dimension: 64}, {Name: "new"}}},
	}
	p.Run("models list --served").WantOutput(0).WantTable(
		"MODEL KIND CONTEXT DIMENSION USD IN USD OUT COUNTED SERVED BY",
		"gpt-oss-20b reasoning 8,192 - 0.05 0.2 server gpu1/a:8000",
		"gpt-oss-20b-no-thinking generation 8,192 - 0.05 0.2 server gpu1/a:8000",
		"new - - - - - estimated gpu2/b:8000 (stopped)",
		"own [31m generation 2,048 - - - server gpu1/a:8000",
		"vectors embedding - 64 - - estimated gpu2/b:8000 (stopped)",
	)
	p.Run("models list").WantOutput(0)
	if lines := strings.Split(p.Out.String(), "\n"); !strings.HasPrefix(lines[6], "llama-3.1-8b ") {
		t.Errorf("after the served models comes %q", lines[6])
	}
	p.Run("models list -o json").WantOutput(0, `"id": "vectors"`, `"input_price": null`, `"problem": "\"new\" is served, and Rowmill is finding out`)
}
