package nodes

import (
	"bytes"
	"context"
	"fmt"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob/dir"
	"github.com/rowmill/rowmill/catalog"
	"github.com/rowmill/rowmill/cmd/rowmill/connect"
	"github.com/rowmill/rowmill/cmd/rowmill/exit"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
	"github.com/rowmill/rowmill/http"
	"github.com/rowmill/rowmill/store/bolt"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A fleet is a service of several nodes; one that was told to drain
// is listed so many times more, lingers, and has left.
type fleet struct {
	mu       sync.Mutex
	nodes    []http.Node
	lingers  int
	draining map[string]int // by id, how often it is still listed
}

func (f *fleet) Nodes(context.Context) []http.Node {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id := range f.draining {
		if f.draining[id]--; f.draining[id] < 0 {
			f.nodes = slices.DeleteFunc(f.nodes, func(n http.Node) bool { return n.ID == id })
			delete(f.draining, id)
		}
	}
	return slices.Clone(f.nodes)
}

func (f *fleet) DrainNode(_ context.Context, id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.ContainsFunc(f.nodes, func(n http.Node) bool { return n.ID == id }) {
		return rowmill.ErrNotFound
	}
	f.draining[id] = f.lingers
	return nil
}

func (*fleet) Submitted(string)                    {}
func (*fleet) Cancelled(string)                    {}
func (*fleet) Checks(context.Context) []http.Check { return nil }
func (*fleet) Draining() bool                      { return false }

// A program is the commands beside a service.
type program struct {
	testing.TB
	fleet  *fleet
	server *httptest.Server
}

func start(t *testing.T) *program {
	t.Helper()
	since := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	p := &program{TB: t, fleet: &fleet{draining: map[string]int{}, nodes: []http.Node{
		{ID: "gpu1-a", Name: "gpu1", Role: http.NodeBoth, State: http.NodeRunning, URL: "http://10.0.0.1:8088", Version: "v1", Models: []string{"m1", "m2", "m3", "m4", "m5", "m6", "m7"}, Jobs: 3, Window: 1024, InFlight: 17, Since: &since},
		{ID: "gpu2-b", Name: "gpu2", Self: true, Role: http.NodeEngines, State: http.NodeDraining, URL: "http://10.0.0.2:8088", Version: "v1"},
		{ID: "twin-c", Name: "twin", Role: http.NodeAPI, State: http.NodeRunning, Models: []string{"\x1b[31m"}},
		{ID: "twin-d", Name: "twin", Role: http.NodeAPI, State: http.NodeRunning},
	}}}
	store, err := bolt.Open(t.Context(), bolt.Config{Path: filepath.Join(t.TempDir(), "records.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	bucket, err := dir.Open(dir.Config{Root: t.TempDir(), NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { bucket.Close() })
	api, err := http.New(http.Config{Store: store, Bucket: bucket, Catalog: catalog.Default(), Service: p.fleet, AdminKey: "administrator"})
	if err != nil {
		t.Fatal(err)
	}
	p.server = httptest.NewServer(api.Handler())
	t.Cleanup(p.server.Close)
	return p
}

// run runs a command line and wants its exit code and texts of its output. It
// returns standard output, blanks between columns made one.
func (p *program) run(line string, code int, texts ...string) []string {
	p.Helper()
	var out, errs bytes.Buffer
	service := connect.Options{Term: &terminal.IO{
		In: strings.NewReader(""), Out: &out, Err: &errs, Width: func() int { return 80 },
		Environ: []string{"ROWMILL_SERVER=" + p.server.URL, "ROWMILL_API_KEY=administrator"},
	}}
	root := &cobra.Command{Use: "rowmill", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(Command(service))
	root.SetArgs(strings.Fields(line))
	root.SetOut(&out)
	root.SetErr(&errs)
	err := root.ExecuteContext(p.Context())
	if err != nil {
		fmt.Fprintln(&errs, err)
	}
	if got := exit.Code(err); got != code {
		p.Errorf("%s: code %d, want %d: %s", line, got, code, errs.String())
	}
	for _, text := range texts {
		if !strings.Contains(out.String()+errs.String(), text) {
			p.Errorf("%s lacks %q:\n%s%s", line, text, out.String(), errs.String())
		}
	}
	var lines []string
	for line := range strings.Lines(out.String()) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return lines
}

func TestList(t *testing.T) {
	t.Parallel()
	p := start(t)
	want := []string{
		"NODE ID ADDRESS ROLE VERSION MODELS JOBS ROWS SINCE",
		"gpu1 gpu1-a http://10.0.0.1:8088 both v1 m1, m2, m3, m4, m5 and 2 more 3 17/1,024 2026-11-21T12:00:00Z",
		"gpu2* gpu2-b http://10.0.0.2:8088 engines, draining v1 - 0 0/0 -",
		"twin twin-c - api - [31m 0 0/0 -",
		"twin twin-d - api - - 0 0/0 -",
	}
	if got := p.run("nodes list", 0); !slices.Equal(got, want) {
		t.Errorf("printed\n%s", strings.Join(got, "\n"))
	}
	p.run("nodes list -o json", 0, `"id": "gpu1-a"`, `"in_flight": 17`)
	p.run("nodes list -o xml", 2, "table or json")
}

func TestDrainWaitsUntilTheNodeHasLeft(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.fleet.lingers = 2
	p.run("nodes drain gpu1", 0, "node gpu1-a drains", "node gpu1-a has left")
	if got := p.run("nodes list", 0); len(got) != 4 {
		t.Errorf("it has not left: %q", got)
	}
	p.run("nodes drain", 0, "node gpu2-b has left") // the one that answers
	p.run("nodes drain twin-d", 0, "node twin-d has left")
}

func TestDrainGivesUpWaiting(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.fleet.lingers = 1 << 30
	p.run("nodes drain gpu1 --wait 10ms", 7, "node gpu1-a has not left within 10ms")
	p.run("nodes drain gpu1 --wait 0", 0, "node gpu1-a drains")
}

func TestDrainRefusals(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.run("nodes drain gpu9", 5, `no live node "gpu9"`)
	p.run("nodes drain twin", 2, "2 nodes are called", "twin-c, twin-d")
	if len(p.fleet.draining) > 0 {
		t.Errorf("told to drain: %v", p.fleet.draining)
	}
}
