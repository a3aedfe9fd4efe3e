package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"mime/multipart"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/wait"
)

// batchSettings commit rows often, so that a node can be killed in the middle of a
// batch.
const batchSettings = "jobs: {part_interval: 500ms, shard_rows: 1024}\n"

// runClient runs a client program of testdata against a node.
func runClient(t *testing.T, program ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	c := exec.CommandContext(ctx, "env", program...)
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "TMPDIR=" + t.TempDir()}
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	if said, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v: %v\n%s", program, err, said[max(0, len(said)-4000):])
	}
}

// TestOpenAIPython runs OpenAI's Python client, unmodified.
func TestOpenAIPython(t *testing.T) {
	t.Parallel()
	needPython(t)
	n := on(t, batchSettings, startSimulated(t, "--ttft", "1ms", "--per-token", "2ms")).start(t)
	runClient(t, "python3", "testdata/batches_openai.py", n.base, apiKey)
}

// TestOpenAINode runs OpenAI's client for Node, unmodified. It streams a file of 200 MB
// without a Content-Length.
func TestOpenAINode(t *testing.T) {
	t.Parallel()
	clients := nodeClients(t)
	n := on(t, batchSettings, startSimulated(t, "--ttft", "1ms", "--per-token", "0s")).start(t)
	large := filepath.Join(t.TempDir(), "large.jsonl")
	must.Succeed(t, os.WriteFile(large, bytes.Repeat([]byte(strings.Repeat("x", 1023)+"\n"), 200<<10), 0o600))
	runClient(t, "node", "testdata/batches_openai.mjs", clients, n.base, apiKey, large)
}

// nodeClients returns the folder of the clients for Node.
func nodeClients(t *testing.T) string {
	t.Helper()
	clients, err := filepath.Abs("../bin/tools/node")
	if err == nil {
		_, err = os.Stat(filepath.Join(clients, "complete"))
	}
	if err != nil {
		unable(t, "the clients for Node are not there (`.ci/tools node`): %v", err)
	}
	return clients
}

// TestAnthropicClients runs Anthropic's clients, unmodified: the Python client, an
// older Python client that sends its key in another header, and the client for Node.
func TestAnthropicClients(t *testing.T) {
	t.Parallel()
	needPython(t)
	older, clients := pythonTool(t, "anthropic", "ANTHROPIC_OLD"), nodeClients(t)
	n := on(t, batchSettings, startSimulated(t, "--ttft", "1ms", "--per-token", "2ms")).start(t)
	runClient(t, "node", "testdata/batches_anthropic.mjs", clients, n.base, apiKey) // first, because it lists all batches
	runClient(t, "python3", "testdata/batches_anthropic.py", n.base, apiKey, "all")
	runClient(t, older+"/python3", "testdata/batches_anthropic.py", n.base, apiKey, "all")
}

// TestLiteLLM runs LiteLLM, unmodified; only the node's URL is set.
func TestLiteLLM(t *testing.T) {
	t.Parallel()
	program := pythonTool(t, "litellm", "LITELLM")
	n := on(t, batchSettings, startSimulated(t, "--ttft", "1ms", "--per-token", "0s")).start(t)
	runClient(t, program+"/python3", "testdata/batches_litellm.py", n.base, apiKey)
}

// TestAnthropicClients_ManyRequests sends a hundred thousand requests through one node.
func TestAnthropicClients_ManyRequests(t *testing.T) {
	t.Parallel()
	needPython(t)
	n := on(t, "", startSimulated(t, "--ttft", "1ms", "--per-token", "0s")).start(t)
	runClient(t, "python3", "testdata/batches_anthropic.py", n.base, apiKey, "many")
}

// A batchState holds the fields of a batch that tests read.
type batchState struct {
	ID     string  `json:"id"`
	Status string  `json:"status"`
	Output *string `json:"output_file_id"`
	Errors *string `json:"error_file_id"`
	Counts struct {
		Total, Completed, Failed int64
	} `json:"request_counts"`
}

