// Package realserver starts real inference servers on a CPU, with tiny models of random
// weights, for `make engines`. get.sh installs them. Each server takes minutes, so without
// ROWMILL_ENGINES in the environment, tests that need a server are skipped, also on CI.
package realserver

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/repo"
)

// Dimension is the length of an embedding of the models from tiny_hf.py.
const Dimension = 128

// startTimeout limits the start of the server. A Python server spends half a minute on
// imports, on a busy machine many minutes.
const startTimeout = 15 * time.Minute

// Options of a server. The zero value uses the defaults of start.sh.
type Options struct {
	Name string   // name of the model, or names separated by commas; default tiny-chat, tiny-think or tiny-embed
	Port int      // port on 127.0.0.1; default a free port
	Args []string // further arguments of the server
}

// A Server is a running inference server.
type Server struct {
	URL   string // such as http://127.0.0.1:4711
	Port  int
	Model string // name of the model in the server's model list
	Other string // name of the second model, if there are two models
	kill  func()
}

// Kill kills the server, like a crash, and returns after it has ended.
func (s Server) Kill() { s.kill() }

// SkipUnlessEnabled skips the test if ROWMILL_ENGINES is not set.
func SkipUnlessEnabled(t testing.TB) {
	t.Helper()
	if os.Getenv("ROWMILL_ENGINES") == "" {
		t.Skip("SKIPPED, NOT TESTED against real inference servers: run make engines")
	}
}

// Start starts a server that runs until the end of the test. server is a kind of server
// in start.sh; model is chat, think or embed. Ollama may have two models, "chat,embed",
// with two names.
func Start(t testing.TB, server, model string, o Options) Server {
	t.Helper()
	SkipUnlessEnabled(t)
	s := Server{Port: o.Port}
	if s.Port == 0 {
		listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
		s.Port = listener.Addr().(*net.TCPAddr).Port
		_ = listener.Close()
	}
	s.URL = fmt.Sprintf("http://127.0.0.1:%d", s.Port)
	name := cmp.Or(o.Name, "tiny-"+model)
	args := append([]string{server, strconv.Itoa(s.Port), model}, o.Args...)
	cmd := exec.CommandContext(context.Background(), repo.Path("internal", "realserver", "start.sh"), args...)
	cmd.Env = append(os.Environ(), "ALIAS="+name)
	log := must.Get(os.Create(filepath.Join(t.ArtifactDir(), server+"-"+model+".log")))(t)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a process group, so that kill also ends the processes that the server starts
	must.Succeed(t, cmd.Start())
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(exited)
	}()
	s.kill = sync.OnceFunc(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-exited
		_ = log.Close()
	})
	t.Cleanup(s.kill)

	deadline := time.After(startTimeout)
	poll := time.NewTicker(200 * time.Millisecond)
	defer poll.Stop()
	for {
		first, second, two := strings.Cut(name, ",")
		if s.Model = s.findListedModel(t, first); two {
			s.Other = s.findListedModel(t, second)
		}
		if s.Model != "" && (!two || s.Other != "") {
			return s
		}
		select {
		case <-exited:
			t.Fatalf("%s ended at once: %s", server, lastPart(log.Name()))
		case <-deadline:
			t.Fatalf("%s lists no model after %v: %s", server, startTimeout, lastPart(log.Name()))
		case <-poll.C:
		}
	}
}

// Version returns the release of a server that get.sh has installed, for servers that
// do not report their release; empty if none is installed.
func Version(server string) string {
	path, err := os.Readlink(filepath.Join(dir(), server))
	if err != nil {
		return ""
	}
	return strings.TrimPrefix(filepath.Base(path), server+"-")
}

// dir returns the folder into which get.sh puts the servers.
func dir() string {
	cache := cmp.Or(os.Getenv("XDG_CACHE_HOME"), filepath.Join(os.Getenv("HOME"), ".cache"))
	return cmp.Or(os.Getenv("ROWMILL_ENGINES_DIR"), filepath.Join(cache, "rowmill-engines"))
}

// get sends a GET request for a path. status is 0 if no server answers.
func (s Server) get(t testing.TB, path string) (status int, body []byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+path, http.NoBody)
	must.Succeed(t, err)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil
	}
	defer func() { _ = res.Body.Close() }()
	if body, err = io.ReadAll(res.Body); err != nil {
		return 0, nil
	}
	return res.StatusCode, body
}

// findListedModel returns the server's name for the model called name; empty if the server
// cannot run the model yet. It asks for the health first, because SGLang lists models
// before it can run them.
func (s Server) findListedModel(t testing.TB, name string) string {
	t.Helper()
	if health, _ := s.get(t, "/health"); health == 0 || health == http.StatusServiceUnavailable {
		return ""
	}
	_, body := s.get(t, "/v1/models")
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if json.Unmarshal(body, &list) != nil {
		return ""
	}
	for _, m := range list.Data {
		if strings.HasPrefix(m.ID, name) { // Ollama adds a tag to the name
			return m.ID
		}
	}
	return ""
}

// lastPart returns the last 4 KiB of a log file.
func lastPart(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-4<<10):])
}
