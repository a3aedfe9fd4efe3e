package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/rowmill/rowmill/internal/faultnet"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/repo"
	"github.com/rowmill/rowmill/internal/s3test"
)

// binary is the program under test, built once.
var binary string

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == simulateCommand {
		fmt.Fprintln(os.Stderr, simulate(os.Args[2:]))
		os.Exit(1)
	}
	dir, err := os.MkdirTemp("", "rowmill-cluster-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "make a directory for the binary:", err)
		os.Exit(1)
	}
	code := 1
	if binary, err = repo.BuildProgram(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		code = m.Run()
	}
	_ = os.RemoveAll(dir) // a leftover binary must not change the verdict
	os.Exit(code)
}

// unable skips a test that this machine cannot run, and fails it on CI.
func unable(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("ROWMILL_CI") != "" {
		t.Fatalf(format, args...)
	}
	t.Skipf("SKIPPED, NOT TESTED: "+format, args...)
}

// soaks skips a test with a verdict that depends on the speed of the machine or on a seed.
// make soak/quick runs it.
func soaks(t *testing.T) {
	t.Helper()
	if os.Getenv("ROWMILL_SOAK") == "" {
		t.Skip("runs in make soak/quick")
	}
}

// needServers skips the test if the real servers are not installed.
func needServers(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		unable(t, "no redis-server on this machine: install it")
	}
	if _, err := s3test.Binary(); errors.Is(err, s3test.ErrNotInstalled) {
		unable(t, "%v", err)
	} else if err != nil {
		t.Fatal(err)
	}
}

// start starts a cluster that ends with the test, on hosts of its own if possible.
func start(t *testing.T, config Config) *Cluster {
	t.Helper()
	config.Hosts = hosts(t)
	return startHere(t, config)
}

// startHere is like start, on loopback, for a test with a program on this machine that
// calls the nodes. Config may name the directory and the program.
func startHere(t *testing.T, config Config) *Cluster {
	t.Helper()
	needServers(t)
	if config.Binary == "" {
		config.Binary, config.Lake = binary, true
	}
	if config.Dir == "" {
		config.Dir = folder(t)
	}
	c := must.Get(Start(t.Context(), config))(t)
	t.Cleanup(func() {
		if t.Failed() {
			var words strings.Builder
			c.Tell(&words)
			t.Log(words.String())
		}
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return c
}

// hosts reports whether machines can have their own hosts. Without them, network faults are
// not tested.
func hosts(t *testing.T) bool {
	t.Helper()
	err := faultnet.CheckUsable()
	if err != nil && os.Getenv("ROWMILL_CI") != "" {
		t.Fatal(err)
	}
	if err != nil {
		t.Logf("faults of networks and disks are NOT TESTED: %v", err)
	}
	return err == nil
}

// folder returns a directory that stays after a failed test.
func folder(t *testing.T) string {
	t.Helper()
	dir := must.Get(os.MkdirTemp("", "rowmill-cluster-"))(t) //nolint:usetesting // a directory of the test never stays
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("logs, data and witnesses are kept in %s", dir)
			return
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}
