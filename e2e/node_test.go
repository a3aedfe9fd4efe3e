package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/port"
	"github.com/rowmill/rowmill/internal/wait"
)

const apiKey = "e2e-key-0123456789abcdef0123456789abcdef"

// patience limits every wait. It is much longer than anything takes on a busy machine,
// and short enough for the test itself to report a hang.
const patience = 3 * time.Minute

// node is a `rowmill serve` process and its data directory, across restarts.
type node struct {
	data    string
	engines []string // base URLs; with one or more, the node does not search or simulate servers
	extra   string   // further settings, YAML
	environ []string // further variables, NAME=VALUE
	base    string   // http://host:port
	http    *http.Client

	process *exec.Cmd
	stdout  *os.File // gets the standard output of the process; nil drops it
	stderr  *os.File
	logs    *os.File // gets the log of the process in place of a file; nil: the file
}

// newNode makes a node with an empty data directory and one server. It does not start
// the node.
func newNode(t *testing.T, engine, extra string) *node {
	t.Helper()
	n := &node{data: filepath.Join(t.TempDir(), "data"), engines: []string{engine}, extra: extra, base: "http://" + port.ReserveForTest(t).Address}
	n.http = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}, Timeout: patience}
	t.Cleanup(func() {
		n.http.CloseIdleConnections()
		n.kill()
		if t.Failed() {
			t.Logf("the node's last words:\n%s", n.lastWords())
		}
	})
	return n
}

// command returns the command that serves the node's data directory at address.
func (n *node) command(t *testing.T, address string) *exec.Cmd {
	t.Helper()
	must.Succeed(t, os.MkdirAll(n.data, 0o755))
	engines := "[]"
	if len(n.engines) > 0 {
		engines = "['" + strings.Join(n.engines, "', '") + "']"
	}
	settings := fmt.Sprintf("data: %s\nhttp: {listen: %s}\nlog: {format: json}\nengines: %s\n%s\n", n.data, address, engines, n.extra)
	config := filepath.Join(t.TempDir(), "rowmill.yaml")
	must.Succeed(t, os.WriteFile(config, []byte(settings), 0o600))
	command := exec.Command(binary, "serve", "--config", config)
	command.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "ROWMILL_API_KEY=" + apiKey}
	command.Env = append(command.Env, n.environ...)
	return command
}

// launch starts the process.
func (n *node) launch(t *testing.T) {
	t.Helper()
	var err error
	n.process = n.command(t, strings.TrimPrefix(n.base, "http://"))
	if n.stderr, err = os.OpenFile(filepath.Join(filepath.Dir(n.data), "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		t.Fatal(err)
	}
	n.process.Stderr = n.stderr
	if n.stdout != nil {
		n.process.Stdout = n.stdout
	}
	if n.logs != nil {
		n.process.Stderr = n.logs
	}
	if err := n.process.Start(); err != nil {
		t.Fatalf("start the node: %v", err)
	}
}

// start starts the process, waits until it accepts jobs, and returns the node.
func (n *node) start(t *testing.T) *node {
	t.Helper()
	n.launch(t)
	wait.Until(t, func() error {
		if n.gone() {
			t.Fatal("the node has ended")
		}
		return get(t, n.base+"/readyz")
	})
	return n
}

// gone reports whether the process has ended by itself.
func (n *node) gone() bool { return !runs(n.process.Process.Pid) }

// runs reports whether a process runs. A process that has ended does not run, even if
// nobody has waited for it.
func runs(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !bytes.Contains(data, []byte(") Z "))
}

// kill kills the process, like a power cut.
func (n *node) kill() {
	if n.process == nil {
		return
	}
	_ = n.process.Process.Kill() // it may have ended already
	_ = n.process.Wait()         // Wait returns an error for a killed process
	n.stderr.Close()
	n.process = nil
	n.http.CloseIdleConnections() // the next process listens at the same address
}

// terminate asks the process to end and returns its exit code.
func (n *node) terminate(t *testing.T) int {
	t.Helper()
	if err := n.process.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatalf("send SIGTERM: %v", err)
	}
	timer := time.AfterFunc(patience, func() { _ = n.process.Process.Signal(syscall.SIGQUIT) }) // shows where it hangs
	defer timer.Stop()
	err := n.process.Wait()
	n.stderr.Close()
	n.process = nil
	n.http.CloseIdleConnections() // the next process listens at the same address
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		if status := exit.Sys().(syscall.WaitStatus); status.Signaled() { // before the program handles signals; the code of a shell
			return 128 + int(status.Signal())
		}
		return exit.ExitCode()
	}
	t.Fatalf("wait for the node: %v", err)
	return 0
}

// drains asks the process to end, which must succeed.
func (n *node) drains(t *testing.T) {
	t.Helper()
	if code := n.terminate(t); code != 0 {
		t.Fatalf("the node ended with code %d\n%s", code, n.lastWords())
	}
}

func (n *node) lastWords() string {
	data, err := os.ReadFile(filepath.Join(filepath.Dir(n.data), "log"))
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-4096):])
}

// linesFrom counts the log lines of the node at a level (INFO, WARN) or above.
func (n *node) linesFrom(t *testing.T, level string) (lines int) {
	t.Helper()
	data := must.Get(os.ReadFile(filepath.Join(filepath.Dir(n.data), "log")))(t)
	var least slog.Level
	must.Succeed(t, least.UnmarshalText([]byte(level)))
	for text := range strings.Lines(string(data)) {
		var line struct{ Level slog.Level }
		if json.Unmarshal([]byte(text), &line) == nil && line.Level >= least {
			lines++
		}
	}
	return lines
}

// anonymous returns the process's anonymous memory in bytes.
func (n *node) anonymous(t *testing.T) int64 {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.process.Process.Pid))
	if err != nil {
		unable(t, "memory can only be read on Linux: %v", err)
	}
	_, rest, found := strings.Cut(string(data), "RssAnon:")
	if !found {
		t.Fatal("no RssAnon in /proc/PID/status")
	}
	kib := must.Get(strconv.ParseInt(strings.Fields(rest)[0], 10, 64))(t)
	return kib << 10
}

// files returns the files in the data directory with text in their path.
func (n *node) files(t *testing.T, text string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(n.data, func(path string, entry os.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) {
			return nil // removed during the walk
		}
		if err == nil && !entry.IsDir() && strings.Contains(path, text) {
			found = append(found, strings.TrimPrefix(path, n.data))
		}
		return err
	})
	must.Succeed(t, err)
	return found
}
