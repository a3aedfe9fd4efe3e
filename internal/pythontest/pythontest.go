// Package pythontest finds the Python that tests run other programs with.
package pythontest

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Find returns the path of a Python that has the modules: ROWMILL_PYTHON, or else
// python3. Where it lacks one, the test is skipped, and fails under ROWMILL_CI.
// untested says what the test would have shown.
func Find(t testing.TB, untested string, modules ...string) string {
	t.Helper()
	name := cmp.Or(os.Getenv("ROWMILL_PYTHON"), "python3")
	out, err := exec.CommandContext(t.Context(), name, "-c", "import "+strings.Join(modules, ", ")).CombinedOutput()
	if err == nil {
		return name
	}
	text := fmt.Sprintf("NOT TESTED: %s, since %s does not have %s: %v %s(install them with pip, and name that Python in ROWMILL_PYTHON)",
		untested, name, strings.Join(modules, ", "), err, out)
	if os.Getenv("ROWMILL_CI") != "" {
		t.Fatal(text)
	}
	t.Skip(text)
	return ""
}
