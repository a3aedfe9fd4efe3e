package http

import (
	"encoding/json"
	"fmt"
	nethttp "net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/internal/must"
)

// formType is the media type of the forms of formOf.
const formType = `multipart/form-data; boundary="edge"`

// formOf returns the form of a file upload. The file is its first part.
func formOf(name, text string, fields ...string) string {
	var b strings.Builder
	part := func(disposition, value string) {
		fmt.Fprintf(&b, "--edge\r\nContent-Disposition: form-data; %s\r\n\r\n%s\r\n", disposition, value)
	}
	part(fmt.Sprintf(`name="file"; filename="%s"`, name), text)
	if len(fields) == 0 {
		fields = []string{"purpose", "batch"}
	}
	for i := 0; i < len(fields); i += 2 {
		part(fmt.Sprintf("name=%q", fields[i]), fields[i+1])
	}
	return b.String() + "--edge--\r\n"
}

func requestLine(id, model string) string {
	return fmt.Sprintf(`{"custom_id":%q,"method":"POST","url":"/v1/chat/completions","body":{"model":%q,"messages":[]}}`, id, model) + "\n"
}

func batchOf(file string) string {
	return fmt.Sprintf(`{"input_file_id":%q,"endpoint":"/v1/chat/completions","completion_window":"24h"}`, file)
}

// uploaded uploads a file and returns its id.
func (w *world) uploaded(name, text string) string {
	w.Helper()
	return w.do("POST", "/v1/files", formOf(name, text), "Content-Type", formType).want(200).json()["id"].(string)
}

// batched creates a batch and returns its id.
func (w *world) batched(file string) string {
	w.Helper()
	return w.do("POST", "/v1/batches", batchOf(file)).want(200).json()["id"].(string)
}

// refused returns the code and the field of an error in OpenAI's form.
func (a *answered) refused(status int) (code, param any) {
	a.Helper()
	body := a.want(status).json()["error"].(map[string]any)
	return body["code"], body["param"]
}

func TestFiles_Forms(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *Config) { c.MaxFileBytes = 100 })
	bearer := []string{"Content-Type", formType, "Authorization", "Bearer " + adminKey}
	made := w.do("POST", "/v1/files", formOf("naïve name.txt", "hello", "expires_after[seconds]", "3600", "expires_after[anchor]", "created_at", "purpose", "batch"), bearer...).want(200).json()
	if made["filename"] != "naïve name.txt" || made["bytes"] != 5.0 || made["expires_at"].(float64)-made["created_at"].(float64) != 3600 {
		t.Errorf("got %v", made)
	}
	id := made["id"].(string)
	content := w.get("/v1/files/" + id + "/content").want(200)
	if got := content.header.Get("Content-Disposition"); string(content.text) != "hello" || got != `attachment; filename="na_ve name.txt"; filename*=UTF-8''na%C3%AFve%20name.txt` {
		t.Errorf("content %q of %s", content.text, got)
	}
	for _, tt := range []struct {
		name, body, kind string
		status           int
		code, param      any
	}{
		{"purpose", formOf("a", "x", "purpose", "assistants"), formType, 400, "invalid_request", "purpose"},
		{"no purpose", formOf("a", "x", "other", "batch"), formType, 400, "invalid_request", "purpose"},
		{"no file", "--edge\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--edge--\r\n", formType, 400, "invalid_request", "file"},
		{"expiry", formOf("a", "x", "purpose", "batch", "expires_after[anchor]", "created_at", "expires_after[seconds]", "5"), formType, 400, "invalid_request", "expires_after.seconds"},
		{"cut off", formOf("a", "x")[:75], formType, 400, "invalid_multipart", nil},
		{"no form", "{}", "application/json", 415, "unsupported_media_type", nil},
		{"too large", formOf("a", strings.Repeat("x", 101)), formType, 413, "file_too_large", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, param := w.do("POST", "/v1/files", tt.body, "Content-Type", tt.kind).refused(tt.status)
			if code != tt.code || param != tt.param {
				t.Errorf("code %v, param %v", code, param)
			}
		})
	}
	if objects, err := w.bucket.List(t.Context(), layout.Files); err != nil || len(objects) != 1 {
		t.Errorf("objects %v, error %v; want that of the one good file", objects, err)
	}
	w.do("DELETE", "/v1/files/"+id, "").want(200)
	w.get("/v1/files/" + id).want(404)
	if objects, err := w.bucket.List(t.Context(), ""); err != nil || len(objects) != 0 {
		t.Errorf("objects %v, error %v; want none", objects, err)
	}
}

