package actors

import (
	"testing"
	"time"

	"github.com/rowmill/rowmill/actors/nodes"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/internal/previous"
)

// TestStateOfThePreviousVersion holds that nodes of both versions read what
// they say of themselves.
func TestStateOfThePreviousVersion(t *testing.T) {
	t.Parallel()
	previous.Document(t, "testdata/previous/state.json", nodes.State{
		Version: "v", Since: time.Unix(1e9, 0).UTC(), Draining: true, Jobs: 3,
		Engines: []nodes.Engine{{
			Name: "http://h", Kind: "vllm", Simulated: true, Window: 5, InFlight: 6,
			Models: []engine.ServedModel{{Name: "m", ContextLength: 7}},
		}},
	})
}
