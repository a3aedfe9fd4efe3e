// Package pythontest finds a Python for tests that run other programs with it.
package pythontest

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// FindPython returns the path of a Python that has the modules: ROWMILL_PYTHON, or else
// python3. If a module is missing, the test is skipped; if ROWMILL_CI is set, the test
// fails. untested names the behaviour that the test would check.
func FindPython(t testing.TB, untested string, modules ...string) string {
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
