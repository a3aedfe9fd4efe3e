package e2e

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rowmill/rowmill/internal/must"
)

// pythonTool returns the programs' folder of a Python tool that .ci/tools installs in
// its own environment, in the version that .ci/tools.env pins.
func pythonTool(t *testing.T, tool, pin string) string {
	t.Helper()
	version := toolVersion(t, pin)
	bin := must.Get(filepath.Abs("../bin/tools/" + tool + "-" + version + "/bin"))(t)
	if _, err := os.Stat(filepath.Join(bin, "../complete")); err != nil {
		unable(t, "%s is not there (.ci/tools puts it there): %v", tool, err)
	}
	return bin
}

// toolVersion returns the version that .ci/tools.env pins under a name.
func toolVersion(t *testing.T, pin string) string {
	t.Helper()
	pins := must.Get(os.ReadFile("../.ci/tools.env"))(t)
	_, rest, found := strings.Cut(string(pins), "\n"+pin+"=")
	if !found {
		t.Fatalf(".ci/tools.env does not name %s", pin)
	}
	version, _, _ := strings.Cut(rest, "\n")
	return version
}

// sdkPath returns a PATH with a python3 that has the SDK of this API family.
func sdkPath(t *testing.T, pin string) string {
	t.Helper()
	return pythonTool(t, "sutro", pin) + ":" + os.Getenv("PATH")
}

// TestPythonSDK runs all calls of the real SDK, unmodified, with its own setting for
// the URL.
func TestPythonSDK(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"SUTRO", "SUTRO_OLD"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := sdkPath(t, name)
			n := on(t, "", startSimulated(t, "--ttft", "1ms", "--per-token", "0s")).start(t)
			for _, definition := range []map[string]any{
				{"name": "grade", "prompt": "Grade {{text}}"},
				{"name": "judge", "prompt": "Judge {{text}}", "json_schema": map[string]any{
					"type": "object", "required": []string{"points"},
					"properties": map[string]any{"points": map[string]any{"type": "integer", "minimum": 0, "maximum": 9}},
				}},
			} {
				definition["model"], definition["inputs"] = "llama-3.1-8b", []map[string]any{{"name": "text"}}
				n.call(t, http.MethodPost, "/v1/functions", definition, nil)
			}
			var made struct {
				Key string `json:"key"`
			}
			n.call(t, http.MethodPost, "/v1/keys", map[string]any{"name": "laptop", "dialect": "sdk"}, &made)
			input := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = w.Write([]byte("id,text\n007,A mill grinds.\n008,A row waits.\n009,A job ends.\n"))
				if strings.Contains(r.URL.Path, "endless") { // its job runs until it is cancelled
					_ = http.NewResponseController(w).Flush()
					<-r.Context().Done()
				}
			}))
			t.Cleanup(input.Close)

			ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
			defer cancel()
			program := exec.CommandContext(ctx, "env", "python3", "testdata/sdk.py", n.base, made.Key, input.URL)
			program.Env = []string{"PATH=" + path, "LANG=C.UTF-8", "TMPDIR=" + t.TempDir()}
			program.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			program.Cancel = func() error { return syscall.Kill(-program.Process.Pid, syscall.SIGKILL) }
			if said, err := program.CombinedOutput(); err != nil {
				t.Errorf("the SDK: %v\n%s", err, said[max(0, len(said)-4000):])
			}
		})
	}
}
