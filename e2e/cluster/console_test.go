package cluster

import (
	"os"
	"os/exec"
	"testing"
)

// TestConsole follows a job in the consoles of all nodes of a cluster. All must show the
// same.
func TestConsole(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	if _, err := os.Stat("../../console/web/node_modules/playwright-core"); err != nil {
		unable(t, "what drives a browser is not there (`.ci/tools console`): %v", err)
	}
	if _, err := exec.LookPath("chromium-headless-shell"); err != nil {
		unable(t, "there is no browser (Debian's chromium-headless-shell): %v", err)
	}
	c := startHere(t, Config{Roles: []string{"both", "both", "both"}})
	args := []string{"../../console/web/test/nodes.mjs", c.Nodes[0].API, adminKey, t.TempDir(), c.Nodes[1].API, c.Nodes[2].API}
	command := exec.CommandContext(t.Context(), "node", args...)
	command.Env = append(os.Environ(), "CONSOLE_BROWSER=required")
	if said, err := command.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, said[max(0, len(said)-8000):])
	}
}