func TestFiles_Expire(t *testing.T) {
	t.Parallel()
	now := time.Now()
	w := setup(t, func(c *Config) { c.Now = func() time.Time { return now } })
	id := w.uploaded("a", "x")
	now = now.Add(30*24*time.Hour + time.Second)
	w.get("/v1/files/" + id).want(404)
	w.get("/v1/files/" + id + "/content").want(404)
	w.do("POST", "/v1/batches", batchOf(id)).want(404)
	if data := w.get("/v1/files").want(200).json()["data"].([]any); len(data) != 0 {
		t.Errorf("listed: %v", data)
	}
}

func TestFiles_Pages(t *testing.T) {
	t.Parallel()
	w := setup(t)
	var ids []any
	for i := range 5 {
		ids = append([]any{w.uploaded(fmt.Sprint(i), "x")}, ids...)
	}
	var seen []any
	after, more := "", true
	for more {
		page := w.get("/v1/files?limit=2" + after).want(200).json()
		for _, f := range page["data"].([]any) {
			seen = append(seen, f.(map[string]any)["id"])
		}
		w.uploaded("meanwhile", "x")
		after, more = "&after="+page["last_id"].(string), page["has_more"].(bool)
	}
	if diff := cmp.Diff(ids, seen); diff != "" {
		t.Errorf("pages (-want +got):\n%s", diff)
	}
	w.get("/v1/files?limit=0").want(400)
	w.get("/v1/files?order=up").want(400)
}

// A batch is a job with its own copy of the file.
func TestBatches_AreJobs(t *testing.T) {
	t.Parallel()
	w := setup(t)
	lines := requestLine("a", "llama-3.1-8b") + requestLine("b", "llama-3.1-8b")
	file := w.uploaded("in.jsonl", lines)
	body := `{"input_file_id":"` + file + `","endpoint":"/v1/chat/completions","completion_window":"2d","metadata":{"team":"mill"}}`
	made := w.do("POST", "/v1/batches", body).want(200).json()
	if made["status"] != "validating" || made["expires_at"].(float64)-made["created_at"].(float64) != 2*86400 || made["model"] != "llama-3.1-8b" {
		t.Errorf("got %v", made)
	}
	w.do("DELETE", "/v1/files/"+file, "").want(200)
	id := jobOf(made["id"].(string))
	record := w.record(id)
	if raw := record.Spec.Raw; raw == nil || raw.InputFile != file || raw.Path != "/v1/chat/completions" || record.Spec.Model.Kind != rowmill.KindRaw || record.Spec.Priority != 1 {
		t.Errorf("specification %+v", record.Spec)
	}
	object, err := w.bucket.Open(t.Context(), record.Spec.Spooled)
	must.Succeed(t, err)
	defer object.Close()
	if text := make([]byte, object.Size()); true {
		if _, err := object.ReadAt(text, 0); string(text) != lines {
			t.Errorf("the copy holds %q, %v", text, err)
		}
	}
	if marks, err := w.bucket.List(t.Context(), layout.Spoolings); err != nil || len(marks) != 0 {
		t.Errorf("marks %v, %v", marks, err)
	}
	if got := w.get("/v1/jobs/" + id).want(200).json()["job"].(map[string]any); got["status"] != "pending" || got["input"] != "in.jsonl" {
		t.Errorf("as a job: %v", got)
	}
	native := w.submitted(`{"inputs":["a"]}`)
	if list := w.get("/v1/batches").want(200).json()["data"].([]any); len(list) != 1 {
		t.Errorf("%d batches are listed; a job is none", len(list))
	}
	w.get("/v1/batches/batch_" + strings.ReplaceAll(strings.TrimPrefix(native, "job-"), "-", "")).want(404)
}

