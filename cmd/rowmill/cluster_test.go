package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/cmd/rowmill/settings"
	apinodes "github.com/rowmill/rowmill/http/nodes"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/port"
	"github.com/rowmill/rowmill/internal/redistest"
	"github.com/rowmill/rowmill/internal/s3test"
	"github.com/rowmill/rowmill/internal/wait"
)

// freeAddress returns an address of this machine, for TCP and UDP, that no other test
// gets.
func freeAddress(t *testing.T) string { t.Helper(); return port.ReserveForTest(t).Address }

const clusterKey = "an-administrator-key"

// A node without engines owns the jobs, and another node runs their rows.
func TestClusterOfTwoRoles(t *testing.T) {
	t.Parallel()
	records, objects := redistest.Start(t), s3test.Start(t)
	first := freeAddress(t)
	member := func(name, listen string, change func(*settings.Settings)) *NodeProcess {
		return prepare(t, filepath.Join(t.TempDir(), "unused"), func(s *settings.Settings) {
			s.APIKey = clusterKey
			s.Store.URL = settings.Secret(records.URL())
			s.Objects = settings.ObjectStorage{
				URL: "s3://" + objects.Bucket + "/mill", Endpoint: objects.Endpoint,
				AccessKey: settings.Secret(objects.AccessKey), SecretKey: settings.Secret(objects.SecretKey),
			}
			s.Cluster.Node, s.Cluster.Listen, s.Cluster.PeerListen, s.Cluster.Join = name, listen, "127.0.0.1:0", []string{first}
			change(s)
			must.Succeed(t, s.Validate())
		})
	}
	web := member("web", first, func(s *settings.Settings) {
		s.Cluster.Role, s.Simulator.Enabled = settings.APIOnly, settings.Auto
	})
	gpu := member("gpu", freeAddress(t), func(s *settings.Settings) { s.Cluster.Role = settings.EnginesOnly })
	for _, m := range []*NodeProcess{web, gpu} {
		must.Succeed(t, m.Run(t.Context()))
		t.Cleanup(func() { stop(t, m) })
		if _, err := os.Stat(m.Settings.Data); err == nil {
			t.Error("a data directory was made that nothing is in")
		}
	}
	list := func(m *NodeProcess) (nodes map[string]client.Node) {
		_, out, _ := runCommand(t.Context(), environ(m, clusterKey), "", "nodes", "list", "-o", "json")
		var doc struct{ Nodes []client.Node }
		if err := json.Unmarshal([]byte(out), &doc); err != nil {
			t.Fatal(err, out)
		}
		nodes = map[string]client.Node{}
		for _, n := range doc.Nodes {
			nodes[n.Name] = n
		}
		return nodes
	}
	wait.For(t, "both list both", func() bool {
		a, b := list(web), list(gpu)
		return len(a) == 2 && len(b) == 2 && len(a["gpu"].Models) > 0
	})
	nodes := list(gpu)
	if n := nodes["web"]; n.Role != apinodes.NodeAPI || n.Self || n.URL != web.Listeners.URL || n.Window != 0 {
		t.Errorf("web is listed as %+v", n)
	}
	if n := nodes["gpu"]; n.Role != apinodes.NodeEngines || !n.Self || n.Window == 0 || n.Version != readBuildMetadata().Version {
		t.Errorf("gpu is listed as %+v", n)
	}
	_, text := readiness(t, web)
	for _, want := range []string{
		"[+] records: at " + records.URL(), "[+] objects: at s3://rowmill/mill at " + objects.Endpoint, "[+] engines: none: rows run on other nodes",
		"[+] node " + nodes["gpu"].ID + ": role engines, running", "[+] node " + nodes["web"].ID, "without TLS",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("readyz lacks %q:\n%s", want, text)
		}
	}

	const rows = 300
	var input strings.Builder
	for i := range rows {
		fmt.Fprintf(&input, "number %d\n", i)
	}
	output := filepath.Join(t.TempDir(), "out.json")
	code, _, said := runCommand(t.Context(), environ(web, clusterKey), input.String(), "jobs", "submit", "-", "--format", "json", "--output", output)
	if code != 0 {
		t.Fatalf("code %d:\n%s", code, said)
	}
	var got struct{ Outputs []string }
	if content, err := os.ReadFile(output); err != nil || json.Unmarshal(content, &got) != nil || len(got.Outputs) != rows {
		t.Errorf("%d outputs, error %v", len(got.Outputs), err)
	}
	code, _, said = runCommand(t.Context(), environ(gpu, clusterKey), "one\n", "jobs", "submit", "-", "--detach")
	if code == 0 || !strings.Contains(said, "send the request to "+web.Listeners.URL) {
		t.Errorf("a node that takes no jobs: code %d:\n%s", code, said)
	}

	// Any node forwards a drain command to the node that it names.
	code, _, said = runCommand(t.Context(), environ(web, clusterKey), "", "nodes", "drain", "gpu", "--wait", "0")
	if code != 0 {
		t.Fatalf("code %d:\n%s", code, said)
	}
	<-gpu.Pipeline.DrainRequested()
	stop(t, gpu)
	wait.For(t, "gpu has left", func() bool { return len(list(web)) == 1 })
}
