package openai_test

import (
	"context"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine/enginetest"
	"github.com/rowmill/rowmill/engine/openai"
	"github.com/rowmill/rowmill/engine/sim"
	"github.com/rowmill/rowmill/internal/must"
)

func TestSim(t *testing.T) {
	t.Parallel()
	enginetest.Run(t, func(t *testing.T) enginetest.Server {
		generation := &rowmill.Model{ID: "tell", Kind: rowmill.KindGeneration, ContextLength: 4096}
		reasoning := &rowmill.Model{ID: "ponder", Kind: rowmill.KindReasoning, ContextLength: 4096}
		embedding := &rowmill.Model{ID: "place", Kind: rowmill.KindEmbedding, ContextLength: 512, Dimension: 96}
		server, err := sim.New(sim.Config{
			Models:  []rowmill.Model{*generation, *reasoning, *embedding},
			Profile: sim.LatencyProfile{TimeToFirstToken: 200 * time.Microsecond, TimePerToken: 20 * time.Microsecond, Slots: 64},
		})
		must.Succeed(t, err)
		must.Succeed(t, server.Start(t.Context(), "127.0.0.1:0"))
		t.Cleanup(func() {
			if err := server.Stop(context.Background()); err != nil {
				t.Errorf("stop: %v", err)
			}
		})
		e, err := openai.New(openai.Config{BaseURL: server.URL()})
		must.Succeed(t, err)
		info, err := e.Probe(t.Context())
		if err != nil || info.Kind != "rowmill-sim" || !info.Simulated || info.Slots != 64 {
			t.Errorf("probe: %+v, %v", info, err)
		}
		return enginetest.Server{Engine: e, Generation: generation, Reasoning: reasoning, Embedding: embedding, Cancels: true, Counts: true, Forms: []string{"regex", "choice"}, AcceptedParams: acceptedBy("vllm"), RefusedParams: map[string]any{"temperature": -1.0}}
	})
}
