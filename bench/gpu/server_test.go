package gpu

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/wait"
)

// torch returns a Python with torch, named by the environment. CI installs none.
func torch(t *testing.T) string {
	t.Helper()
	python := os.Getenv("ROWMILL_TORCH")
	if python == "" {
		t.Skip("SKIPPED, NOT TESTED: the PyTorch server; ROWMILL_TORCH names a Python that has torch")
	}
	return python
}

// With cache, batches and slots the model generates the same tokens as without.
func TestServerModel(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), torch(t), "server.py", "--check").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "check: ok") {
		t.Errorf("%v: %s", err, out)
	}
}

// startServer starts the server with a tiny model, two slots and a context of 64
// tokens.
func startServer(t *testing.T) (base string) {
	t.Helper()
	python, dir := torch(t), t.TempDir()
	must.Succeed(t, Tiny.Write(dir, 64, 8))
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	port := listener.Addr().(*net.TCPAddr).Port
	_ = listener.Close()
	server := exec.CommandContext(t.Context(), python, "server.py", "--model", dir, "--name", "tiny", "--device", "cpu",
		"--slots", "2", "--context", "64", "--port", fmt.Sprint(port))
	log := must.Get(os.Create(filepath.Join(t.ArtifactDir(), "server.log")))(t)
	server.Stdout, server.Stderr = log, log
	must.Succeed(t, server.Start())
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
		_ = log.Close()
	})
	base = fmt.Sprintf("http://127.0.0.1:%d", port)
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		res, err := http.Get(base + "/health")
		if err == nil {
			_ = res.Body.Close()
			return base
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

func TestServer(t *testing.T) {
	t.Parallel()
	base := startServer(t)
	ask := func(body string) (int, string) {
		res, err := http.Post(base+"/v1/chat/completions", "application/json", strings.NewReader(body))
		must.Succeed(t, err)
		defer res.Body.Close()
		data := must.Get(io.ReadAll(res.Body))(t)
		return res.StatusCode, string(data)
	}
	type answer struct {
		Choices []struct {
			Message struct{ Content string }
			Reason  string `json:"finish_reason"`
		}
		Usage struct {
			Prompt int `json:"prompt_tokens"`
			Answer int `json:"completion_tokens"`
		}
	}
	chat := func(fields string) string {
		return `{"model": "tiny", "messages": [{"role": "user", "content": "the word  water"}]` + fields + `}`
	}
	t.Run("whole answers", func(t *testing.T) {
		status, text := ask(chat(`, "max_tokens": 20, "ignore_eos": true`))
		var got answer
		if err := json.Unmarshal([]byte(text), &got); err != nil || status != http.StatusOK {
			t.Fatalf("%d %s: %v", status, text, err)
		}
		if got.Usage.Prompt != 3 || got.Usage.Answer != 20 || got.Choices[0].Reason != "length" || len(strings.Fields(got.Choices[0].Message.Content)) != 20 {
			t.Errorf("want 3 tokens in and 20 out, ended by length: %s", text)
		}
	})
	t.Run("answers end by themselves", func(t *testing.T) {
		const asked = 200
		tokens, stopped := 0, 0
		for range asked {
			_, text := ask(chat(`, "max_tokens": 60`))
			var got answer
			must.Succeed(t, json.Unmarshal([]byte(text), &got))
			tokens += got.Usage.Answer
			if got.Choices[0].Reason == "stop" {
				stopped++
			}
		}
		// Lengths are geometric with mean 8: the mean of 200 lengths is between 5 and
		// 14 for any draw.
		if mean := float64(tokens) / asked; mean < 5 || mean > 14 || stopped < asked/2 {
			t.Errorf("answers of %.1f tokens in the mean, %d of %d ended by themselves: want about 8, and most", mean, stopped, asked)
		}
	})
	t.Run("temperature 0", func(t *testing.T) {
		_, first := ask(chat(`, "max_tokens": 9, "temperature": 0, "ignore_eos": true`))
		_, second := ask(chat(`, "max_tokens": 9, "temperature": 0, "ignore_eos": true`))
		text := func(s string) string { _, after, _ := strings.Cut(s, `"message"`); return after }
		if text(first) != text(second) {
			t.Errorf("greedy answers differ:\n%s\n%s", first, second)
		}
	})
	for _, refused := range []struct {
		body, want string
		status     int
	}{
		{chat(`, "max_tokens": 62`), "context_length_exceeded", 400},
		{chat(`, "logprobs": true`), "logprobs: True is not supported", 400},
		{chat(`, "guided_json": {}`), "guided_json", 400},
		{`{"model": "other", "messages": []}`, "model_not_found", 404},
		{`{"model": "tiny"`, "not a request for a chat", 400},
	} {
		if status, text := ask(refused.body); status != refused.status || !strings.Contains(text, refused.want) {
			t.Errorf("%s: %d %s, want %d and %q", refused.body, status, text, refused.status, refused.want)
		}
	}
	t.Run("cancelled answers leave", func(t *testing.T) {
		gauge := func(name string) string {
			res, err := http.Get(base + "/metrics")
			must.Succeed(t, err)
			defer res.Body.Close()
			page := must.Get(io.ReadAll(res.Body))(t)
			_, after, _ := strings.Cut(string(page), "bench:"+name+" ")
			value, _, _ := strings.Cut(after, "\n")
			return value
		}
		answered := must.Get(strconv.Atoi(gauge(`request_success_total{finished_reason="length"}`)))(t)
		const gone = 50 // with two slots, few are answered before their client leaves
		for range gone {
			conn := must.Get(net.Dial("tcp", strings.TrimPrefix(base, "http://")))(t)
			body := chat(`, "max_tokens": 61, "ignore_eos": true`)
			must.Get(fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s", len(body), body))(t)
			must.Succeed(t, conn.Close())
		}
		total := func() (n int) {
			for _, reason := range []string{"abort", "length"} {
				value := must.Get(strconv.Atoi(gauge(`request_success_total{finished_reason="` + reason + `"}`)))(t)
				n += value
			}
			return n
		}
		wait.For(t, "all are over", func() bool { return total() >= answered+gone })
		aborted, err := strconv.Atoi(gauge(`request_success_total{finished_reason="abort"}`))
		if err != nil || aborted < gone/2 {
			t.Errorf("%d of %d answers to clients that had gone were given up (%v): want most", aborted, gone, err)
		}
		if running, waiting := gauge("num_requests_running"), gauge("num_requests_waiting"); running != "0" || waiting != "0" {
			t.Errorf("%s still run and %s wait", running, waiting)
		}
	})
}
