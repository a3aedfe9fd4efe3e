package redistest_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/redistest"
)

func command(t *testing.T, s *redistest.Server, args ...string) string {
	t.Helper()
	answer, err := s.Command(args...)
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return answer
}

func TestServerKeepsItsDataOverAKill(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "maxmemory 64mb")
	if got := command(t, s, "CONFIG", "GET", "maxmemory"); got != "maxmemory\n67108864" {
		t.Errorf("maxmemory: %q", got)
	}
	if got := command(t, s, "CONFIG", "GET", "appendfsync"); got != "appendfsync\nalways" {
		t.Errorf("appendfsync: %q", got)
	}
	command(t, s, "SET", "k", "v")
	if err := s.Restart(t.Context()); err == nil {
		t.Error("a server that runs is started again")
	}
	for _, end := range []func() error{s.Kill, s.Stop} {
		must.Succeed(t, end())
		if _, err := s.Command("PING"); err == nil {
			t.Error("the server answers after its end")
		}
		must.Succeed(t, s.Restart(t.Context()))
		if got := command(t, s, "GET", "k"); got != "v" {
			t.Errorf("k is %q after a restart", got)
		}
	}
	if got := command(t, s, "GET", "none"); got != "" {
		t.Errorf("a key that is not there is %q", got)
	}
	if _, err := s.Command("NONSENSE"); err == nil || !strings.Contains(err.Error(), "unknown command") {
		t.Errorf("an unknown command: %v", err)
	}
}

func TestServerThatCannotStartSaysWhy(t *testing.T) {
	t.Parallel()
	first := redistest.Start(t)
	_, err := redistest.Run(t.Context(), t.TempDir(), first.Port(), "no")
	if err == nil || !strings.Contains(err.Error(), "ddress already in use") {
		t.Errorf("a second server on a port: %v", err)
	}
	if _, err := os.Stat(filepath.Join(first.Dir(), "server.log")); errors.Is(err, fs.ErrNotExist) {
		t.Error("the server's folder has no log")
	}
}

func TestPause(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	must.Succeed(t, s.Pause())
	answered := make(chan error, 1)
	go func() {
		_, err := s.Command("PING")
		answered <- err
	}()
	select {
	case err := <-answered:
		t.Errorf("a paused server answers: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	must.Succeed(t, s.Resume())
	if err := <-answered; err != nil {
		t.Errorf("a resumed server: %v", err)
	}
}

func TestSentinel(t *testing.T) {
	t.Parallel()
	primary := redistest.Start(t)
	sentinel := redistest.StartSentinel(t, "m", primary, time.Second)
	if got := command(t, sentinel, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", "m"); strings.ReplaceAll(got, "\n", ":") != primary.Addr() {
		t.Errorf("the Sentinel says the primary is at %q", got)
	}
}
