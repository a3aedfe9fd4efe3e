package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill/internal/llama"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/port"
	"github.com/rowmill/rowmill/internal/redistest"
	"github.com/rowmill/rowmill/internal/s3test"
	"github.com/rowmill/rowmill/internal/wait"
)

// turnJobs is the number of jobs for servers that share a GPU. The jobs alternate between two
// models.
const turnJobs = 40

// A turnsTest runs jobs of two models on nodes whose GPU has memory for one server.
type turnsTest struct {
	models [2]string
	run    [2]string // commands of the servers
	extra  string
	nodes  []*servingNode
}

// TestServersTakeTurns runs jobs of two models on a GPU with memory for one of them: on one
// node and on two nodes, with simulated and real servers. Then it kills nodes.
func TestServersTakeTurns(t *testing.T) {
	t.Parallel()
	soak := os.Getenv("ROWMILL_SOAK") != ""
	kills := 3
	if soak {
		kills = 20
	}
	worlds := map[string]func(*testing.T) *turnsTest{
		"one node, llama-server": func(t *testing.T) *turnsTest { return newLlamaTurns(t, 1) },
		"two nodes, simulated":   func(t *testing.T) *turnsTest { return newSimulatedTurns(t, 2) },
	}
	if soak { // takes minutes
		worlds["two nodes, llama-server"] = func(t *testing.T) *turnsTest { return newLlamaTurns(t, 2) }
	}
	for name, start := range worlds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			start(t).jobsTakeTurns(t, kills)
		})
	}
}

func newSimulatedTurns(t *testing.T, nodes int) *turnsTest {
	t.Helper()
	w := &turnsTest{models: [2]string{"llama-3.1-8b", "qwen-3-14b"}}
	for i, model := range w.models {
		w.run[i] = fmt.Sprintf("%s sim --listen 127.0.0.1:{port} --startup-delay 300ms --slots 4 --ttft 5ms --model %s", binary, model)
	}
	w.makeNodes(t, nodes)
	return w
}

func newLlamaTurns(t *testing.T, nodes int) *turnsTest {
	t.Helper()
	if _, err := os.Stat(filepath.Join(llama.Dir(), "llama-server")); err != nil {
		unable(t, "no llama-server: run internal/llama/get.sh")
	}
	script := must.Get(filepath.Abs("../internal/llama/start.sh"))(t)
	w := &turnsTest{models: [2]string{"chat", "think"}}
	entries := ""
	for i, kind := range w.models {
		w.run[i] = fmt.Sprintf("env ROWMILL_LLAMA_DIR='%s' '%s' {port} %s", llama.Dir(), script, kind)
		entries += fmt.Sprintf("  - {id: %s, kind: generation, context_length: 2048, engine_names: [tiny-%s], sampling: {max_tokens: 16}}\n", kind, kind)
	}
	w.extra = catalogOf(t, entries)
	w.makeNodes(t, nodes)
	return w
}

// makeNodes makes the nodes. Several nodes share Redis and S3.
func (w *turnsTest) makeNodes(t *testing.T, number int) {
	t.Helper()
	var shares func(i int) string
	if number > 1 {
		shares = sharedByNodes(t, number)
	}
	for i := range number {
		n := &servingNode{node: newNode(t, "", ""), marker: filepath.Join(t.TempDir(), "marker")}
		must.Succeed(t, os.WriteFile(n.marker, nil, 0o600))
		n.engines = nil
		n.extra = servingSettings + w.extra + "placement: {gpus: [0]}\nsimulator: {enabled: never}\ndiscover: {addresses: ['127.0.0.1:1']}\n"
		if shares != nil {
			n.extra += shares(i)
		}
		t.Cleanup(func() {
			n.kill()
			n.waitForNoServer(t)
		})
		w.nodes = append(w.nodes, n)
	}
}

