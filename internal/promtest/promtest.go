// Package promtest finds the programs of Prometheus that tests use: Debian's, or
// those which .ci/tools has fetched out of Debian's package.
package promtest

import (
	"os"
	"os/exec"
	"testing"

	"github.com/rowmill/rowmill/internal/repo"
)

// Tool returns the path of prometheus or promtool. Where it is not there the test is
// skipped, on CI it fails.
func Tool(t testing.TB, name string) string {
	t.Helper()
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	path := repo.Path("bin", "tools", name)
	if _, err := os.Stat(path); err == nil {
		return path
	}
	const how = " is not here; .ci/tools prometheus fetches it"
	if os.Getenv("ROWMILL_CI") != "" {
		t.Fatal(name + how)
	}
	t.Skip("SKIPPED, NOT TESTED: " + name + how)
	return ""
}
