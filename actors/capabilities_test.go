package actors_test

import (
	"fmt"
	"testing"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/internal/wait"
)

// A node finds out the capabilities of its server's models, with one row for each
// model, and sends them to the other nodes, which take the submissions. A known
// model gets no row.
func TestNodesSendTheCapabilitiesOfModels(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		b, net := setup(t, nil), newNetwork()
		e := &scripted{answer: echo} // it embeds any text
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
