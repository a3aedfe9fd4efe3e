package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// existing is a client of this API family, as in use today: it sends a key of the
// dialect sdk, decodes every body as JSON, and reads only the fields that are read
// here.
type existing struct {
	*testing.T
	node *node
	key  string
}

// newExisting starts a node with a simulated server and makes the client's key.
func newExisting(t *testing.T, args ...string) *existing {
	t.Helper()
	n := on(t, "", startSimulated(t, append([]string{"--ttft", "1ms", "--per-token", "0s"}, args...)...))
	n.start(t)
	var made struct {
		Key string `json:"key"`
	}
	n.call(t, http.MethodPost, "/v1/keys", map[string]any{"name": "laptop", "dialect": "sdk"}, &made)
	return &existing{T: t, node: n, key: made.Key}
}

// ask sends a request and decodes the answer, with any status.
func (e *existing) ask(method, path, body string) (status int, answer map[string]json.RawMessage) {
	e.Helper()
	request := must(http.NewRequestWithContext(e.Context(), method, e.node.base+path, strings.NewReader(body)))(e)
	request.Header.Set("Authorization", "Key "+e.key)
	request.Header.Set("Content-Type", "application/json")
	response := must(e.node.http.Do(request))(e) // asks for gzip
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		e.Fatalf("%s %s: %d, and the body is no JSON object: %v", method, path, response.StatusCode, err)
	}
	return response.StatusCode, answer
}

// get requests a path that must exist.
func (e *existing) get(path string) map[string]json.RawMessage {
	e.Helper()
	status, answer := e.ask(http.MethodGet, path, "")
	if status != http.StatusOK {
		e.Fatalf("GET %s: %d %s", path, status, answer)
	}
	return answer
}

// read decodes one field.
func (e *existing) read(from map[string]json.RawMessage, field string, into any) {
	e.Helper()
	if err := json.Unmarshal(from[field], into); err != nil {
		e.Fatalf("field %s of %s: %v", field, from, err)
	}
}

// submit posts a job like the client, with explicit nulls.
func (e *existing) submit(priority, rows int, more string) (id string) {
	e.Helper()
	inputs := make([]string, rows)
	for i := range inputs {
		inputs[i] = rowText(i)
	}
	text := must(json.Marshal(inputs))(e)
	status, answer := e.ask(http.MethodPost, "/v1/batch-inference", fmt.Sprintf(
		`{"model":"llama-3.1-8b","inputs":%s,"job_priority":%d,"json_schema":null,"system_prompt":null,"sampling_params":null,"random_seed_per_input":false,"truncate_rows":true,"name":null,"description":null%s}`,
		text, priority, more))
	if status != http.StatusOK {
		e.Fatalf("submission: %d %s", status, answer)
	}
	e.read(answer, "results", &id)
	return id
}

// status requests a job's status, which is under the job's id.
func (e *existing) status(id string) (status string) {
	e.Helper()
	var statuses map[string]string
	e.read(e.get("/v1/job-status/"+id), "job_status", &statuses)
	if !slices.Contains([]string{"UNKNOWN", "QUEUED", "STARTING", "RUNNING", "SUCCEEDED", "CANCELLING", "CANCELLED", "FAILED"}, statuses[id]) {
		e.Fatalf("status %q is unknown to the client", statuses[id])
	}
	return statuses[id]
}

// poll requests the status until one of ends comes.
func (e *existing) poll(id string, ends ...string) string {
	e.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		status := e.status(id)
		if slices.Contains(ends, status) {
			return status
		}
		if time.Now().After(deadline) {
			e.Fatalf("the client waits for %v of job %s, which is %s", ends, id, status)
		}
	}
}

func (e *existing) awaitStart(id string) string {
	e.Helper()
	return e.poll(id, "STARTING", "RUNNING", "FAILED", "CANCELLED")
}

func (e *existing) awaitEnd(id string) string {
	e.Helper()
	return e.poll(id, "SUCCEEDED", "FAILED", "CANCELLED")
}

// job reads a record's fields that the client reads.
func (e *existing) job(id string) map[string]json.RawMessage {
	e.Helper()
	var job map[string]json.RawMessage
	e.read(e.get("/v1/jobs/"+id), "job", &job)
	return job
}

// stream follows a job and reports whether its last progress was all rows.
func (e *existing) stream(id string, rows int64) bool {
	e.Helper()
	request := must(http.NewRequestWithContext(e.Context(), http.MethodGet, e.node.base+"/v1/stream-job-progress/"+id, nil))(e)
	request.Header.Set("Authorization", "Key "+e.key)
	response := must(e.node.http.Do(request))(e)
	defer response.Body.Close()
	var done int64
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		if strings.TrimSpace(lines.Text()) == "" {
			continue
		}
		var update struct {
			Type   string          `json:"update_type"`
			Result json.RawMessage `json:"result"`
		}
		if err := json.Unmarshal(lines.Bytes(), &update); err != nil {
			e.Fatalf("line %q: %v", lines.Text(), err)
		}
		switch update.Type {
		case "progress":
			before := done
			if err := json.Unmarshal(update.Result, &done); err != nil || done < before {
				e.Fatalf("progress %s after %d: %v", update.Result, before, err)
			}
		case "tokens":
			var tokens map[string]float64
			if err := json.Unmarshal(update.Result, &tokens); err != nil {
				e.Fatalf("tokens %s: %v", update.Result, err)
			}
			for _, name := range []string{"input_tokens", "output_tokens", "total_tokens_processed_per_second"} {
				if _, has := tokens[name]; !has {
					e.Errorf("tokens %s lack %s", update.Result, name)
				}
			}
		}
	}
	if err := lines.Err(); err != nil {
		e.Fatalf("the stream broke: %v", err)
	}
	return done == rows
}

