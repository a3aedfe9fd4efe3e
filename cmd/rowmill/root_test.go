package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/rowmill/rowmill/cmd/rowmill/exit"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
	"github.com/rowmill/rowmill/internal/must"
)

// TestMain runs the tests, or a command with which a node in a test starts a server.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == guardName || os.Args[1] == "sim") {
		main()
	}
	// The last probe of a closed cluster ends half a second later.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).probeNode"))
}

// runCommand runs a command line that ends by itself.
func runCommand(ctx context.Context, environ []string, stdin string, args ...string) (code int, out, errOut string) {
	var stdout, stderr bytes.Buffer
	term := &terminal.IO{In: strings.NewReader(stdin), Out: &stdout, Err: &stderr, Environ: environ, Width: func() int { return 80 }}
	code = run(ctx, term, args)
	return code, stdout.String(), stderr.String()
}

func TestCommandLine(t *testing.T) {
	t.Parallel()
	broken := filepath.Join(t.TempDir(), "rowmill.yaml")
	must.Succeed(t, os.WriteFile(broken, []byte("jobs: {max_activ: 1}\n"), 0o600))
	for _, test := range []struct {
		args    string
		environ string
		code    int
		out     string
		err     string
	}{
		{"", "", 0, "rowmill serve", ""},
		{"--help", "", 0, "rowmill jobs submit", ""},
		{"help jobs submit", "", 0, "--id-column", ""},
		{"sevre", "", 2, "", "did you mean serve?"},
		{"jobs lits", "", 2, "", "did you mean list?"},
		{"serve extra", "", 2, "", "usage: rowmill serve"},
		{"serve --nonsense", "", 2, "", "unknown flag: --nonsense; see rowmill serve --help"},
		{"jobs get", "", 2, "", "accepts 1 arg"},
		{"serve --set jobs.max_activ=1", "", 2, "", "did you mean jobs.max_active?"},
		{"serve --set jobs.max_active", "", 2, "", "KEY=VALUE"},
		{"serve --config " + broken, "", 2, "", broken + ":1: unknown key jobs.max_activ"},
		{"serve", "ROWMILL_CONFIG=" + broken, 2, "", "unknown key"},
		{"serve --listen nowhere", "", 2, "", "http.listen"},
		{"config validate", "", 0, "", "valid"},
		{"config validate --config " + broken, "", 2, "", "unknown key"},
		{"config print --listen 127.0.0.1:9 --engine http://a --engine http://b", "", 0, "url: http://b", ""},
		{"config print --simulate --set discover.addresses=[gpu:1]", "", 0, "simulator:\n  enabled: always", ""},
		{"config print --simulate=never", "", 0, "  - 127.0.0.1:11434", ""},
		{"config print --simulate --engine http://a", "", 2, "", "never mixed"},
		{"config print --simulate=perhaps", "", 2, "", "auto, always or never"},
		{"config print", "ROWMILL_API_KEY=hush", 0, "api_key: (redacted)", ""},
		{"version", "", 0, "rowmill ", ""},
		{"version -o xml", "", 2, "", "text or json"},
		{"sim --slots 0", "", 2, "", "--slots"},
		{"sim --log-level loud", "", 2, "", "log.level"},
		{"completion bash", "", 0, "bash completion", ""},
	} {
		environ := []string{"HOME=/home/someone"}
		if test.environ != "" {
			environ = append(environ, test.environ)
		}
		code, out, errOut := runCommand(t.Context(), environ, "", strings.Fields(test.args)...)
		if code != test.code || !strings.Contains(out, test.out) || !strings.Contains(errOut, test.err) {
			t.Errorf("rowmill %s: code %d, want %d\n--- standard output, want %q:\n%s\n--- standard error, want %q:\n%s",
				test.args, code, test.code, test.out, out, test.err, errOut)
		}
		if strings.Contains(out+errOut, "hush") {
			t.Errorf("rowmill %s shows a secret", test.args)
		}
	}
}

func TestVersionJSON(t *testing.T) {
	t.Parallel()
	_, out, _ := runCommand(t.Context(), nil, "", "version", "-o", "json")
	var b buildMetadata
	if err := json.Unmarshal([]byte(out), &b); err != nil || b.Version == "" || !strings.HasPrefix(b.Go, "go") {
		t.Errorf("%+v, error %v", b, err)
	}
}

func TestUntilSignal(t *testing.T) {
	t.Parallel()
	ctx, stop := contextUntilSignal(t.Context(), syscall.SIGUSR1)
	defer stop()
	must.Succeed(t, syscall.Kill(os.Getpid(), syscall.SIGUSR1))
	<-ctx.Done()
	if cause := context.Cause(ctx); !errors.Is(cause, exit.Signal{Signal: syscall.SIGUSR1}) {
		t.Errorf("cause %v", cause)
	}
	ctx, stop = contextUntilSignal(t.Context(), syscall.SIGUSR2)
	stop()
	<-ctx.Done()
}
