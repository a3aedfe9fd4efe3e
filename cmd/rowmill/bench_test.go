package main

import (
	"bytes"
	"context"
	"encoding/json"
	nethttp "net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/cmd/rowmill/exit"
	"github.com/rowmill/rowmill/cmd/rowmill/settings"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/redistest"
	"github.com/rowmill/rowmill/internal/wait"
)

// benched holds the part of `rowmill bench -o json` that the tests check.
type benched struct {
	Model     string
	Simulated bool
	Engines   *struct{ Median float64 }           `json:"engines_rows_per_second"`
	Ratio     *struct{ Median, Min, Max float64 } `json:"ratio"`
	Driven    []string                            `json:"driven_directly"`
	Sent      int                                 `json:"rows_sent_directly"`
	Steps     []struct {
		Rows float64 `json:"rows_per_second"`
	} `json:"steps"`
	Jobs []struct {
		Rows    int
		Failed  int     `json:"failed_rows"`
		Seconds float64 `json:"seconds"`
		Bytes   int64   `json:"result_bytes"`
		Tokens  int64
		Problem string
	}
	Storage []struct {
		Node   string
		Commit *struct{ Median float64 } `json:"commit_seconds"`
		Sync   *struct{ Median float64 } `json:"sync_seconds"`
		Put    *struct{ Median float64 } `json:"put_seconds"`
		Get    *struct{ Median float64 } `json:"get_seconds"`
	}
	Parts []struct {
		Part string
		Rows float64 `json:"rows_per_second"`
	}
	Findings []client.Finding
}

// benchmark runs a very short rowmill bench and returns its report.
func benchmark(t *testing.T, m *NodeProcess, args ...string) (benched, string) {
	t.Helper()
	args = append([]string{"bench", "-o", "json", "--length", "2s", "--rounds", "2", "--max-rows", "60", "--model", "llama-3.1-8b"}, args...)
	code, out, said := runCommand(t.Context(), environ(m, clusterKey), "", args...)
	var b benched
	if err := json.Unmarshal([]byte(out), &b); err != nil || code != 0 {
		t.Fatalf("exit code %d, error %v\n%s%s", code, err, out, said)
	}
	return b, said
}

func operator(t *testing.T, m *NodeProcess) *client.Client {
	t.Helper()
	api := must.Get(client.New(client.Config{Server: m.Listeners.URL, Key: clusterKey}))(t)
	t.Cleanup(api.Close)
	return api
}

// leftNothing checks that all jobs have ended, have the name of the bench, and have no
// data.
func leftNothing(t *testing.T, api *client.Client, jobs int) []client.Job {
	t.Helper()
	page, _, err := api.ListJobs(t.Context(), client.ListJobsParams{Limit: 100})
	if err != nil || len(page.Jobs) != jobs {
		t.Fatalf("%d jobs, want %d, error %v", len(page.Jobs), jobs, err)
	}
	for _, job := range page.Jobs {
		if !job.Status.IsTerminal() || job.Name == nil || !strings.HasPrefix(*job.Name, "rowmill bench ") {
			t.Errorf("left: %s", job.Raw)
		}
		if _, _, err := api.ListErrors(t.Context(), job.ID, client.ListErrorsParams{Limit: 1}); err == nil || !strings.Contains(err.Error(), "HTTP 410") {
			t.Errorf("the data of %s is not deleted: %v", job.ID, err)
		}
	}
	return page.Jobs
}

func TestBench(t *testing.T) {
	t.Parallel()
	m := start(t, t.TempDir(), func(s *settings.Settings) { s.APIKey = clusterKey })
	up(t, m, 1)
	b, said := benchmark(t, m)
	if b.Model != "llama-3.1-8b" || !b.Simulated || b.Engines == nil || b.Ratio == nil || b.Ratio.Min <= 0 || len(b.Driven) != 1 || b.Sent == 0 || len(b.Steps) == 0 || len(b.Jobs) != 2 {
		t.Errorf("%+v\n%s", b, said)
	}
	for _, j := range b.Jobs {
		if j.Rows < 20 || j.Rows > 60 || j.Failed != 0 || j.Seconds <= 0 || j.Bytes == 0 || j.Tokens == 0 || j.Problem != "" {
			t.Errorf("job %+v", j)
		}
	}
	if len(b.Storage) != 1 || b.Storage[0].Commit == nil || b.Storage[0].Sync == nil || b.Storage[0].Put == nil || b.Storage[0].Get == nil {
		t.Errorf("storage %+v", b.Storage)
	}
	if len(b.Parts) != 4 || len(b.Findings) == 0 || !strings.Contains(b.Findings[0].Text, "simulated") {
		t.Errorf("parts %+v, findings %+v", b.Parts, b.Findings)
	}
	if !strings.Contains(said, "jobs on llama-3.1-8b: at most 120 rows, up to 19,680 tokens") {
		t.Errorf("it does not say beforehand what it uses:\n%s", said)
	}
	leftNothing(t, operator(t, m), 2)

	code, out, said := runCommand(t.Context(), environ(m, clusterKey), "", "bench", "--length", "1s", "--rounds", "1", "--max-rows", "20")
	if code != 0 || !strings.Contains(out, "SIMULATED") || !strings.Contains(out, "Rowmill ÷ servers") || !strings.Contains(out, "n=1") {
		t.Errorf("exit code %d:\n%s%s", code, out, said)
	}
	for args, want := range map[string]struct {
		code int
		says string
	}{
		"--rounds 0":         {exit.Usage, "--rounds must be 1 to 100, is 0"},
		"--length 1ms":       {exit.Usage, "--length must be 1s to 1h"},
		"--max-rows 1":       {exit.Usage, "--max-rows must be 20 to"},
		"--max-tokens 0":     {exit.Usage, "--max-tokens must be 1 to"},
		"--model nothing":    {exit.NotFound, `no model "nothing" that generates text is served`},
		"--api-key rk_wrong": {exit.Auth, "401"},
	} {
		code, out, said := runCommand(t.Context(), environ(m, clusterKey), "", append([]string{"bench"}, strings.Fields(args)...)...)
		if code != want.code || !strings.Contains(said, want.says) {
			t.Errorf("%s: exit code %d\n%s%s", args, code, out, said)
		}
	}
}

