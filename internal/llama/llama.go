// Package llama starts a real llama.cpp server with a tiny model of random weights, for
// contract tests. The output of the model is nonsense; the server is real. get.sh
// installs the server once. If it is missing, tests that need it are skipped with a
// message, or fail if ROWMILL_CI is set.
package llama

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/rowmill/rowmill/internal/repo"
)

// Kinds of model in start.sh.
const (
	Chat  = "chat"  // answers a few words or sentences
	Think = "think" // like chat, after reasoning
	Embed = "embed" // 64 numbers per text
	Image = "image" // like chat, and reads images
)

// Dimension is the length of an embedding of the Embed model.
const Dimension = 64

// startTimeout limits the start of the server. It usually takes half a second; a busy
// machine needs more.
const startTimeout = 60 * time.Second

// Options of a server. The zero value uses the defaults of start.sh.
type Options struct {
	Name    string   // name of the model; default tiny-KIND
	Slots   int      // number of rows in flight at once; default 4
	Context int      // context of all slots together, in tokens; default 8192
	Port    int      // port on 127.0.0.1; default a free port
	Args    []string // further arguments of llama-server
}

// A Server is a running llama-server.
type Server struct {
	URL   string // such as http://127.0.0.1:4711
	Port  int
	Model string // name of the model in the server's model list
	kill  func()
}

// Kill kills the server, like a crash, and returns after it has ended.
func (s Server) Kill() { s.kill() }

// Dir returns the folder into which get.sh puts the server.
func Dir() string {
	if dir := os.Getenv("ROWMILL_LLAMA_DIR"); dir != "" {
		return dir
	}
	cache := os.Getenv("XDG_CACHE_HOME")
	if cache == "" {
		cache = filepath.Join(os.Getenv("HOME"), ".cache")
	}
	return filepath.Join(cache, "rowmill-llama")
}

// Program returns the path of the server. It skips the test if no server is installed.
func Program(t testing.TB) string {
	t.Helper()
	program := filepath.Join(Dir(), "llama-server")
	if _, err := os.Stat(program); err != nil {
		const hint = "no llama-server on this machine: run internal/llama/get.sh (Debian), or set ROWMILL_LLAMA_DIR"
		if os.Getenv("ROWMILL_CI") != "" {
			t.Fatal(hint)
		}
		t.Skip("SKIPPED, NOT TESTED against a real inference server: " + hint)
	}
	return program
}

// Start starts a server that runs until the end of the test. It skips the test if no
// server is installed.
func Start(t testing.TB, kind string, o Options) Server {
	t.Helper()
	Program(t)
	script := repo.Path("internal", "llama", "start.sh")

	var err error
	for range 3 { // another process may take a free port first
		var s Server
		if s, err = start(t, script, kind, o); err == nil {
			return s
		}
	}
	t.Fatalf("start llama-server: %v", err)
	return Server{}
}

// start runs the script once and waits until the server is healthy.
func start(t testing.TB, script, kind string, o Options) (Server, error) {
	port := o.Port
	if port == 0 {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return Server{}, err
		}
		port = listener.Addr().(*net.TCPAddr).Port
		_ = listener.Close()
	}

	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, script, append([]string{strconv.Itoa(port), kind}, o.Args...)...)
	cmd.Env = os.Environ()
	name := cmp.Or(o.Name, "tiny-"+kind)
	cmd.Env = append(cmd.Env, "ALIAS="+name)
	if o.Slots > 0 {
		cmd.Env = append(cmd.Env, "SLOTS="+strconv.Itoa(o.Slots))
	}
	if o.Context > 0 {
		cmd.Env = append(cmd.Env, "CTX="+strconv.Itoa(o.Context))
	}
	output := &tailBuffer{}
	cmd.Stdout, cmd.Stderr = output, output
	if err := cmd.Start(); err != nil {
		cancel()
		return Server{}, err
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(exited)
	}()
	stop := func() {
		cancel() // kills only one process, because the script replaces itself by the server
		<-exited
	}

	url := fmt.Sprintf("http://127.0.0.1:%d", port)
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	deadline := time.After(startTimeout)
	poll := time.NewTicker(30 * time.Millisecond)
	defer poll.Stop()
	for {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/health", http.NoBody)
		if err != nil {
			stop()
			return Server{}, err
		}
		if res, err := client.Do(req); err == nil {
			_ = res.Body.Close()
			if res.StatusCode == http.StatusOK {
				t.Cleanup(stop)
				return Server{URL: url, Port: port, Model: name, kill: stop}, nil
			}
		}
		select {
		case <-exited:
			cancel()
			return Server{}, fmt.Errorf("the server ended at once: %s", output.String())
		case <-deadline:
			stop()
			return Server{}, fmt.Errorf("the server is not healthy after %v: %s", startTimeout, output.String())
		case <-poll.C:
		}
	}
}

// tailBuffer is a writer that keeps the last 8 KiB of the server's output.
type tailBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (w *tailBuffer) Write(p []byte) (int, error) {
	const keep = 8 << 10
	w.mu.Lock()
	defer w.mu.Unlock()
	w.buf.Write(p)
	if over := w.buf.Len() - keep; over > 0 {
		w.buf.Next(over)
	}
	return len(p), nil
}

func (w *tailBuffer) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.String()
}
