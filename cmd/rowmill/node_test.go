package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	nethttp "net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rowmill/rowmill/cmd/rowmill/exit"
	"github.com/rowmill/rowmill/cmd/rowmill/settings"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
	"github.com/rowmill/rowmill/internal/must"
)

// start runs a node with the simulated engine on data until the test ends.
func start(t *testing.T, data string, change func(*settings.Settings)) *NodeProcess {
	t.Helper()
	m := prepare(t, data, change)
	must.Succeed(t, m.Run(t.Context()))
	t.Cleanup(func() { stop(t, m) })
	return m
}

func prepare(t *testing.T, data string, change func(*settings.Settings)) *NodeProcess {
	t.Helper()
	s := must.Get(settings.Load(settings.Sources{Flags: []settings.Flag{
		{Name: "data", Key: "data", Values: []string{data}},
		{Name: "listen", Key: "http.listen", Values: []string{"127.0.0.1:0"}},
		{Name: "simulate", Key: "simulator.enabled", Values: []string{"always"}},
		{Name: "ttft", Key: "simulator.ttft", Values: []string{"0s"}},
		{Name: "pace", Key: "simulator.per_token", Values: []string{"0s"}},
		{Name: "interval", Key: "jobs.part_interval", Values: []string{"100ms"}},
	}}))(t)
	if change != nil {
		change(&s)
	}
	m := newNodeProcess(s, slog.New(slog.NewJSONHandler(testWriter{t}, nil)))
	m.checkTimeout = time.Minute // the machine may be busy
	return m
}

func stop(t *testing.T, m *NodeProcess) {
	t.Helper()
	if err := m.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Error("close:", err)
	}
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Logf("%s", strings.TrimSpace(string(p)))
	return len(p), nil
}

func environ(m *NodeProcess, key string) []string {
	return []string{"ROWMILL_SERVER=" + m.Listeners.URL, "ROWMILL_API_KEY=" + key}
}

// A CSV file goes through the client, the API, the pipeline and the simulated engine,
// and the results have the order of the input.
func TestSubmitThroughTheNode(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	m := start(t, filepath.Join(folder, "data"), nil)
	const rows, distinct = 1500, 7
	file := &strings.Builder{}
	fmt.Fprintln(file, "id,prompt")
	for i := range rows {
		fmt.Fprintf(file, "%d,\"number %d,\nplease\"\n", i, i%distinct)
	}
	name := filepath.Join(folder, "in.csv")
	must.Succeed(t, os.WriteFile(name, []byte(file.String()), 0o600))
	results := filepath.Join(folder, "out.json")
	code, _, said := runCommand(t.Context(), environ(m, m.API.FirstKey), "", "jobs", "submit", name, "--column", "prompt",
		"--model", "llama-3.1-8b", "--param", "max_tokens=20", "--include-inputs", "--output", results)
	if code != 0 {
		t.Fatalf("exit code %d:\n%s", code, said)
	}
	if !strings.Contains(said, "using priority 1") {
		t.Errorf("priority 1 was not mentioned:\n%s", said)
	}
	var got struct{ Inputs, Outputs []string }
	content, err := os.ReadFile(results)
	if err == nil {
		err = json.Unmarshal(content, &got)
	}
	if err != nil || len(got.Inputs) != rows || len(got.Outputs) != rows {
		t.Fatalf("%d inputs, %d outputs, error %v", len(got.Inputs), len(got.Outputs), err)
	}
	// The simulated answer depends only on the prompt: equal prompts have equal
	// answers, and different ones different answers.
	seen := map[string]int{}
	for i := range rows {
		if want := fmt.Sprintf("number %d,\nplease", i%distinct); got.Inputs[i] != want {
			t.Fatalf("input %d is %q, want %q", i, got.Inputs[i], want)
		}
		if got.Outputs[i] != got.Outputs[i%distinct] {
			t.Fatalf("row %d has the answer of another prompt", i)
		}
		seen[got.Outputs[i]]++
	}
	if len(seen) != distinct {
		t.Errorf("%d different answers, want %d", len(seen), distinct)
	}

	// The same results as Parquet by a signed URL, and as a table.
	parquet := filepath.Join(folder, "out.parquet")
	_, id, _ := runCommand(t.Context(), environ(m, m.API.FirstKey), "", "jobs", "list", "-o", "json")
	var jobs []struct {
		ID string `json:"job_id"`
	}
	if err := json.Unmarshal([]byte(id), &jobs); err != nil || len(jobs) != 1 {
		t.Fatal(err, id)
	}
	code, _, said = runCommand(t.Context(), environ(m, m.API.FirstKey), "", "jobs", "results", jobs[0].ID, "--output", parquet)
	content, err = os.ReadFile(parquet)
	if code != 0 || err != nil || !strings.HasPrefix(string(content), "PAR1") || !strings.HasSuffix(string(content), "PAR1") {
		t.Errorf("code %d, %d bytes, error %v:\n%s", code, len(content), err, said)
	}
}

func TestRestartKeepsKeyAndJobs(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	m := prepare(t, data, nil)
	must.Succeed(t, m.Run(t.Context()))
	key := m.API.FirstKey
	code, id, said := runCommand(t.Context(), environ(m, key), "one\n", "jobs", "submit", "-", "--detach")
	if code != 0 || key == "" {
		t.Fatalf("code %d, key %q:\n%s", code, key, said)
	}
	stop(t, m)
	stop(t, m) // a second call is harmless

	m = start(t, data, nil)
	if m.API.FirstKey != "" {
		t.Error("the second start made another key")
	}
	code, _, said = runCommand(t.Context(), environ(m, key), "", "jobs", "attach", strings.TrimSpace(id), "--output", filepath.Join(data, "out.parquet"))
	if code != 0 {
		t.Errorf("code %d:\n%s", code, said)
	}
}

