package openai

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/rowmill/rowmill/engine"
)

// probeTEI probes a server of Text Embeddings Inference (TEI). TEI has no /v1/models.
// It serves one model, which its /info describes
// (huggingface/text-embeddings-inference, struct Info). ok is false if the server is
// not TEI.
func (e *Engine) probeTEI(ctx context.Context) (info engine.ServerInfo, found probeFacts, ok bool, err error) {
	var said struct {
		Model   lenientJSON[string]                     `json:"model_id"`
		Type    lenientJSON[map[string]json.RawMessage] `json:"model_type"` // "embedding", "classifier" or "reranker"
		Longest lenientJSON[float64]                    `json:"max_input_length"`
		Cuts    lenientJSON[bool]                       `json:"auto_truncate"`
		Version lenientJSON[string]                     `json:"version"`
		Commit  lenientJSON[string]                     `json:"model_sha"`
	}
	if !e.fetchJSON(ctx, "/info", &said) || printableOrEmpty(said.Model.value, maxName) == "" || said.Type.value == nil {
		return info, found, false, nil
	}
	if _, embeds := said.Type.value["embedding"]; !embeds {
		return info, found, true, fmt.Errorf("the server runs %s, which is not an embedding model", said.Model.value)
	}
	if health, err := e.fetchPath(ctx, "/health"); err != nil {
		return info, found, true, err
	} else if health.status != http.StatusOK {
		return info, found, true, fmt.Errorf("the server is not ready: /health answered HTTP %d", health.status)
	}
	name := said.Model.value
	info = engine.ServerInfo{Kind: kindTEI, Version: printableOrEmpty(said.Version.value, maxName), Models: []engine.ServedModel{{Name: name, ContextLength: wholeOrZero(said.Longest), Revision: shortRevision(said.Commit.value)}}}
	found = probeFacts{able: map[string]abilitySet{name: embeds}, cuts: said.Cuts.value}
	dropImplausible(&info, &found)
	addModelDetails(&info, found, listedModels{{ID: said.Model}})
	return info, found, true, nil
}