// servers returns the setting of a node's servers. A server that starts beside another one
// on the GPU ends at once, as if the memory were full. Each start is a line in a file.
func (w *turnsTest) servers(n *servingNode) string {
	var list strings.Builder
	for i, model := range w.models {
		run := fmt.Sprintf("echo %s >> '%s.starts'; exec flock --nonblock --conflict-exit-code 99 '%s.memory' %s", model, n.marker, n.marker, w.run[i])
		fmt.Fprintf(&list, "  - {name: %s, gpus: 1, models: [%s], run: \"%s\"}\n", model, model, run)
	}
	return "servers:\n" + list.String()
}

// starts returns the models of the servers in the order of their starts on a node.
func (n *servingNode) starts(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(n.marker + ".starts")
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.Fields(string(text))
}

// jobsTakeTurns submits all jobs before a server can run. Then each node loads each model at
// most once, except after kills.
func (w *turnsTest) jobsTakeTurns(t *testing.T, kills int) {
	t.Helper()
	first := w.nodes[0]
	first.start(t)
	submit := func() (ids []string) {
		for i := range turnJobs {
			ids = append(ids, first.submit(t, submission{Inputs: rowTexts(8), Model: w.models[i%2]}))
		}
		return ids
	}
	ids := submit()
	first.drains(t)
	for _, n := range w.nodes {
		n.extra += w.servers(n)
		n.start(t)
	}
	finish := func(ids []string) {
		t.Helper()
		for _, id := range ids {
			first.succeedsWith(t, id, 8)
		}
	}
	finish(ids)
	swaps := 0
	for _, n := range w.nodes {
		starts := n.starts(t)
		if len(starts) > 2 || len(starts) == 2 && starts[0] == starts[1] {
			t.Errorf("the starts of servers are %v, want each at most once", starts)
		}
		swaps += len(starts) - 1
		if n.logged(t, "code 99") {
			t.Error("two servers were on the GPU at the same time")
		}
	}
	t.Logf("%d jobs, %d swaps", turnJobs, swaps)

	ids = submit()
	random := rand.New(rand.NewPCG(41, uint64(len(w.nodes))))
	for i := range kills {
		n := w.nodes[i%len(w.nodes)]
		time.Sleep(time.Duration(random.IntN(3000)) * time.Millisecond)
		n.kill()
		if i/len(w.nodes)%2 == 0 { // otherwise the next process finds servers that have not ended yet
			n.waitForFreeGPU(t)
		}
		n.start(t)
	}
	finish(ids)
	for _, n := range w.nodes {
		if n.logged(t, "code 99") {
			t.Error("two servers were on the GPU at the same time")
		}
		n.drains(t)
		n.waitForFreeGPU(t)
	}
}

// waitForFreeGPU waits until no process of a server is left. A process that a test does not
// see still has the lock of the memory.
func (n *servingNode) waitForFreeGPU(t *testing.T) {
	t.Helper()
	n.waitForNoServer(t)
	wait.For(t, "the end of all processes that use the GPU", func() bool {
		return exec.Command("flock", "--nonblock", n.marker+".memory", "true").Run() == nil
	})
}

// sharedByNodes starts Redis and an S3 server, and returns the settings of each node.
func sharedByNodes(t *testing.T, number int) func(i int) string {
	t.Helper()
	records, objects := redistest.Start(t), s3test.Start(t)
	var gossip, peers []string
	for range number {
		gossip, peers = append(gossip, port.ReserveForTest(t).Address), append(peers, port.ReserveForTest(t).Address)
	}
	return func(i int) string {
		others := append(append([]string{}, gossip[:i]...), gossip[i+1:]...)
		return fmt.Sprintf("store: {url: '%s'}\nobjects: {url: 's3://%s', endpoint: '%s', region: %s, access_key: %s, secret_key: %s}\n"+
			"cluster: {node: node%d, listen: '%s', peer_listen: '%s', join: ['%s'], insecure: true}\n",
			records.URL(), objects.Bucket, objects.Endpoint, s3test.Region, objects.AccessKey, objects.SecretKey,
			i+1, gossip[i], peers[i], strings.Join(others, "', '"))
	}
}