func TestSecondProcessIsRefused(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	start(t, data, nil)
	second := prepare(t, data, nil)
	err := second.Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "in use by another process") || !strings.Contains(err.Error(), data) {
		t.Error(err)
	}
}

func TestAddressInUse(t *testing.T) {
	t.Parallel()
	first := start(t, t.TempDir(), nil)
	data := t.TempDir()
	second := prepare(t, data, func(s *settings.Settings) { s.HTTP.Listen = first.Listeners.Addr.String() })
	if err := second.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Fatal(err)
	}
	start(t, data, nil) // the failed start has closed everything
}

func TestAddressesAndHealth(t *testing.T) {
	t.Parallel()
	m := start(t, t.TempDir(), func(s *settings.Settings) {
		s.HTTP.AdminListen = "127.0.0.1:0"
		s.APIKey = "an-administrator-key"
	})
	if m.API.FirstKey != "" {
		t.Error("a key was made although one is configured")
	}
	if code, _, said := runCommand(t.Context(), environ(m, "an-administrator-key"), "", "jobs", "list"); code != 0 {
		t.Errorf("the configured key: code %d:\n%s", code, said)
	}
	admin := "http://" + m.Listeners.AdminAddr.String()
	for _, test := range []struct {
		url    string
		status int
		holds  string
	}{
		{m.Listeners.URL + "/livez", 200, ""},
		{m.Listeners.URL + "/readyz?verbose", 200, "[+] engine\n"},
		{m.Listeners.URL + "/version", 200, readBuildMetadata().Version},
		{m.Listeners.URL + "/metrics", 404, ""},
		{m.Listeners.URL + "/debug/pprof/", 404, ""},
		{admin + "/metrics", 200, "rowmill_build_info{"},
		{admin + "/metrics", 200, "process_open_fds"},
		{admin + "/debug/pprof/", 200, "goroutine"},
		{admin + "/debug/jobs/job-unknown/rows/17", 404, "job-unknown is not known here"},
		{admin + "/debug/jobs/job-unknown/rows/last", 400, "number in the input"},
		{admin + "/v1/list-jobs", 404, ""},
	} {
		status, body := fetch(t, test.url)
		if status != test.status || !strings.Contains(body, test.holds) {
			t.Errorf("%s: %d, want %d with %q:\n%.300s", test.url, status, test.status, test.holds, body)
		}
	}
	awaitReady(t, m, "SIMULATED")
}

func fetch(t *testing.T, url string) (int, string) {
	t.Helper()
	return fetchAs(t, url, "")
}

// readiness returns the answer of /readyz?verbose.
func readiness(t *testing.T, m *NodeProcess) (int, string) {
	t.Helper()
	return fetchAs(t, m.Listeners.URL+"/readyz?verbose", cmp.Or(m.API.FirstKey, m.Settings.APIKey.Reveal()))
}

// fetchAs sends a request with a key, or without any.
func fetchAs(t *testing.T, url, key string) (int, string) {
	t.Helper()
	client := &nethttp.Client{Transport: &nethttp.Transport{DisableKeepAlives: true}}
	req := must.Get(nethttp.NewRequestWithContext(t.Context(), "GET", url, nil))(t)
	if key != "" {
		req.Header.Set("Authorization", "Key "+key)
	}
	resp, err := client.Do(req)
	must.Succeed(t, err)
	defer resp.Body.Close()
	body := must.Get(io.ReadAll(resp.Body))(t)
	if resp.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%s: a browser may take the answer for something else: %v", url, resp.Header)
	}
	return resp.StatusCode, string(body)
}

// `rowmill serve` prints its greeting, says that outputs are simulated, keeps the key
// out of the log, and ends with code 0 after a signal.
func TestServeUntilSignal(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	out, log := &watched{until: "Try it", found: make(chan struct{})}, &watched{}
	term := &terminal.IO{Out: out, Err: log, Environ: []string{"HOME=" + t.TempDir()}}
	code := make(chan int)
	go func() { code <- run(ctx, term, []string{"serve", "--simulate", "--listen", "127.0.0.1:0"}) }()
	select {
	case <-out.found:
	case got := <-code:
		t.Fatalf("ended with code %d:\n%s", got, log.String())
	}
	cancel(exit.Signal{Signal: syscall.SIGTERM})
	if got := <-code; got != 0 {
		t.Errorf("code %d:\n%s", got, log.String())
	}
	key := ""
	for word := range strings.FieldsSeq(out.String()) {
		if strings.HasPrefix(word, "rk_") {
			key = word
		}
	}
	if key == "" || !strings.Contains(out.String(), "SIMULATED") || !strings.Contains(out.String(), ".local/state/rowmill") {
		t.Errorf("the greeting:\n%s", out.String())
	}
	if strings.Contains(log.String(), key) {
		t.Error("the key is in the log")
	}
	for _, want := range []string{`"msg":"listening"`, "OUTPUTS ARE SIMULATED", `"msg":"stopped"`} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %s:\n%s", want, log.String())
		}
	}
}