// results requests the results only once, because the client knows that they are
// readable.
func (e *existing) results(id string, rows int) {
	e.Helper()
	status, answer := e.ask(http.MethodPost, "/v1/job-results", `{"job_id":"`+id+`","include_inputs":true,"include_cumulative_logprobs":false}`)
	if status != http.StatusOK {
		e.Fatalf("results: %d %s", status, answer)
	}
	var columns map[string][]any
	e.read(answer, "results", &columns)
	if len(columns["outputs"]) != rows || len(columns["inputs"]) != rows {
		e.Fatalf("%d outputs and %d inputs for %d rows", len(columns["outputs"]), len(columns["inputs"]), rows)
	}
	for i, input := range columns["inputs"] {
		if input != rowText(i) || columns["outputs"][i] == nil {
			e.Fatalf("row %d: input %v, output %v", i, input, columns["outputs"][i])
		}
	}
}

func TestExistingClient_ChecksItsKeyAndQuotas(t *testing.T) {
	t.Parallel()
	e := newExisting(t)
	for _, path := range []string{"/v1/auth/check", "/v1/try-authentication"} {
		if got := string(e.get(path)["authenticated"]); got != "true" {
			t.Errorf("%s: authenticated %s", path, got)
		}
	}
	var quotas []struct {
		Rows   *int64 `json:"row_quota"`
		Tokens *int64 `json:"token_quota"`
	}
	e.read(e.get("/v1/get-quotas"), "quotas", &quotas)
	if len(quotas) != 2 || *quotas[0].Rows != 1000 || *quotas[1].Rows != 1_000_000 || *quotas[0].Tokens != 1_000_000 {
		t.Errorf("quotas %+v: the array's order is the priority", quotas)
	}
	for path, want := range map[string]int{"/v1/no-such-route": 404, "/v1/batch-inference": 405, "/v1/jobs/job-none": 404} {
		if status, answer := e.ask(http.MethodGet, path, ""); status != want || answer["detail"] == nil || answer["request_id"] == nil {
			t.Errorf("%s: %d %s, want %d", path, status, answer, want)
		}
	}
	e.key = "wrong"
	if status, _ := e.ask(http.MethodGet, "/v1/auth/check", ""); status != http.StatusUnauthorized {
		t.Errorf("a wrong key: %d", status)
	}
}

// Priority 0: submit, attach to the stream, and fetch the results at once.
func TestExistingClient_AttachedRun(t *testing.T) {
	t.Parallel()
	e := newExisting(t, "--ttft", "20ms")
	const rows = 300
	id := e.submit(0, rows, "")
	if !e.stream(id, rows) {
		t.Fatal("the stream ended without a line for all rows")
	}
	e.results(id, rows)
	if !e.stream(id, rows) {
		t.Error("attaching again to a job that is over shows no line for all rows")
	}
}

// Priority 1: submit, wait for the start, wait for the end, download. The job ends
// before the first poll.
func TestExistingClient_DetachedRunThatIsFast(t *testing.T) {
	t.Parallel()
	e := newExisting(t)
	const rows = 5
	id := e.submit(1, rows, "")
	e.node.finish(t, id)
	if status := e.awaitStart(id); status != "RUNNING" {
		t.Errorf("the first status is %s, want RUNNING", status)
	}
	if status := e.awaitEnd(id); status != "SUCCEEDED" {
		t.Fatalf("the job is %s", status)
	}
	job := e.job(id)
	if string(job["num_rows"]) != "5" || string(job["status"]) != `"SUCCEEDED"` || string(job["failure_reason"]) != "null" {
		t.Errorf("record %s", job)
	}
	var jobs []map[string]json.RawMessage
	e.read(e.get("/v1/list-jobs"), "jobs", &jobs)
	for _, name := range []string{"datetime_created", "datetime_started", "datetime_completed", "input_tokens", "output_tokens", "job_cost", "status", "job_id"} {
		if _, has := jobs[0][name]; !has {
			t.Errorf("the record in the list lacks %s", name)
		}
	}
	if string(jobs[0]["job_id"]) != `"`+id+`"` {
		t.Errorf("the first of the list is %s, not the latest job", jobs[0]["job_id"])
	}
	if cost := string(jobs[0]["job_cost"]); !strings.ContainsAny(cost, ".e") {
		t.Errorf("job_cost %s looks like an integer", cost)
	}
	e.results(id, rows)
}

