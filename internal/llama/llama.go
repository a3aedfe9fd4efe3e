// Package llama starts a real llama.cpp server with a tiny model of random weights, for
// contract tests. The output of the model is nonsense; the server is real. get.sh
// installs the server once. If it is missing, tests that need it are skipped with a
// message, or fail if ROWMILL_CI is set.
package llama

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/port"
	"github.com/rowmill/rowmill/internal/proctest"
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

	process *proctest.Process
}

// Kill kills the server, like a crash, and returns after it has ended.
func (s Server) Kill() { s.process.KillAndWait() }

// Dir returns the folder into which get.sh puts the server.
func Dir() string {
	cache := cmp.Or(os.Getenv("XDG_CACHE_HOME"), filepath.Join(os.Getenv("HOME"), ".cache"))
	return cmp.Or(os.Getenv("ROWMILL_LLAMA_DIR"), filepath.Join(cache, "rowmill-llama"))
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
	s := Server{Port: o.Port, Model: cmp.Or(o.Name, "tiny-"+kind)}
	if s.Port == 0 {
		s.Port = port.ReserveForTest(t).Port
	}
	s.URL = fmt.Sprintf("http://127.0.0.1:%d", s.Port)
	command := exec.CommandContext(context.WithoutCancel(t.Context()), repo.Path("internal", "llama", "start.sh"), append([]string{strconv.Itoa(s.Port), kind}, o.Args...)...)
	command.Env = append(os.Environ(), "ALIAS="+s.Model)
	if o.Slots > 0 {
		command.Env = append(command.Env, "SLOTS="+strconv.Itoa(o.Slots))
	}
	if o.Context > 0 {
		command.Env = append(command.Env, "CTX="+strconv.Itoa(o.Context))
	}
	s.process = must.Get(proctest.Start(command))(t) // one process, because the script replaces itself by the server
	t.Cleanup(s.Kill)
	err := s.process.WaitUntilReady(t.Context(), startTimeout, func() bool {
		return proctest.GetStatus(t.Context(), s.URL+"/health") == http.StatusOK
	})
	must.Succeed(t, err)
	return s
}
