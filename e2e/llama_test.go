package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rowmill/rowmill/internal/llama"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/wait"
)

// catalogOf writes a catalog and returns the setting that names it.
func catalogOf(t *testing.T, models string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "models.yaml")
	must.Succeed(t, os.WriteFile(path, []byte("models:\n"+models), 0o600))
	return "catalog: " + path + "\n"
}

// log returns the node's log.
func (n *node) log(t *testing.T) string {
	t.Helper()
	return string(must.Get(os.ReadFile(filepath.Join(filepath.Dir(n.data), "log")))(t))
}

// says waits until the log after an offset contains one of texts, and returns its
// length.
func (n *node) says(t *testing.T, from int, texts ...string) int {
	t.Helper()
	var log string
	wait.For(t, fmt.Sprintf("the node logs one of %q", texts), func() bool {
		log = n.log(t)
		return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(log[from:], text) })
	})
	return len(log)
}

// TestLlamaKilledAndStartedAgain kills a real llama-server with SIGKILL in the middle
// of a job, waits until the node has noticed, and starts the server again on its port.
// The job must succeed with one output per row, in order: the same outputs as an
// undisturbed job with the same seed.
func TestLlamaKilledAndStartedAgain(t *testing.T) {
	t.Parallel()
	const rows = 400
	server := llama.Start(t, llama.Chat, llama.Options{})
	n := newNode(t, server.URL, "jobs: {part_interval: 500ms, shard_rows: 256}\n"+catalogOf(t,
		"  - {id: tiny, kind: generation, context_length: 2048, engine_names: [tiny-chat], sampling: {temperature: 0.8, max_tokens: 48, seed: 7}}\n"))
	n.start(t)
	texts := rowTexts(rows)
	order := submission{Inputs: texts, Model: "tiny", Priority: 1}

	calm := n.submit(t, order)
	n.succeeds(t, calm)
	want, _ := n.results(t, calm)

	id := n.submit(t, order)
	begun := n.until(t, id, "begun", func(r record) bool { return r.RowsDone > 0 })
	if begun.over() {
		t.Fatal("the job was over before the server could be killed")
	}
	said := len(n.log(t))
	server.Kill()
	said = n.says(t, said, "engine is down")
	atKill := n.job(t, id)
	llama.Start(t, llama.Chat, llama.Options{Port: server.Port})
	n.says(t, said, "engine is up")

	n.succeedsWith(t, id, rows)
	outputs, inputs := n.results(t, id)
	if len(outputs) != rows || len(inputs) != rows || len(want) != rows {
		t.Fatalf("%d outputs, %d inputs, %d outputs undisturbed", len(outputs), len(inputs), len(want))
	}
	alike := 0
	for i := range rows {
		if inputs[i] != texts[i] || outputs[i] == nil || want[i] == nil {
			t.Fatalf("row %d: input %q, output %s, undisturbed %s", i, inputs[i], show(outputs[i]), show(want[i]))
		}
		if *outputs[i] == *want[i] {
			alike++
		}
	}
	t.Logf("killed after %d of %d rows were done; %d answers equal the answers of the undisturbed job", atKill.RowsDone, rows, alike)
	// Other rows in a batch change the last digits of a row's numbers, and sometimes a
	// token. If rows were out of order, hardly any answer would be equal.
	if alike < rows*9/10 {
		t.Errorf("only %d of %d answers equal the answers of the undisturbed job", alike, rows)
	}
}

// TestOneServerThinksAndDoesNot runs a plain model and its thinking variant, which
// differ in the catalog only by request_extras, on one real server at the same time.
func TestOneServerThinksAndDoesNot(t *testing.T) {
	t.Parallel()
	const rows = 40
	server := llama.Start(t, llama.Think, llama.Options{})
	n := newNode(t, server.URL, catalogOf(t, `
  - id: twin
    kind: generation
    context_length: 2048
    engine_names: [tiny-think]
    sampling: {temperature: 0.8, max_tokens: 400}
    request_extras: {chat_template_kwargs: {enable_thinking: false}}
  - id: twin-thinking
    kind: reasoning
    context_length: 2048
    engine_names: [tiny-think]
    sampling: {temperature: 0.8, max_tokens: 400}
    request_extras: {chat_template_kwargs: {enable_thinking: true}}
`))
	n.start(t)
	texts := rowTexts(rows)
	jobs := map[string]string{}
	for _, model := range []string{"twin", "twin-thinking"} {
		jobs[model] = n.submit(t, submission{Inputs: texts, Model: model, Priority: 1})
	}
	for model, id := range jobs {
		if job := n.finish(t, id); job.Status != "succeeded" || job.FailedRows != 0 {
			t.Fatalf("%s: %+v (%+v)", model, job, job.FailureReason)
		}
		outputs, _ := n.results(t, id)
		reasoned := 0
		for i, output := range outputs {
			if output == nil || strings.Contains(*output, "</think>") {
				t.Fatalf("%s: output %d is %s", model, i, show(output))
			}
			var answer struct {
				Reasoning string `json:"reasoning_content"`
			}
			if json.Unmarshal([]byte(*output), &answer) == nil && answer.Reasoning != "" {
				reasoned++
			}
		}
		t.Logf("%s: %d of %d answers have reasoning", model, reasoned, len(outputs))
		if thinks := model == "twin-thinking"; thinks != (reasoned > rows/2) || !thinks && reasoned > 0 {
			t.Errorf("%s: %d of %d answers have reasoning", model, reasoned, len(outputs))
		}
	}
}

// TestLlamaReadsImages sends images in a batch by OpenAI's client. The answers are those that
// a real llama-server gives to the same requests, and depend on the image.
func TestLlamaReadsImages(t *testing.T) {
	t.Parallel()
	needPython(t)
	server := llama.Start(t, llama.Image, llama.Options{Slots: 1, Context: 2048}) // other rows in flight can change an answer
	n := newNode(t, server.URL, "").start(t)
	runClient(t, "python3", "testdata/images_openai.py", n.base, apiKey, server.URL, server.Model)
}
