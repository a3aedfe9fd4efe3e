package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// batchSettings have rows recorded soon, so that a batch can be struck in its middle.
const batchSettings = "jobs: {part_interval: 500ms, shard_rows: 1024}\n"

// runClient runs a program of testdata that drives a node as a real client does.
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

// TestOpenAIPython drives OpenAI's client for Python, unmodified.
func TestOpenAIPython(t *testing.T) {
	t.Parallel()
	if out, err := exec.CommandContext(t.Context(), "python3", "-c", "import openai").CombinedOutput(); err != nil {
		unable(t, "python3 lacks openai (`.ci/tools python`, and bin/tools/venv/bin in PATH): %v\n%s", err, out)
	}
	n := on(t, batchSettings, startSimulated(t, "--ttft", "1ms", "--per-token", "2ms"))
	n.start(t)
	runClient(t, "python3", "testdata/batches_openai.py", n.base, apiKey)
}

// TestOpenAINode drives OpenAI's client for Node, unmodified, which streams a file
// of 200 MB without saying how long it is.
func TestOpenAINode(t *testing.T) {
	t.Parallel()
	client, err := filepath.Abs("../bin/tools/openai-node")
	if err == nil {
		_, err = os.Stat(filepath.Join(client, "complete"))
	}
	if err != nil {
		unable(t, "OpenAI's client for Node is not there (`.ci/tools node`): %v", err)
	}
	n := on(t, batchSettings, startSimulated(t, "--ttft", "1ms", "--per-token", "0s"))
	n.start(t)
	large := filepath.Join(t.TempDir(), "large.jsonl")
	if err := os.WriteFile(large, bytes.Repeat([]byte(strings.Repeat("x", 1023)+"\n"), 200<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	runClient(t, "node", "testdata/batches_openai.mjs", client, n.base, apiKey, large)
}

// A batchState is what tests read of a batch.
type batchState struct {
	ID     string  `json:"id"`
	Status string  `json:"status"`
	Output *string `json:"output_file_id"`
	Errors *string `json:"error_file_id"`
	Counts struct {
		Total, Completed, Failed int64
	} `json:"request_counts"`
}

// startBatch uploads rows requests and makes a batch of them.
func (n *node) startBatch(t *testing.T, rows int, tokens int) batchState {
	t.Helper()
	var form bytes.Buffer
	parts := multipart.NewWriter(&form)
	file, err := parts.CreateFormFile("file", "in.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for i := range rows {
		fmt.Fprintf(file, `{"custom_id":"row-%d","method":"POST","url":"/v1/chat/completions","body":{"model":"llama-3.1-8b","max_tokens":%d,"ignore_eos":true,"messages":[{"role":"user","content":"%d"}]}}`+"\n", i, tokens, i)
	}
	if err := parts.WriteField("purpose", "batch"); err != nil {
		t.Fatal(err)
	}
	if err := parts.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, n.base+"/v1/files", &form)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+apiKey)
	r.Header.Set("Content-Type", parts.FormDataContentType())
	response, err := n.http.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var sent struct{ ID string }
	if err := json.NewDecoder(response.Body).Decode(&sent); err != nil || sent.ID == "" {
		t.Fatalf("upload: %d, %v", response.StatusCode, err)
	}
	var made batchState
	n.call(t, http.MethodPost, "/v1/batches", map[string]any{"input_file_id": sent.ID, "endpoint": "/v1/chat/completions", "completion_window": "24h"}, &made)
	return made
}

// batch asks for a batch until it is as wanted.
func (n *node) batch(t *testing.T, id string, until func(batchState) bool) (b batchState) {
	t.Helper()
	for deadline := time.Now().Add(2 * patience); ; time.Sleep(50 * time.Millisecond) {
		if n.call(t, http.MethodGet, "/v1/batches/"+id, nil, &b); until(b) {
			return b
		}
		if time.Now().After(deadline) {
			t.Fatalf("batch %+v", b)
		}
	}
}

// outcomes are the custom_ids of a file of a batch.
func (n *node) outcomes(t *testing.T, file *string) (ids []string) {
	t.Helper()
	if file == nil {
		return nil
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, n.base+"/v1/files/"+*file+"/content", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+apiKey)
	response, err := n.http.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	lines := bufio.NewReader(response.Body)
	for {
		text, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return ids
		}
		var line struct {
			ID string `json:"custom_id"`
		}
		if err != nil || json.Unmarshal(text, &line) != nil {
			t.Fatalf("line %q: %v", text, err)
		}
		ids = append(ids, line.ID)
	}
}

// A batch whose node is killed in the middle, and whose files are made by another
// process: every request has one line, in order, and no request that was recorded
// runs again.
func TestBatch_KilledInTheMiddle(t *testing.T) {
	t.Parallel()
	const rows = 6000
	s := startSimulated(t, "--ttft", "1ms", "--per-token", "2ms")
	n := on(t, batchSettings, s)
	n.start(t)
	b := n.startBatch(t, rows, 50)
	n.batch(t, b.ID, func(b batchState) bool { return b.Counts.Completed > 1000 })
	n.kill()
	n.start(t)
	b = n.batch(t, b.ID, func(b batchState) bool { return b.Status == "completed" })
	ids := n.outcomes(t, b.Output)
	if b.Counts.Completed != rows || b.Counts.Failed != 0 || b.Errors != nil || len(ids) != rows {
		t.Fatalf("batch %+v with %d lines", b, len(ids))
	}
	for i, id := range ids {
		if id != fmt.Sprintf("row-%d", i) {
			t.Fatalf("line %d is of %s", i, id)
		}
	}
}
