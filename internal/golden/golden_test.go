package golden

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rowmill/rowmill/internal/must"
)

// failing is a test that records whether it has failed.
type failing struct {
	testing.TB
	failed bool
}

func (h *failing) Helper()               {}
func (h *failing) Errorf(string, ...any) { h.failed = true }

func shout(command string) string { return strings.ToUpper(command) + "\n" }

func TestReplay(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ script, want string }{
		{"$ a\nold\n\nold too\n\n# two\n$ b\n", "$ a\nA\n\n# two\n$ b\nB\n"},
		{"# head\n\n$ a\n", "# head\n\n$ a\nA\n"},
		{"$ a\nA\n\n# the end\n", "$ a\nA\n\n# the end\n"},
	} {
		if got, n := replay(test.script, shout); got != test.want || n != strings.Count(test.script, "$ ") {
			t.Errorf("%q: %d commands\n%q, want\n%q", test.script, n, got, test.want)
		}
		if again, _ := replay(test.want, shout); again != test.want {
			t.Errorf("%q changes when it is replayed: %q", test.want, again)
		}
	}
}

func TestScriptFailsWhereSomethingElseIsSaid(t *testing.T) {
	t.Parallel()
	for said, fails := range map[string]bool{"A": false, "A2": true, "": true} {
		path := filepath.Join(t.TempDir(), "script.txt")
		must.Succeed(t, os.WriteFile(path, []byte("$ a\n"+said+"\n"), 0o600))
		h := &failing{TB: t}
		CheckScript(h, path, shout)
		if h.failed != fails && !*update {
			t.Errorf("a file that says %q: failed is %v", said, h.failed)
		}
	}
}
