package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rowmill/rowmill/internal/must"
)

// TestConsole drives the web console in a real browser: every page in every state, the
// pages of operators, a job from submission to end, submissions from the form, from
// files and from the snippets of New job, rows with harmful content, readers, a revoked
// key, a killed node, an expired session, and the login link.
func TestConsole(t *testing.T) {
	t.Parallel()
	needBrowser(t)
	for _, part := range []string{"states", "operators", "newjob", "rows", "scenarios"} {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			n := on(t, batchSettings, startSimulated(t, "--ttft", "1ms", "--per-token", "1ms")).start(t)
			runClient(t, "CONSOLE_BROWSER=required", "CONSOLE_CONTROL="+control(t, n), "node", "../console/web/test/browser.mjs", n.base, apiKey, t.TempDir(), part)
		})
	}
}

// TestSiteSearch builds the website of the docs and searches in it, in a real browser, from a disk.
func TestSiteSearch(t *testing.T) {
	t.Parallel()
	needBrowser(t)
	hugo := must.Get(filepath.Glob("../bin/tools/hugo-*/bin/hugo"))(t)
	if len(hugo) == 0 {
		unable(t, "hugo is not here (`.ci/tools docs`)")
	}
	site := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), hugo[0], "build", "--source", "../docs/site", "--destination", site, "--noBuildLock", "--quiet").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	runClient(t, "node", "../console/web/test/site.mjs", site)
}

// needBrowser skips a test on a machine without a browser, or fails it in CI.
func needBrowser(t *testing.T) {
	t.Helper()
	if _, err := os.Stat("../console/web/node_modules/playwright-core"); err != nil {
		unable(t, "what drives a browser is not there (`.ci/tools console`): %v", err)
	}
	if _, err := exec.LookPath("chromium-headless-shell"); err != nil {
		unable(t, "there is no browser (Debian's chromium-headless-shell): %v", err)
	}
}

// control lets a client kill a node (POST /kill) and start it again, with another clock
// if given (POST /start?clock=13h) or on a terminal (POST /start?terminal=1), with the login
// link as the answer. It returns the URL.
func control(t *testing.T, n *node) string {
	mux := http.NewServeMux()
	settings := n.extra
	mux.HandleFunc("POST /kill", func(http.ResponseWriter, *http.Request) { n.kill() })
	mux.HandleFunc("POST /start", func(w http.ResponseWriter, r *http.Request) {
		if ahead := r.FormValue("clock"); ahead != "" {
			n.extra = settings + "clock_offset: " + ahead + "\n"
		}
		if r.FormValue("terminal") == "" {
			n.start(t)
			return
		}
		var ours *os.File
		ours, n.stdout = openTerminal(t)
		n.start(t)
		n.stdout.Close()
		n.stdout = nil
		for lines := bufio.NewScanner(ours); lines.Scan(); {
			if link := strings.TrimSpace(lines.Text()); strings.Contains(link, "#login=") {
				_, _ = io.WriteString(w, link)
				return
			}
		}
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL
}

// openTerminal returns the two ends of a new pseudo-terminal: ours reads what a program
// writes to theirs.
func openTerminal(t *testing.T) (ours, theirs *os.File) {
	t.Helper()
	ours = must.Get(os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0))(t)
	t.Cleanup(func() { ours.Close() })
	must.Succeed(t, unix.IoctlSetPointerInt(int(ours.Fd()), unix.TIOCSPTLCK, 0))
	number := must.Get(unix.IoctlGetInt(int(ours.Fd()), unix.TIOCGPTN))(t)
	return ours, must.Get(os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0))(t)
}