// startBatch uploads a file of requests and makes a batch from it.
func (n *node) startBatch(t *testing.T, rows int, tokens int) batchState {
	t.Helper()
	var form bytes.Buffer
	parts := multipart.NewWriter(&form)
	file := must.Get(parts.CreateFormFile("file", "in.jsonl"))(t)
	for i := range rows {
		fmt.Fprintf(file, `{"custom_id":"row-%d","method":"POST","url":"/v1/chat/completions","body":{"model":"llama-3.1-8b","max_tokens":%d,"ignore_eos":true,"messages":[{"role":"user","content":"%d"}]}}`+"\n", i, tokens, i)
	}
	must.Succeed(t, parts.WriteField("purpose", "batch"))
	must.Succeed(t, parts.Close())
	r := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, n.base+"/v1/files", &form))(t)
	r.Header.Set("Authorization", "Bearer "+apiKey)
	r.Header.Set("Content-Type", parts.FormDataContentType())
	response, err := n.http.Do(r)
	must.Succeed(t, err)
	defer response.Body.Close()
	var sent struct{ ID string }
	if err := json.NewDecoder(response.Body).Decode(&sent); err != nil || sent.ID == "" {
		t.Fatalf("upload: %d, %v", response.StatusCode, err)
	}
	var made batchState
	n.call(t, http.MethodPost, "/v1/batches", map[string]any{"input_file_id": sent.ID, "endpoint": "/v1/chat/completions", "completion_window": "24h"}, &made)
	return made
}

// batch requests a batch until until returns true.
func (n *node) batch(t *testing.T, id string, until func(batchState) bool) (b batchState) {
	t.Helper()
	wait.Until(t, func() error {
		if n.call(t, http.MethodGet, "/v1/batches/"+id, nil, &b); until(b) {
			return nil
		}
		return fmt.Errorf("batch %+v", b)
	})
	return b
}

// outcomes returns the custom_ids in a file of a batch.
func (n *node) outcomes(t *testing.T, file *string) []string {
	t.Helper()
	if file == nil {
		return nil
	}
	return n.lineIDs(t, "/v1/files/"+*file+"/content")
}

// lineIDs returns the custom_ids of the lines at a path.
func (n *node) lineIDs(t *testing.T, path string) (ids []string) {
	t.Helper()
	for line := range strings.Lines(n.asked(t, path)) {
		var one struct {
			ID string `json:"custom_id"`
		}
		must.Succeed(t, json.Unmarshal([]byte(line), &one))
		ids = append(ids, one.ID)
	}
	return ids
}

// A node is killed in the middle of a batch, and another process makes the batch's
// files. Every request has one line, in order, and no committed request runs again.
func TestBatch_KilledInTheMiddle(t *testing.T) {
	t.Parallel()
	const rows = 6000
	s := startSimulated(t, "--ttft", "1ms", "--per-token", "2ms")
	n := on(t, batchSettings, s).start(t)
	b := n.startBatch(t, rows, 50)
	n.batch(t, b.ID, func(b batchState) bool { return b.Counts.Completed > 1000 })
	n.kill()
	n.start(t)
	b = n.batch(t, b.ID, func(b batchState) bool { return b.Status == "completed" })
	ids := n.outcomes(t, b.Output)
	if b.Counts.Completed != rows || b.Counts.Failed != 0 || b.Errors != nil {
		t.Fatalf("batch %+v", b)
	}
	inOrder(t, ids, rows)
}

// inOrder checks that every request has one line, in order.
func inOrder(t *testing.T, ids []string, rows int) {
	t.Helper()
	if len(ids) != rows {
		t.Fatalf("%d lines of %d requests", len(ids), rows)
	}
	for i, id := range ids {
		if id != fmt.Sprintf("row-%d", i) {
			t.Fatalf("line %d is of %s", i, id)
		}
	}
}

// The same for a cancelled batch: requests that were committed have an answer, and the
// others a line with an error. A kill in between does not change this.
func TestBatch_KilledAtItsCancel(t *testing.T) {
	t.Parallel()
	const rows = 6000
	n := on(t, batchSettings, startSimulated(t, "--ttft", "1ms", "--per-token", "2ms")).start(t)
	b := n.startBatch(t, rows, 50)
	before := n.batch(t, b.ID, func(b batchState) bool { return b.Counts.Completed > 1000 })
	n.call(t, http.MethodPost, "/v1/batches/"+b.ID+"/cancel", nil, &b)
	n.kill()
	n.start(t)
	b = n.batch(t, b.ID, func(b batchState) bool { return b.Status == "cancelled" })
	answered, rest := n.outcomes(t, b.Output), n.outcomes(t, b.Errors)
	if int64(len(answered)) != b.Counts.Completed || b.Counts.Completed < before.Counts.Completed || len(answered)+len(rest) != rows {
		t.Fatalf("batch %+v with %d answers and %d others; before the cancel %d", b, len(answered), len(rest), before.Counts.Completed)
	}
	all := append(slices.Clone(answered), rest...)
	slices.Sort(all)
	if all = slices.Compact(all); len(all) != rows {
		t.Errorf("%d of %d requests have a line", len(all), rows)
	}
}
