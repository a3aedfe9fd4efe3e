package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rowmill/rowmill/internal/llama"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/wait"
)

// A servingNode is a node that starts its only server.
type servingNode struct {
	*node
	marker string // text in the command lines of the guard, of the server and of its child
}

const servingSettings = "jobs: {probe_interval: 250ms, part_interval: 250ms, shard_rows: 64}\n"

// newServingNode makes a node whose server has a child. command starts the server. The marker
// replaces MARKER in command.
func newServingNode(t *testing.T, command, extra string) *servingNode {
	t.Helper()
	n := &servingNode{node: newNode(t, "", ""), marker: filepath.Join(t.TempDir(), "marker")}
	must.Succeed(t, os.WriteFile(n.marker, nil, 0o600))
	n.engines = nil
	n.extra = servingSettings + extra + fmt.Sprintf("servers: [\"tail -f '%s' & exec %s\"]\n", n.marker, strings.ReplaceAll(command, "MARKER", n.marker))
	t.Cleanup(func() {
		n.kill()
		n.waitForNoServer(t)
	})
	return n
}

// newSimulatingNode makes a node that starts a simulated server, which loads for half a
// second.
func newSimulatingNode(t *testing.T) *servingNode {
	t.Helper()
	return newServingNode(t, binary+" sim --listen 127.0.0.1:{port} --startup-delay 500ms --slots 4 --ttft 5ms --witness MARKER", "")
}

