package e2e

import (
	"os"
	"os/exec"
	"testing"
)

// TestConsole drives the web console in a real browser: every page in both schemes
// and widths, a job from its submission to its end, rows that would do harm, readers,
// and a key that is revoked.
func TestConsole(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("../console/web/node_modules/playwright-core"); err != nil {
		unable(t, "what drives a browser is not there (`.ci/tools console`): %v", err)
	}
	if _, err := exec.LookPath("chromium"); err != nil {
		unable(t, "there is no browser (Debian's chromium): %v", err)
	}
	n := on(t, batchSettings, startSimulated(t, "--ttft", "1ms", "--per-token", "1ms"))
	n.start(t)
	runClient(t, "CONSOLE_BROWSER=required", "node", "../console/web/test/browser.mjs", n.base, apiKey, t.TempDir())
}