func TestExistingClient_DownloadsWithResume(t *testing.T) {
	t.Parallel()
	e := newExisting(t)
	id := e.submit(1, 200, "")
	e.awaitEnd(id)
	descriptor := e.get("/v1/jobs/" + id + "/results-url?include_inputs=True&include_cumulative_logprobs=False&expires_in_seconds=3600")
	var artifact struct {
		Filename string `json:"filename"`
		Size     int64  `json:"size_bytes"`
	}
	var urls struct{ Get, Head string }
	e.read(descriptor, "artifact", &artifact)
	e.read(descriptor, "urls", &urls)
	if artifact.Filename != "service-results~"+id+"~inputs=1~logprobs=0.parquet" {
		t.Errorf("file name %q", artifact.Filename)
	}
	fetch := func(method, url string, want int, header ...string) (length int64, etag string, data []byte) {
		t.Helper()
		request := must(http.NewRequestWithContext(t.Context(), method, url, nil))(t)
		for i := 0; i < len(header); i += 2 {
			request.Header.Set(header[i], header[i+1])
		}
		response, err := e.node.http.Do(request)
		check(t, err)
		defer response.Body.Close()
		data, err = io.ReadAll(response.Body)
		if err != nil || response.StatusCode != want {
			t.Fatalf("%s: %d, %v, want %d: %.200s", method, response.StatusCode, err, want, data)
		}
		return response.ContentLength, response.Header.Get("ETag"), data
	}
	size, etag, _ := fetch(http.MethodHead, urls.Head, 200)
	if size != artifact.Size || etag == "" {
		t.Errorf("HEAD: %d bytes of %d, ETag %q", size, artifact.Size, etag)
	}
	_, _, whole := fetch(http.MethodGet, urls.Get, 200)
	_, etag, start := fetch(http.MethodGet, urls.Get, 206, "Range", "bytes=0-999")
	_, _, rest := fetch(http.MethodGet, urls.Get, 206, "Range", "bytes=1000-", "If-Range", etag)
	if got := append(start, rest...); !bytes.Equal(got, whole) || int64(len(got)) != size {
		t.Errorf("the pieces hold %d bytes, the whole %d, HEAD said %d", len(got), len(whole), size)
	}
	_, _, again := fetch(http.MethodGet, urls.Get, 200, "Range", "bytes=1000-", "If-Range", `"another"`)
	if !bytes.Equal(again, whole) {
		t.Error("a download that is resumed on another file must start over")
	}
}

func TestExistingClient_Cancels(t *testing.T) {
	t.Parallel()
	e := newExisting(t, "--ttft", "10m")
	id := e.submit(1, 20, "")
	e.awaitStart(id)
	if got := string(e.get("/v1/job-cancel/" + id)["cancelled"]); got != "true" {
		t.Errorf("cancelled %s", got)
	}
	if status := e.awaitEnd(id); status != "CANCELLED" {
		t.Errorf("the job is %s", status)
	}
	var reason struct{ Message string }
	e.read(e.job(id), "failure_reason", &reason)
	if reason.Message == "" {
		t.Error("the client reads failure_reason.message of a cancelled job")
	}
	if e.stream(id, 20) {
		t.Error("the stream of a cancelled job ends like that of one with results")
	}
	if status, _ := e.ask(http.MethodPost, "/v1/job-results", `{"job_id":"`+id+`"}`); status != http.StatusConflict {
		t.Errorf("results of a cancelled job: %d, want 409", status)
	}
}

func TestExistingClient_DryRun(t *testing.T) {
	t.Parallel()
	e := newExisting(t)
	id := e.submit(0, 20, `,"cost_estimate":true`)
	if status := e.awaitEnd(id); status != "SUCCEEDED" {
		t.Fatalf("the estimate is %s", status)
	}
	if cost := string(e.job(id)["cost_estimate"]); !strings.ContainsAny(cost, ".e") {
		t.Errorf("cost_estimate %s looks like an integer", cost)
	}
}

func TestExistingClient_VectorsLookLikeFloats(t *testing.T) {
	t.Parallel()
	e := newExisting(t)
	status, answer := e.ask(http.MethodPost, "/v1/batch-inference", `{"model":"qwen-3-embedding-0.6b","inputs":["a","b"],"job_priority":1}`)
	if status != http.StatusOK {
		t.Fatalf("submission: %d %s", status, answer)
	}
	var id string
	e.read(answer, "results", &id)
	e.awaitEnd(id)
	_, answer = e.ask(http.MethodPost, "/v1/job-results", `{"job_id":"`+id+`"}`)
	var columns struct{ Outputs [][]json.RawMessage }
	e.read(answer, "results", &columns)
	if len(columns.Outputs) != 2 || len(columns.Outputs[1]) != 1024 {
		t.Fatalf("%d vectors", len(columns.Outputs))
	}
	for _, number := range columns.Outputs[1] {
		if !bytes.ContainsAny(number, ".e") {
			t.Errorf("%s looks like an integer", number)
		}
	}
}
