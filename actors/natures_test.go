package actors_test

import (
	"fmt"
	"testing"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/internal/wait"
)

// A node finds out what the models of its server do, by one row of each, and the
// others hear of it: they take the submissions. What is known is not asked.
func TestNodesHearWhatAModelDoes(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		b, net := setup(t, nil), newNetwork()
		e := &scripted{answer: echo} // which embeds whatever it is sent
		b.join(net, "gpu", e, func(c *actors.Config) {
			c.Servers.Known = func(m engine.ServedModel) bool { return m.Name == "embedder" }
		})
		api := b.join(net, "api", nil)
		wait.Until(t, func() error {
			for _, n := range api.system.Nodes() {
				for _, s := range n.Servers {
					if m := s.Models[0]; n.Name == "gpu" && m.Name == "writer" && m.Kind == rowmill.KindEmbedding && m.Dimension == 2 && s.Models[1].Kind == "" {
						return nil
					}
				}
			}
			return fmt.Errorf("the nodes are %+v", api.system.Nodes())
		})
		if n := e.calls.Load(); n != 1 {
			t.Errorf("%d rows were sent to find that out", n)
		}
	})
}
