package e2e

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rowmill/rowmill/internal/must"
)

// A simulated is a `rowmill sim` process. It writes every request to its witness log.
type simulated struct {
	url     string
	process *exec.Cmd
	log     string // the witness log
}

// startSimulated starts a simulated server on its own port.
func startSimulated(t *testing.T, args ...string) *simulated {
	t.Helper()
	s := &simulated{log: filepath.Join(t.TempDir(), "witness.jsonl")}
	s.process = exec.Command(binary, append([]string{"sim", "--listen", "127.0.0.1:0", "--witness", s.log}, args...)...)
	s.process.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
	var stderr bytes.Buffer
	s.process.Stderr = &stderr
	out := must.Get(s.process.StdoutPipe())(t)
	if err := s.process.Start(); err != nil {
		t.Fatalf("start a simulated server: %v", err)
	}
	t.Cleanup(s.kill)
	hello, err := bufio.NewReader(out).ReadString('\n')
	_, rest, found := strings.Cut(hello, " at ")
	if err != nil || !found {
		s.kill()
		t.Fatalf("the simulated server says %q (%v)\n%s", hello, err, stderr.String())
	}
	s.url, _, _ = strings.Cut(rest, ";")
	return s
}

// kill ends the process at once. Twice is harmless.
func (s *simulated) kill() {
	_ = s.process.Process.Kill() // it may have ended already
	_ = s.process.Wait()         // Wait returns an error for a killed process
}

// signal sends a signal to the process.
func (s *simulated) signal(t *testing.T, signal syscall.Signal) {
	t.Helper()
	if err := s.process.Process.Signal(signal); err != nil {
		t.Fatalf("send %v to the simulated server: %v", signal, err)
	}
}

// stop ends the process after it has written its log.
func (s *simulated) stop(t *testing.T) {
	t.Helper()
	s.signal(t, syscall.SIGTERM)
	timer := time.AfterFunc(patience, func() { _ = s.process.Process.Kill() })
	defer timer.Stop()
	if err := s.process.Wait(); err != nil {
		t.Fatalf("the simulated server ended with %v", err)
	}
}

// A sighting is one request in the witness log of a simulated server.
type sighting struct {
	Prompt    string `json:"prompt"` // hash, see promptHash
	Input     int64  `json:"prompt_tokens"`
	Output    int64  `json:"completion_tokens"`
	Status    int    `json:"status"` // 0: no answer
	Cancelled bool   `json:"cancelled"`
	Fault     string `json:"fault"`
}

// good reports whether the request got a good answer.
func (s sighting) good() bool { return s.Status == 200 && s.Fault == "" }

// promptHash returns the hash of a prompt in witness logs.
func promptHash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}

// sightings reads the witness log.
func (s *simulated) sightings(t *testing.T) []sighting {
	t.Helper()
	file := must.Get(os.Open(s.log))(t)
	defer file.Close()
	var all []sighting
	for lines := json.NewDecoder(file); ; {
		var one sighting
		switch err := lines.Decode(&one); {
		case err == nil:
			all = append(all, one)
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF): // the last line of a killed server
			return all
		default:
			t.Fatalf("witness log %s: %v", s.log, err)
		}
	}
}

// on makes a node with simulated servers.
func on(t *testing.T, extra string, servers ...*simulated) *node {
	t.Helper()
	n := newNode(t, servers[0].url, extra)
	for _, s := range servers[1:] {
		n.engines = append(n.engines, s.url)
	}
	return n
}