// processes returns the processes with the marker and another text in their command lines.
func (n *servingNode) processes(t *testing.T, text string) (pids []int) {
	t.Helper()
	for _, entry := range must.Get(os.ReadDir("/proc"))(t) {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		line, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		if words := strings.ReplaceAll(string(line), "\x00", " "); err == nil && strings.Contains(words, n.marker) && strings.Contains(words, text) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func (n *servingNode) waitForNoServer(t *testing.T) {
	t.Helper()
	wait.Until(t, func() error {
		if pids := n.processes(t, ""); len(pids) > 0 {
			return fmt.Errorf("processes %v of the server still run", pids)
		}
		return nil
	})
}

// server returns the process of the server that the node has started last, or 0.
func (n *servingNode) server() int {
	text, err := os.ReadFile(filepath.Join(n.data, "servers", "server-1.pid"))
	if err != nil {
		return 0
	}
	var pid int
	_, _ = fmt.Sscan(string(text), &pid) // the file may be empty
	return pid
}

// logged reports whether the log of the node contains a text.
func (n *servingNode) logged(t *testing.T, text string) bool {
	t.Helper()
	return strings.Contains(n.log(t), text)
}

// works checks that the next process of the node runs a job.
func (n *servingNode) works(t *testing.T) {
	t.Helper()
	n.start(t)
	n.succeedsWith(t, n.submit(t, submission{Inputs: rowTexts(2), Model: model}), 2)
}

// beginJob submits a job and waits until some of its rows are done.
func (n *servingNode) beginJob(t *testing.T, s submission) string {
	t.Helper()
	id := n.submit(t, s)
	if job := n.until(t, id, "begun", func(r record) bool { return r.RowsDone > 0 }); job.over() {
		t.Fatal("the job was over before a process could be killed")
	}
	return id
}

// TestServerOfTheNodeIsKilled kills the server in the middle of a job. The node starts it
// again, and the job succeeds.
func TestServerOfTheNodeIsKilled(t *testing.T) {
	t.Parallel()
	t.Run("simulated", func(t *testing.T) {
		t.Parallel()
		killServer(t, newSimulatingNode(t), submission{Inputs: rowTexts(400), Model: model})
	})
	t.Run("llama-server", func(t *testing.T) {
		t.Parallel()
		if _, err := os.Stat(filepath.Join(llama.Dir(), "llama-server")); err != nil {
			unable(t, "no llama-server: run internal/llama/get.sh")
		}
		script := must.Get(filepath.Abs("../internal/llama/start.sh"))(t)
		n := newServingNode(t, fmt.Sprintf("env ROWMILL_LLAMA_DIR='%s' '%s' {port} chat", llama.Dir(), script), catalogOf(t,
			"  - {id: tiny, kind: generation, context_length: 2048, engine_names: [tiny-chat], sampling: {max_tokens: 48}}\n"))
		killServer(t, n, submission{Inputs: rowTexts(400), Model: "tiny"})
	})
}

func killServer(t *testing.T, n *servingNode, s submission) {
	t.Helper()
	n.start(t)
	id := n.beginJob(t, s)
	first := n.server()
	must.Succeed(t, syscall.Kill(first, syscall.SIGKILL))
	n.succeedsWith(t, id, len(s.Inputs.([]string)))
	if second := n.server(); second == first || !n.logged(t, "a signal ended the server: killed") {
		t.Errorf("the job ended, but the server was not started again: processes %d, %d", first, second)
	}
	last := n.server()
	n.drains(t)
	if runs(last) {
		t.Error("the server runs after the end of its node")
	}
	n.waitForNoServer(t)
}

// TestKilledNodeLeavesNoServer kills a node at moments of its start and its work, and when
// it stops. No process of its server survives, and the next node works.
func TestKilledNodeLeavesNoServer(t *testing.T) {
	t.Parallel()
	after := func(what string, reached func(*testing.T, *servingNode) bool) func(*testing.T, *servingNode) {
		return func(t *testing.T, n *servingNode) {
			t.Helper()
			n.launch(t)
			wait.For(t, what, func() bool { return reached(t, n) })
		}
	}
	begun := func(t *testing.T, n *servingNode) {
		t.Helper()
		n.start(t)
		n.beginJob(t, submission{Inputs: rowTexts(900), Model: model})
	}
	for name, reach := range map[string]func(*testing.T, *servingNode){
		"output": after("a file for the output", func(t *testing.T, n *servingNode) bool { return len(n.files(t, "server-1.log")) > 0 }),
		"guard":  after("a guard", func(t *testing.T, n *servingNode) bool { return len(n.processes(t, " guard-server ")) > 0 }),
		"lock":   after("the file of the guard", func(t *testing.T, n *servingNode) bool { return len(n.files(t, "server-1.pid")) > 0 }),
		"group":  after("a recorded process group", func(_ *testing.T, n *servingNode) bool { return n.server() > 0 }),
		"child":  after("a child of the server", func(t *testing.T, n *servingNode) bool { return len(n.processes(t, "tail -f "+n.marker)) > 0 }),
		"loading": after("a server that listens", func(t *testing.T, n *servingNode) bool {
			output, err := os.ReadFile(filepath.Join(n.data, "servers", "server-1.log"))
			return err == nil && strings.Contains(string(output), "outputs are made up")
		}),
		"answers": after("an answer", func(t *testing.T, n *servingNode) bool { return n.logged(t, "the server answers") }),
		"up":      after("an engine", func(t *testing.T, n *servingNode) bool { return n.logged(t, "engine is up") }),
		"job":     begun,
		"pause": func(t *testing.T, n *servingNode) {
			begun(t, n)
			must.Succeed(t, syscall.Kill(n.server(), syscall.SIGKILL))
			n.says(t, 0, "the server ended, and starts again after a pause")
		},
		"drain": func(t *testing.T, n *servingNode) {
			begun(t, n)
			must.Succeed(t, n.process.Process.Signal(syscall.SIGTERM))
			n.says(t, 0, "stopping: rows in flight finish")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newSimulatingNode(t)
			reach(t, n)
			n.kill()
			n.waitForNoServer(t)
			n.works(t)
		})
	}
}

// TestKilledGuard kills the guard of a server: alone, and together with the node. The next
// start ends the server that has no guard.
func TestKilledGuard(t *testing.T) {
	t.Parallel()
	n := newSimulatingNode(t)
	guard := func() int {
		t.Helper()
		guards := n.processes(t, " guard-server ")
		if len(guards) != 1 {
			t.Fatalf("guards: %v", guards)
		}
		return guards[0]
	}
	n.works(t)
	first := n.server()
	must.Succeed(t, syscall.Kill(guard(), syscall.SIGKILL))
	n.says(t, 0, "the guard of the server was ended")
	wait.For(t, "another server", func() bool { pid := n.server(); return pid > 0 && pid != first })
	if runs(first) {
		t.Error("two servers run")
	}

	must.Succeed(t, n.process.Process.Signal(syscall.SIGSTOP)) // it starts no other guard
	second, last := n.server(), guard()
	must.Succeed(t, syscall.Kill(last, syscall.SIGKILL))
	wait.For(t, "the end of the guard", func() bool { return !runs(last) })
	n.kill()
	if !runs(second) {
		t.Fatal("no server is left; nothing is tested")
	}
	n.works(t)
	if runs(second) {
		t.Error("the server without a guard still runs")
	}
	n.drains(t)
	n.waitForNoServer(t)
}