func TestBatches_Refuses(t *testing.T) {
	t.Parallel()
	w := setup(t)
	file := w.uploaded("a", requestLine("a", "llama-3.1-8b"))
	with := func(name, value string) string {
		var body map[string]any
		_ = json.Unmarshal([]byte(batchOf(file)), &body)
		body[name] = json.RawMessage(value)
		text, err := json.Marshal(body)
		must.Succeed(t, err)
		return string(text)
	}
	for _, tt := range []struct {
		body        string
		status      int
		code, param string
	}{
		{with("endpoint", `"/v1/moderations"`), 400, "invalid_request", "endpoint"},
		{with("completion_window", `"soon"`), 400, "invalid_request", "completion_window"},
		{with("completion_window", `"9999d"`), 400, "invalid_request", "completion_window"},
		{with("metadata", `{"`+strings.Repeat("k", 65)+`":"v"}`), 400, "invalid_request", "metadata"},
		{with("output_expires_after", `{"anchor":"created_at","seconds":1}`), 400, "invalid_request", "output_expires_after"},
		{with("input_file_id", `"file-nothing"`), 404, "not_found", "input_file_id"},
		{with("input_file_id", `""`), 400, "invalid_request", "input_file_id"},
		{with("input_file_id", `"wrong-id"`), 400, "invalid_request", "input_file_id"},
		{batchOf(w.uploaded("b", requestLine("a", "nobody-has-this"))), 400, "model_not_found", "model"},
	} {
		if code, param := w.do("POST", "/v1/batches", tt.body).refused(tt.status); code != tt.code || param != tt.param {
			t.Errorf("%s: code %v, param %v", tt.body, code, param)
		}
	}
	if jobs, _, err := w.store.List(t.Context(), caller.DefaultAccount, 10, ""); err != nil || len(jobs) != 0 {
		t.Errorf("jobs %v, %v", jobs, err)
	}
}

// Clients retry a request without an idempotency key if they received no answer.
func TestBatches_RetryReturnsTheFirst(t *testing.T) {
	t.Parallel()
	w := setup(t)
	body := batchOf(w.uploaded("a", requestLine("a", "llama-3.1-8b")))
	id := func(headers ...string) any {
		return w.do("POST", "/v1/batches", body, headers...).want(200).json()["id"]
	}
	first := id("X-Stainless-Retry-Count", "0")
	if again := id("X-Stainless-Retry-Count", "1"); again != first {
		t.Error("a repetition made a second batch")
	}
	if second := id("X-Stainless-Retry-Count", "0"); second == first {
		t.Error("the same request on purpose made no second batch")
	}
	if objects, err := w.bucket.Folders(t.Context(), layout.Jobs, "", 10); err != nil || len(objects) != 2 {
		t.Errorf("objects of %d jobs, %v", len(objects), err)
	}
}

func TestBatches_CancelledBatchKeepsItsAnswers(t *testing.T) {
	t.Parallel()
	w := setup(t)
	id := w.batched(w.uploaded("a", requestLine("a", "llama-3.1-8b")))
	if got := w.do("POST", "/v1/batches/"+id+"/cancel", "").want(200).json(); got["status"] != "cancelling" {
		t.Errorf("got %v", got)
	}
	got := w.get("/v1/batches/" + id).want(200).json()
	if got["status"] != "cancelled" || got["output_file_id"] != nil || got["error_file_id"] != nil || got["cancelled_at"] == nil {
		t.Errorf("got %v", got) // the input was never read, so the number of requests is unknown
	}
	if again := w.do("POST", "/v1/batches/"+id+"/cancel", "").want(200).json(); again["status"] != "cancelled" {
		t.Errorf("got %v", again)
	}
}

func TestBatches_ErrorsHaveTheFormOfTheDialect(t *testing.T) {
	t.Parallel()
	w := setup(t)
	got := w.do("GET", "/v1/batches", "", "Authorization", "Bearer nobody's").want(nethttp.StatusUnauthorized)
	body := got.json()["error"].(map[string]any)
	if body["type"] != "authentication_error" || body["code"] != "unknown_key" || got.header.Get("WWW-Authenticate") != "Bearer" {
		t.Errorf("got %v %v", body, got.header)
	}
	if param, there := body["param"]; !there || param != nil {
		t.Errorf("param is %v", param)
	}
	w.do("GET", "/v1/models", "", "Authorization", "Bearer "+adminKey).want(200)
	w.do("GET", "/v1/list-jobs", "", "Authorization", "Bearer "+adminKey).want(nethttp.StatusUnauthorized)
}
