package e2e

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rowmill/rowmill/internal/must"
)

// An echo is an inference server that answers with the system prompt and the prompt. A
// prompt that asks to wait is answered after release.
type echo struct {
	url      string
	waiting  chan struct{} // closed by the first request that waits
	released chan struct{}
	release  func() // calling it twice is harmless
}

func newEcho(t *testing.T) *echo {
	t.Helper()
	e := &echo{waiting: make(chan struct{}), released: make(chan struct{})}
	e.release = sync.OnceFunc(func() { close(e.released) })
	began := sync.OnceFunc(func() { close(e.waiting) })
	mux := http.NewServeMux()
	mux.HandleFunc("/health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/v1/models", func(out http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(out, `{"object":"list","data":[{"id":"%s","object":"model","created":1700000000,"owned_by":"echo","max_model_len":32768}]}`, model)
	})
	mux.HandleFunc("/v1/chat/completions", func(out http.ResponseWriter, request *http.Request) {
		var asked struct {
			Messages []struct {
				Content string `json:"content"`
			} `json:"messages"`
		}
		if err := json.NewDecoder(request.Body).Decode(&asked); err != nil {
			http.Error(out, `{"error":{"message":"no JSON"}}`, http.StatusBadRequest)
			return
		}
		var texts []string
		for _, message := range asked.Messages {
			texts = append(texts, message.Content)
		}
		answer := strings.Join(texts, " > ")
		if strings.Contains(answer, "wait") {
			began()
			select {
			case <-e.released:
			case <-request.Context().Done():
				return
			}
		}
		out.Header().Set("Content-Type", "application/json")
		content, err := json.Marshal(answer)
		if err != nil {
			http.Error(out, err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Fprintf(out, `{"id":"e","object":"chat.completion","created":1700000000,"model":"%s","choices":[{"index":0,`+
			`"message":{"role":"assistant","content":%s},"logprobs":{"content":[{"token":"a","logprob":-0.5,"bytes":[97],"top_logprobs":[]}]},"finish_reason":"stop"}],`+
			`"usage":{"prompt_tokens":20,"completion_tokens":10,"total_tokens":30}}`, model, content)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	t.Cleanup(e.release) // Close waits for the handlers
	e.url = server.URL
	return e
}

// An author publishes and runs Functions with a key, by the CLI and by HTTP.
type author struct {
	*node
	key string
	dir string
}

func newAuthor(t *testing.T, n *node, key string) *author {
	t.Helper()
	return &author{node: n, key: key, dir: t.TempDir()}
}

// rowmill runs the CLI, with a file definition.yaml of the text, and returns
// its standard output and exit code.
func (a *author) rowmill(t *testing.T, definition string, args ...string) (string, int) {
	t.Helper()
	must.Succeed(t, os.WriteFile(filepath.Join(a.dir, "definition.yaml"), []byte(definition), 0o600))
	command := exec.CommandContext(t.Context(), binary, args...)
	command.Dir = a.dir
	command.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + a.dir, "ROWMILL_SERVER=" + a.base, "ROWMILL_API_KEY=" + a.key}
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil && command.ProcessState == nil {
		t.Fatalf("rowmill %q: %v", args, err)
	}
	if stderr.Len() > 0 {
		t.Logf("rowmill %q: %s", args, stderr.String())
	}
	return stdout.String(), command.ProcessState.ExitCode()
}

// must is like rowmill, and fails the test if the command fails.
func (a *author) must(t *testing.T, definition string, args ...string) string {
	t.Helper()
	out, code := a.rowmill(t, definition, args...)
	if code != 0 {
		t.Fatalf("rowmill %q ends with %d", args, code)
	}
	return out
}

// ask sends a request with the author's key and decodes the answer into out.
func (a *author) ask(t *testing.T, method, path string, body, out any) int {
	t.Helper()
	status, data, err := a.sendAs(a.key, method, path, body)
	if err == nil {
		err = json.Unmarshal(data, out)
	}
	if err != nil {
		t.Fatalf("%s %s: %d %.300s: %v", method, path, status, data, err)
	}
	return status
}

// refused checks that a request gets a status and an error code.
func (a *author) refused(t *testing.T, method, path string, body any, status int, code string) {
	t.Helper()
	var answer struct{ Code string }
	if got := a.ask(t, method, path, body, &answer); got != status || answer.Code != code {
		t.Errorf("%s %s %v: %d %s, want %d %s", method, path, body, got, answer.Code, status, code)
	}
}

// begin submits a job of a Function.
func (a *author) begin(t *testing.T, function string, inputs any) string {
	t.Helper()
	var created struct{ Results string }
	if status := a.ask(t, http.MethodPost, "/v1/batch-inference", map[string]any{"model": function, "inputs": inputs}, &created); status != http.StatusOK {
		t.Fatalf("submission of %v: %d", inputs, status)
	}
	return created.Results
}

// end waits until a job has succeeded, and checks its revision and outputs.
func (a *author) end(t *testing.T, id string, revision int, want ...string) {
	t.Helper()
	a.follow(t, id)
	var record struct {
		Job struct {
			Status   string
			Function struct{ Revision int }
		}
	}
	a.ask(t, http.MethodGet, "/v1/jobs/"+id, nil, &record)
	var results struct{ Outputs []string }
	a.ask(t, http.MethodGet, "/v1/jobs/"+id+"/results", nil, &results)
	if record.Job.Status != "succeeded" || record.Job.Function.Revision != revision || !reflect.DeepEqual(results.Outputs, want) {
		t.Errorf("job %s is %+v with %q, want revision %d with %q", id, record.Job, results.Outputs, revision, want)
	}
}

// follow reads a job's stream, which ends with the job.
func (a *author) follow(t *testing.T, id string) {
	t.Helper()
	if _, _, err := a.sendAs(a.key, http.MethodGet, "/v1/stream-job-progress/"+id, nil); err != nil {
		t.Fatalf("stream of job %s: %v", id, err)
	}
}

// run runs a Function for one input, and checks its revision and output.
func (a *author) run(t *testing.T, function string, input any, revision int, want string) {
	t.Helper()
	var answer struct {
		Function struct{ Revision int }
		Output   string
	}
	status := a.ask(t, http.MethodPost, "/v1/functions/"+function+"/run", map[string]any{"input": input}, &answer)
	if status != http.StatusOK || answer.Function.Revision != revision || answer.Output != want {
		t.Errorf("run of %v: %d, %+v, want revision %d and %q", input, status, answer, revision, want)
	}
}

const gradeYAML = `
name: grade
model: llama-3.1-8b
inputs:
  - name: essay
  - name: level
    required: false
system_prompt: teacher
prompt: "grade at {{level}}: {{ essay }}"
`

// startEcho starts a node with an echo, and returns its administrator.
func startEcho(t *testing.T) (*echo, *author) {
	t.Helper()
	e := newEcho(t)
	n := newNode(t, e.url, "").start(t)
	return e, newAuthor(t, n, apiKey)
}

// TestFunctionFromYAMLRunsObjectsFilesAndSingleInputs publishes a file by the CLI and
// runs it in every way.
func TestFunctionFromYAMLRunsObjectsFilesAndSingleInputs(t *testing.T) {
	t.Parallel()
	_, admin := startEcho(t)
	admin.must(t, gradeYAML, "functions", "publish", "definition.yaml")

	job := admin.begin(t, "grade", []any{
		map[string]any{"essay": "one", "level": 5, "extra": "ignored"},
		map[string]any{"essay": nil, "level": []string{"a"}},
		map[string]any{"essay": "{{level}}", "level": true},
		map[string]any{"essay": "absent level"},
	})
	admin.end(t, job, 1, "teacher > grade at 5: one", `teacher > grade at ["a"]: `, "teacher > grade at true: {{level}}", "teacher > grade at : absent level")
	admin.end(t, admin.begin(t, "grade", []string{"rendered already {{level}}"}), 1, "teacher > rendered already {{level}}")
	file := serveBytes(t, []byte("note,essay,level\nx,\"one, two\",007\ny,three,\n"))
	admin.end(t, admin.begin(t, "grade", file), 1, "teacher > grade at 007: one, two", "teacher > grade at : three")

	admin.run(t, "grade", map[string]any{"essay": "one", "level": 5}, 1, "teacher > grade at 5: one")
	admin.run(t, "grade", "rendered", 1, "teacher > rendered")
	if out := admin.must(t, "", "functions", "run", "grade", "essay=one", "level=5"); out != "teacher > grade at 5: one\n" {
		t.Errorf("functions run prints %q", out)
	}

	admin.refused(t, http.MethodPost, "/v1/batch-inference", map[string]any{"model": "grade", "inputs": []any{map[string]any{"level": 5}}},
		http.StatusBadRequest, "invalid_request")
	admin.refused(t, http.MethodPost, "/v1/functions/grade/run", map[string]any{"input": map[string]any{"level": 5}},
		http.StatusUnprocessableEntity, "invalid_input")
	if out, code := admin.rowmill(t, strings.ReplaceAll(gradeYAML, "{{level}}", "{{grade}}"), "functions", "publish", "definition.yaml"); code != 1 {
		t.Errorf("publishing an undeclared field ends with %d and %q", code, out)
	}
	admin.run(t, "grade", map[string]any{"essay": "still"}, 1, "teacher > grade at : still")
}

// TestPromptOverColumns runs a prompt over columns of CSV, Parquet and JSON Lines files, of a URL,
// and of objects. The results show the columns.
func TestPromptOverColumns(t *testing.T) {
	t.Parallel()
	_, admin := startEcho(t)
	const prompt = "Is {{ film }} of {{the year}} good? {{film}}"
	answers := []string{"Judge. > Is Alien of 1979 good? Alien", "Judge. > Is Up, up of 2009 good? Up, up"}
	for name, text := range map[string]string{
		"films.csv":   "film,the year,id\nAlien,1979,a\n\"Up, up\",2009,b\n",
		"films.jsonl": `{"film":"Alien","the year":1979,"id":"a"}` + "\n" + `{"id":"b","the year":2009,"film":"Up, up"}` + "\n",
	} {
		must.Succeed(t, os.WriteFile(filepath.Join(admin.dir, name), []byte(text), 0o600))
		must.Succeed(t, os.WriteFile(filepath.Join(admin.dir, "prompt.txt"), []byte(prompt), 0o600))
		out := admin.must(t, "", "jobs", "submit", name, "--model", model, "--prompt", "@prompt.txt", "--system-prompt", "Judge.", "--id-column", "id", "--include-inputs", "--output-column", "answer", "--format", "csv", "--output", "-")
		file := must.Get(must.Get(zip.NewReader(strings.NewReader(out), int64(len(out))))(t).File[0].Open())(t)
		out = strings.ReplaceAll(string(must.Get(io.ReadAll(file))(t)), "\r\n", "\n")
		header, rows, _ := strings.Cut(out, "\n")
		want := "a,Is Alien of 1979 good? Alien,Alien,1979," + answers[0] + "\nb,\"Is Up, up of 2009 good? Up, up\",\"Up, up\",2009,\"" + answers[1] + "\"\n"
		if header != "id,inputs,film,the year,answer" || rows != want {
			t.Errorf("results of %s:\n%s\nwant after the header:\n%s", name, out, want)
		}
	}
	file := serveBytes(t, []byte("film,the year\nAlien,1979\n\"Up, up\",2009\n"))
	objects := []map[string]any{{"film": "Alien", "the year": 1979}, {"film": "Up, up", "the year": "2009", "more": nil}}
	for _, inputs := range []any{file, objects} {
		var created struct{ Results string }
		admin.ask(t, http.MethodPost, "/v1/batch-inference", map[string]any{"model": model, "inputs": inputs, "prompt": prompt, "system_prompt": "Judge."}, &created)
		admin.follow(t, created.Results)
		var results struct{ Inputs, Outputs []string }
		admin.ask(t, http.MethodGet, "/v1/jobs/"+created.Results+"/results?include_inputs=true", nil, &results)
		if !reflect.DeepEqual(results.Outputs, answers) || results.Inputs[0] != strings.TrimPrefix(answers[0], "Judge. > ") {
			t.Errorf("%v: outputs %q of %q", inputs, results.Outputs, results.Inputs)
		}
	}
	if out, code := admin.rowmill(t, "", "jobs", "submit", "films.csv", "--model", model, "--prompt", "{{title}}", "--output", "-"); code != 1 {
		t.Errorf("a prompt with a column that the file lacks ends with %d: %s", code, out)
	}
}

// TestUnpublishedFunctionsJobGoesOn unpublishes a Function, and publishes another
// revision, while a job uses it.
func TestUnpublishedFunctionsJobGoesOn(t *testing.T) {
	t.Parallel()
	e, admin := startEcho(t)
	admin.must(t, gradeYAML, "functions", "publish", "definition.yaml")
	rows := []any{map[string]any{"essay": "wait"}, map[string]any{"essay": "two"}}
	job := admin.begin(t, "grade", rows)
	select {
	case <-e.waiting:
	case <-time.After(patience):
		t.Fatal("the job's row was never asked for")
	}
	admin.must(t, "", "functions", "unpublish", "grade")
	admin.refused(t, http.MethodPost, "/v1/batch-inference", map[string]any{"model": "grade", "inputs": rows}, http.StatusBadRequest, "unknown_model")
	admin.refused(t, http.MethodGet, "/v1/functions/grade", nil, http.StatusNotFound, "unknown_function")
	admin.must(t, strings.ReplaceAll(gradeYAML, "teacher", "tutor"), "functions", "publish", "definition.yaml")
	if record := admin.job(t, job); record.over() {
		t.Fatalf("the job is %s before its rows are answered", record.Status)
	}
	e.release()
	admin.end(t, job, 1, "teacher > grade at : wait", "teacher > grade at : two")
	admin.run(t, "grade", map[string]any{"essay": "one"}, 2, "tutor > grade at : one")
}