// bench drives all servers of a cluster at once, and every node times its storage.
func TestBench_Cluster(t *testing.T) {
	t.Parallel()
	nodes := members(t, redistest.Start(t), t.TempDir(), asIs, asIs)
	for _, m := range nodes {
		up(t, m, 1)
	}
	b, said := benchmark(t, nodes[0])
	if len(b.Driven) != 2 || b.Ratio == nil || len(b.Storage) != 2 {
		t.Errorf("%+v\n%s", b, said)
	}
	for _, s := range b.Storage {
		if s.Commit == nil || s.Sync != nil || s.Put == nil {
			t.Errorf("storage %+v", s)
		}
	}
	leftNothing(t, operator(t, nodes[1]), 2)
}

// A server that requires a key is driven with that key only. Without the key there is
// no ratio, and bench says so.
func TestBench_ServerThatAsksForAKey(t *testing.T) {
	t.Parallel()
	proxy := proxyOf(t, rowmill.Model{ID: "llama-3.1-8b", Kind: rowmill.KindGeneration, ContextLength: 4096})
	front := httptest.NewServer(nethttp.HandlerFunc(func(w nethttp.ResponseWriter, r *nethttp.Request) {
		if r.Header.Get("Authorization") != "Bearer of-the-server" {
			w.WriteHeader(nethttp.StatusUnauthorized)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	m := start(t, t.TempDir(), func(s *settings.Settings) {
		s.APIKey, s.Simulator.Enabled = clusterKey, settings.Auto
		s.Engines = []settings.Engine{{URL: front.URL, Name: "locked", APIKey: "of-the-server"}}
	})
	up(t, m, 1)
	b, said := benchmark(t, m)
	if b.Engines != nil || b.Ratio != nil || b.Sent != 0 || len(b.Jobs) != 2 || len(b.Steps) != 0 {
		t.Errorf("without the key: %+v\n%s", b, said)
	}
	found := false
	for _, f := range b.Findings {
		found = found || strings.Contains(f.Text, "not driven directly") && strings.Contains(f.Text, "--engine-key-file")
	}
	if !found {
		t.Errorf("without the key: %+v", b.Findings)
	}
	key := filepath.Join(t.TempDir(), "key")
	must.Succeed(t, os.WriteFile(key, []byte("of-the-server\n"), 0o600))
	if b, said := benchmark(t, m, "--engine-key-file", key); b.Ratio == nil || b.Sent == 0 {
		t.Errorf("with the key: %+v\n%s", b, said)
	}
}

func TestBench_Quota(t *testing.T) {
	t.Parallel()
	m := start(t, t.TempDir(), func(s *settings.Settings) {
		s.APIKey = clusterKey
		for i := range s.Quotas {
			s.Quotas[i].RowQuota = new(int64(5))
		}
	})
	up(t, m, 1)
	code, out, said := runCommand(t.Context(), environ(m, clusterKey), "", "bench", "--length", "1s", "--max-rows", "20")
	if code != exit.Failure || out != "" || !strings.Contains(said, "a quota forbids the job of 20 rows") || !strings.Contains(said, "smaller --max-rows") {
		t.Errorf("exit code %d:\n%s%s", code, out, said)
	}
}

// Ctrl-C while the job runs cancels it and deletes its data.
func TestBench_Interrupted(t *testing.T) {
	t.Parallel()
	m := start(t, t.TempDir(), func(s *settings.Settings) {
		s.APIKey = clusterKey
		s.Simulator.Slots, s.Simulator.TTFT = 1, 10*time.Millisecond
	})
	up(t, m, 1)
	api := operator(t, m)
	ctx, cancel := context.WithCancelCause(t.Context())
	var out, said bytes.Buffer
	code := make(chan int)
	go func() {
		term := &terminal.IO{In: strings.NewReader(""), Out: &out, Err: &said, Environ: environ(m, clusterKey), Width: func() int { return 80 }}
		code <- run(ctx, term, []string{"bench", "--length", "8s", "--rounds", "1"})
	}()
	wait.For(t, "its job runs", func() bool {
		page, _, err := api.ListJobs(t.Context(), client.ListJobsParams{Limit: 1})
		return err == nil && len(page.Jobs) == 1 && page.Jobs[0].Status == rowmill.StatusRunning
	})
	cancel(exit.Signal{Signal: syscall.SIGINT})
	if got := <-code; got != exit.Interrupted || out.Len() > 0 || !strings.Contains(said.String(), "is cancelled and its data deleted") {
		t.Errorf("exit code %d:\n%s%s", got, out.String(), said.String())
	}
	if job := leftNothing(t, api, 1)[0]; job.Status != rowmill.StatusCancelled {
		t.Errorf("it is %s", job.Status)
	}
}
