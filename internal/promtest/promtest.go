// Package promtest finds the Prometheus programs for tests. Debian's package installs
// them, or .ci/tools takes them from that package.
package promtest

import (
	"os"
	"os/exec"
	"testing"

	"github.com/rowmill/rowmill/internal/repo"
)

// Tool returns the path of the program prometheus or promtool. If it is missing, the
// test is skipped; on CI the test fails.
func Tool(t testing.TB, name string) string {
	t.Helper()
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	path := repo.Path("bin", "tools", name)
	if _, err := os.Stat(path); err == nil {
		return path
	}
	const how = " is not installed; .ci/tools prometheus fetches it"
	if os.Getenv("ROWMILL_CI") != "" {
		t.Fatal(name + how)
	}
	t.Skip("SKIPPED, NOT TESTED: " + name + how)
	return ""
}
