package nodes

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/cmd/rowmill/connect"
	"github.com/rowmill/rowmill/engine/served"
	apinodes "github.com/rowmill/rowmill/http/nodes"
	"github.com/rowmill/rowmill/internal/clitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A fleet is a service of several nodes. A draining node is listed lingers more times
// and has then left.
type fleet struct {
	clitest.IdleService
	mu       sync.Mutex
	nodes    []client.Node
	servers  []served.Server
	lingers  int
	draining map[string]int // by id, how many more times it is listed

	output []string           // output of the only server, in parts
	parts  []apinodes.LogPart // requested parts
}

func (f *fleet) Nodes(context.Context) []client.Node {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id := range f.draining {
		if f.draining[id]--; f.draining[id] < 0 {
			f.nodes = slices.DeleteFunc(f.nodes, func(n client.Node) bool { return n.ID == id })
			delete(f.draining, id)
		}
	}
	return slices.Clone(f.nodes)
}

func (f *fleet) Servers() []served.Server { return f.servers }

func (f *fleet) DrainNode(_ context.Context, id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.ContainsFunc(f.nodes, func(n client.Node) bool { return n.ID == id }) {
		return rowmill.ErrNotFound
	}
	f.draining[id] = f.lingers
	return nil
}

// A program is the commands with a service.
type program struct {
	*clitest.Program
	fleet *fleet
}

func start(t *testing.T) *program {
	t.Helper()
	since := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	p := &program{fleet: &fleet{draining: map[string]int{}, nodes: []client.Node{
		{ID: "gpu1-a", Name: "gpu1", Role: apinodes.NodeBoth, State: apinodes.NodeRunning, URL: "http://10.0.0.1:8088", Version: "v1", Models: []string{"m1", "m2", "m3", "m4", "m5", "m6", "m7"}, Jobs: 3, Window: 1024, InFlight: 17, Since: &since},
		{ID: "gpu2-b", Name: "gpu2", Self: true, Role: apinodes.NodeEngines, State: apinodes.NodeDraining, URL: "http://10.0.0.2:8088", Version: "v1"},
		{ID: "twin-c", Name: "twin", Role: apinodes.NodeAPI, State: apinodes.NodeRunning, Models: []string{"\x1b[31m"}},
		{ID: "twin-d", Name: "twin", Role: apinodes.NodeAPI, State: apinodes.NodeRunning},
	}}}
	p.Program = clitest.Start(t, clitest.Config{
		Commands: func(service connect.Options) []*cobra.Command {
			return []*cobra.Command{Command(service), Models(service), Servers(service)}
		},
		Service: p.fleet,
	})
	return p
}

func TestList(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.Run("nodes list").WantOutput(0).WantTable(
		"NODE ID ADDRESS ROLE VERSION MODELS JOBS ROWS SINCE",
		"gpu1 gpu1-a http://10.0.0.1:8088 both v1 m1, m2, m3, m4, m5 and 2 more 3 17/1,024 2026-11-21T12:00:00Z",
		"gpu2* gpu2-b http://10.0.0.2:8088 engines, draining v1 - 0 0/0 -",
		"twin twin-c - api - [31m 0 0/0 -",
		"twin twin-d - api - - 0 0/0 -",
	)
	p.Run("nodes list -o json").WantOutput(0, `"id": "gpu1-a"`, `"in_flight": 17`)
	p.Run("nodes list -o xml").WantOutput(2, "table or json")
}

func TestDrainWaitsUntilTheNodeHasLeft(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.fleet.lingers = 2
	p.Run("nodes drain gpu1").WantOutput(0, "node gpu1-a drains", "node gpu1-a has left")
	if p.Run("nodes list").WantOutput(0); strings.Count(p.Out.String(), "\n") != 4 {
		t.Errorf("it has not left:\n%s", p.Out.String())
	}
	p.Run("nodes drain").WantOutput(0, "node gpu2-b has left") // the node that answers
	p.Run("nodes drain twin-d").WantOutput(0, "node twin-d has left")
}

func TestDrainGivesUpWaiting(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.fleet.lingers = 1 << 30
	p.Run("nodes drain gpu1 --wait 10ms").WantOutput(7, "node gpu1-a has not left within 10ms")
	p.Run("nodes drain gpu1 --wait 0").WantOutput(0, "node gpu1-a drains")
}

func TestDrainRefusals(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.Run("nodes drain gpu9").WantOutput(5, `no live node "gpu9"`)
	p.Run("nodes drain twin").WantOutput(2, "2 nodes are called", "twin-c, twin-d")
	if len(p.fleet.draining) > 0 {
		t.Errorf("told to drain: %v", p.fleet.draining)
	}
}
