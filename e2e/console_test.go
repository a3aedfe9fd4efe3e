package e2e

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"testing"
)

// TestConsole drives the web console in a real browser: every page in every state, a
// job from submission to end, submissions from the form, from files and from the
// snippets of New job, rows with harmful content, readers, a revoked key, a killed
// node, and an expired session.
func TestConsole(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("../console/web/node_modules/playwright-core"); err != nil {
		unable(t, "what drives a browser is not there (`.ci/tools console`): %v", err)
	}
	if _, err := exec.LookPath("chromium"); err != nil {
		unable(t, "there is no browser (Debian's chromium): %v", err)
	}
	for _, part := range []string{"states", "newjob", "rows", "scenarios"} {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			n := on(t, batchSettings, startSimulated(t, "--ttft", "1ms", "--per-token", "1ms")).start(t)
			runClient(t, "CONSOLE_BROWSER=required", "CONSOLE_CONTROL="+control(t, n), "node", "../console/web/test/browser.mjs", n.base, apiKey, t.TempDir(), part)
		})
	}
}

// control lets a client kill a node (POST /kill) and start it again, with another clock
// if given (POST /start?clock=13h). It returns the URL.
func control(t *testing.T, n *node) string {
	mux := http.NewServeMux()
	settings := n.extra
	mux.HandleFunc("POST /kill", func(http.ResponseWriter, *http.Request) { n.kill() })
	mux.HandleFunc("POST /start", func(_ http.ResponseWriter, r *http.Request) {
		if ahead := r.FormValue("clock"); ahead != "" {
			n.extra = settings + "clock_offset: " + ahead + "\n"
		}
		n.start(t)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL
}
