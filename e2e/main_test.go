package e2e

import (
	"fmt"
	"os"
	"testing"

	"github.com/rowmill/rowmill/internal/repo"
)

// binary is the program under test, built once.
var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "rowmill-e2e-")
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
	_ = os.RemoveAll(dir) // a binary that stays must not change the verdict
	os.Exit(code)
}

// size returns the size for a quick run, for CI, or for `make soak`.
func size(quick, ci, soak int) int {
	switch {
	case soaking() && os.Getenv("ROWMILL_SOAK") != "quick":
		return soak
	case os.Getenv("ROWMILL_CI") != "":
		return ci
	}
	return quick
}

// soaks skips a test with a verdict that depends on the speed of the machine. make
// soak/quick and make soak run it.
func soaks(t *testing.T) {
	t.Helper()
	if !soaking() {
		t.Skip("runs in make soak/quick")
	}
}

// soaking reports whether tests check figures that depend on the speed of the machine.
func soaking() bool { return os.Getenv("ROWMILL_SOAK") != "" }

// unable skips a test that this machine cannot run; on CI it fails the test.
func unable(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("ROWMILL_CI") != "" {
		t.Fatalf(format, args...)
	}
	t.Skipf("SKIPPED, NOT TESTED: "+format, args...)
}
