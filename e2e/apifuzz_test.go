package e2e

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rowmill/rowmill/internal/must"
)

// TestAPIByItsDocument runs schemathesis, which sends requests that the OpenAPI
// document permits and requests that it does not. It uses the keys of an administrator,
// a user and the dialect sdk, each with its own node. No answer may be a 5xx or break
// the document, and the document may be neither stricter nor laxer than the service.
// testdata/fuzz.py holds the exceptions that a schema cannot express. The requests are
// the same each time, unless ROWMILL_FUZZ_API sets a time for random ones.
func TestAPIByItsDocument(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]map[string]any{
		"user": {"name": "user", "role": "user"}, "sdk": {"name": "sdk", "dialect": "sdk"}, "admin": nil,
	} {
		t.Run(name, func(t *testing.T) { byDocument(t, key) })
	}
}

// byDocument sends the requests with a new key, or with the administrator's if key is
// nil.
func byDocument(t *testing.T, key map[string]any) {
	t.Helper()
	args, length := []string{"--phases", "examples,coverage", "--seed", "1"}, time.Minute
	if given := os.Getenv("ROWMILL_FUZZ_API"); given != "" {
		var err error
		if length, err = time.ParseDuration(given); err != nil {
			t.Fatal(err)
		}
		args = []string{"--max-time", strconv.Itoa(int(length.Seconds())), "--max-examples", "25"}
	}
	program := pythonTool(t, "schemathesis", "SCHEMATHESIS") + "/schemathesis"
	n := on(t, "", startSimulated(t, "--ttft", "1ms", "--per-token", "0s")).start(t)
	n.call(t, http.MethodPost, "/v1/functions", map[string]any{
		"name": "greet", "prompt": "Greet {{name}}", "model": "llama-3.1-8b", "inputs": []map[string]any{{"name": "name"}},
	}, nil)
	input := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("id,text\n1,a\n2,b\n"))
	}))
	t.Cleanup(input.Close)
	var jobs []string
	for _, s := range []map[string]any{
		{"inputs": []string{"a", "b"}, "model": "llama-3.1-8b"},
		{"inputs": []any{map[string]any{"name": "x"}, "y"}, "model": "greet"},
		{"inputs": input.URL, "id_column_name": "id", "column_name": "text", "model": "gpt-oss-20b"},
		{"inputs": []string{"a"}, "model": "qwen-3-embedding-0.6b"},
		{"inputs": []string{"a"}, "cost_estimate": true},
		{"inputs": input.URL + "/", "column_name": "none"},
		{"inputs": []string{"to be deleted"}},
	} {
		var created struct {
			Results string `json:"results"`
		}
		n.call(t, http.MethodPost, "/v1/batch-inference", s, &created)
		jobs = append(jobs, created.Results)
		n.finish(t, created.Results)
	}
	host := must.Get(os.Hostname())(t)
	hooks := must.Get(filepath.Abs("testdata"))(t)
	secret := apiKey // no request can revoke this key
	if key != nil {
		var made struct {
			Key string `json:"key"`
		}
		n.call(t, http.MethodPost, "/v1/keys", key, &made)
		secret = made.Key
	}
	ctx, cancel := context.WithTimeout(t.Context(), length+3*patience)
	defer cancel()
	run := exec.CommandContext(ctx, program, "run", n.base+"/openapi.json", "--continue-on-failure", "--request-timeout", "30", "--workers", "1")
	run.Args = append(run.Args, args...)
	run.Dir = t.TempDir()
	run.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + run.Dir, "LANG=C.UTF-8", "PYTHONPATH=" + hooks, "PYTHONDONTWRITEBYTECODE=1",
		"SCHEMATHESIS_HOOKS=fuzz", "ROWMILL_FUZZ_KEY=" + secret, "ROWMILL_FUZZ_NODE=" + host,
		"ROWMILL_FUZZ_JOBS=" + strings.Join(jobs, ","), "ROWMILL_FUZZ_FUNCTIONS=greet",
	}
	run.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	run.Cancel = func() error { return syscall.Kill(-run.Process.Pid, syscall.SIGKILL) }
	began := time.Now()
	said, err := run.CombinedOutput()
	t.Logf("%s in %v", regexp.MustCompile(`[0-9]+ generated.*`).Find(said), time.Since(began).Round(time.Second))
	if err != nil {
		t.Errorf("schemathesis: %v\n%s", err, said[max(0, len(said)-20_000):])
	}
}
