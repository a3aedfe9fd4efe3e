package http

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	nethttp "net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/input"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
)

// messagesOf returns the body of a batch with requests of these ids.
func messagesOf(ids ...string) string {
	requests := make([]string, len(ids))
	for i, id := range ids {
		requests[i] = fmt.Sprintf(`{"custom_id":%q,"params":{"model":"llama-3.1-8b","max_tokens":8,"messages":[]}}`, id)
	}
	return `{"requests":[` + strings.Join(requests, ",") + `]}`
}

// messaged creates a Message Batch and returns its id.
func (w *world) messaged(ids ...string) string {
	w.Helper()
	return w.do("POST", "/v1/messages/batches", messagesOf(ids...)).want(200).json()["id"].(string)
}

// jobOf returns the job id of a batch of any dialect.
func jobOf(id string) string {
	hex := id[strings.LastIndexByte(id, '_')+1:]
	return "job-" + strings.Join([]string{hex[:8], hex[8:12], hex[12:16], hex[16:20], hex[20:]}, "-")
}

func counts(processing, succeeded, errored, canceled, expired float64) map[string]any {
	return map[string]any{"processing": processing, "succeeded": succeeded, "errored": errored, "canceled": canceled, "expired": expired}
}

func TestMessages_AreJobs(t *testing.T) {
	t.Parallel()
	w := setup(t)
	made := w.do("POST", "/v1/messages/batches", messagesOf("a", "b"), "Authorization", "", "X-Api-Key", adminKey, "Anthropic-Version", "2023-06-01").want(200)
	got := made.json()
	if made.header.Get("Request-Id") != made.header.Get(headerRequestID) || got["type"] != "message_batch" || got["processing_status"] != "in_progress" || got["results_url"] != nil || got["ended_at"] != nil {
		t.Errorf("got %v %v", made.header, got)
	}
	if diff := cmp.Diff(counts(2, 0, 0, 0, 0), got["request_counts"]); diff != "" {
		t.Error(diff)
	}
	created, _ := time.Parse(time.RFC3339, got["created_at"].(string))
	if expires, _ := time.Parse(time.RFC3339, got["expires_at"].(string)); expires.Sub(created) != 24*time.Hour {
		t.Errorf("from %v to %v", created, expires)
	}
	record := w.record(jobOf(got["id"].(string)))
	if raw := record.Spec.Raw; raw == nil || raw.Dialect != rowmill.DialectAnthropic || raw.Path != "/v1/messages" || raw.Requests != 2 {
		t.Errorf("specification %+v", record.Spec)
	}
	want := ""
	for _, id := range []string{"a", "b"} {
		want += `{"custom_id":"` + id + `","method":"POST","url":"/v1/messages","body":{"model":"llama-3.1-8b","max_tokens":8,"messages":[]}}` + "\n"
	}
	if text := string(w.object(record.Spec.Spooled)); text != want {
		t.Errorf("its input is %s", text)
	}
	if marks, err := w.bucket.List(t.Context(), layout.Spoolings); err != nil || len(marks) != 0 {
		t.Errorf("marks %v, %v", marks, err)
	}
	if list := w.get("/v1/batches").want(200).json()["data"].([]any); len(list) != 0 {
		t.Error("it is a batch of OpenAI's, too")
	}
}

func TestMessages_Refuses(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *Config) { c.MaxFileBytes, c.MaxRowBytes, c.MaxInputRows = 4096, 1000, 3 })
	request := func(id, params string) string {
		return `{"requests":[{"custom_id":"ok","params":{"model":"llama-3.1-8b"}},{"custom_id":` + id + `,"params":` + params + `}]}`
	}
	for _, tt := range []struct {
		body   string
		status int
		want   string // error type, and a part of the message
	}{
		{request(`"`+strings.Repeat("é", 65)+`"`, `{"model":"llama-3.1-8b"}`), 400, "invalid_request_error requests.1.custom_id: String should have at most 64 characters"},
		{request(`"ok"`, `{"model":"llama-3.1-8b"}`), 400, "invalid_request_error requests.1.custom_id: is the custom_id of an earlier request"},
		{request(`7`, `{"model":"llama-3.1-8b"}`), 400, "invalid_request_error requests.1.custom_id: must be a text"},
		{request(`"b"`, `{"model":"qwen-3-4b"}`), 400, `invalid_request_error requests.1.params.model: is "qwen-3-4b"`},
		{request(`"b"`, `{"model":"llama-3.1-8b","stream":true}`), 400, "invalid_request_error requests.1.params.stream: asks for a stream"},
		{request(`"b"`, `[]`), 400, "invalid_request_error requests.1.params: must be the JSON object"},
		{request(`"b"`, `{"model":"llama-3.1-8b","x":"`+strings.Repeat("x", 1500)+`"}`), 400, "invalid_request_error requests.1: has more than 1000 bytes"},
		{messagesOf("a", "b", "c", "d"), 400, "invalid_request_error requests: has more than 3 requests"},
		{`{"requests":[]}`, 400, "invalid_request_error requests: must be a list of at least one request"},
		{`{"requests":{}}`, 400, "invalid_request_error requests: must be a list"},
		{`{}`, 400, "invalid_request_error requests: must be a list of at least one request"},
		{`{"requests":[`, 400, "invalid_request_error the body must be one JSON object"},
		{messagesOf("a") + "x", 400, "invalid_request_error the body must be one JSON object"},
		{strings.ReplaceAll(messagesOf("a"), "llama-3.1-8b", "nobody's"), 400, `invalid_request_error "nobody's" is no model of this service`},
		{strings.Repeat(" ", 5000), 413, "request_too_large the body has more than 4096 bytes"},
	} {
		got := w.do("POST", "/v1/messages/batches", tt.body).want(tt.status).json()
		e := got["error"].(map[string]any)
		if said := fmt.Sprint(e["type"], " ", e["message"]); got["type"] != "error" || got["request_id"] == "" || !strings.HasPrefix(said, tt.want) {
			t.Errorf("%.80s: got %v", tt.body, got)
		}
	}
	w.noJobs()
	if objects, err := w.bucket.List(t.Context(), ""); err != nil || len(objects) != 0 {
		t.Errorf("objects %v, %v", objects, err)
	}
	w.do("GET", "/v1/messages/batches", "", "Authorization", "").want(nethttp.StatusUnauthorized)
	w.do("GET", "/v1/messages/batches", "", "Authorization", "", "X-Api-Key", "nobody's").want(nethttp.StatusUnauthorized)
	w.do("GET", "/v1/list-jobs", "", "Authorization", "", "X-Api-Key", adminKey).want(nethttp.StatusUnauthorized)
}

func TestMessages_RetryReturnsTheFirst(t *testing.T) {
	t.Parallel()
	w := setup(t)
	id := func(retry string) any {
		return w.do("POST", "/v1/messages/batches", messagesOf("a"), "X-Stainless-Retry-Count", retry).want(200).json()["id"]
	}
	first := id("0")
	if again := id("1"); again != first {
		t.Error("a repetition made a second batch")
	}
	if second := id("0"); second == first {
		t.Error("the same request on purpose made no second batch")
	}
	if objects, err := w.bucket.List(t.Context(), ""); err != nil || len(objects) != 2 {
		t.Errorf("objects %v, %v; want the objects of two jobs", objects, err)
	}
}

// resultsOf returns the lines of a batch's results.
func (w *world) resultsOf(batch map[string]any) []string {
	w.Helper()
	return strings.Split(strings.TrimSuffix(string(w.get(batch["results_url"].(string)).want(200).text), "\n"), "\n")
}

// columnOf returns the texts of a column in a Parquet file.
func columnOf(t *testing.T, table []byte, column string) (texts []string) {
	t.Helper()
	rows, err := input.Open(bytes.NewReader(table), int64(len(table)), input.Options{Column: column})
	must.Succeed(t, err)
	defer rows.Close()
	for {
		var row rowmill.Row
		if err := rows.Next(&row); errors.Is(err, io.EOF) {
			return texts
		} else if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, row.Text)
	}
}

func TestMessages_Results(t *testing.T) {
	t.Parallel()
	w := setup(t)
	id := w.messaged("a", "b", "c", "d", "e")
	path := "/v1/messages/batches/" + id
	w.get(path + "/results").want(400)
	w.do("DELETE", path, "").want(400)
	f := w.start(jobOf(id), 5)
	reply := "{\"type\":\"message\",\"x\":\"\u2028\"}"
	schema := schemaOf(w.record(f.JobID), rowmill.IDString)
	refusal := func(code, raw string) rowmill.RowOutput {
		return rowmill.RowOutput{Err: &rowmill.RowError{Code: code, Message: "it said no", Raw: raw}}
	}
	rows := []done{
		{id: rowmill.ID{Kind: rowmill.IDString, Text: "a"}, out: rowmill.RowOutput{Text: reply, InputTokens: 3, OutputTokens: 4}},
		{id: rowmill.ID{Kind: rowmill.IDString, Text: "b"}, out: refusal("http_400", `{"error":{"message":"x"}}`)},
		{id: rowmill.ID{Kind: rowmill.IDString, Text: "c"}, out: refusal("http_429", `{"type":"error","error":{"type":"overloaded_error","message":"own words"}}`)},
		{id: rowmill.ID{Kind: rowmill.IDString, Text: "d"}, out: refusal("engine_failed", "")},
	}
	part := w.part(f, schema, 0, 0, rows, "0.parquet")
	must.Succeed(t, w.store.CommitParts(t.Context(), f, []store.Part{part}))
	if diff := cmp.Diff(counts(5, 0, 0, 0, 0), w.get(path).want(200).json()["request_counts"]); diff != "" {
		t.Error(diff)
	}
	if got := w.do("POST", path+"/cancel", "").want(200).json(); got["processing_status"] != "canceling" || got["cancel_initiated_at"] == nil || got["ended_at"] != nil {
		t.Errorf("got %v", got)
	}
	ended := w.get(path).want(200).json()
	if diff := cmp.Diff(counts(0, 1, 3, 1, 0), ended["request_counts"]); diff != "" || ended["processing_status"] != "ended" {
		t.Error(ended, diff)
	}
	if again := w.do("POST", path+"/cancel", "").want(200).json(); again["processing_status"] != "ended" {
		t.Errorf("got %v", again)
	}
	hex := strings.TrimPrefix(id, "msgbatch_")
	want := []string{
		`{"custom_id":"a","result":{"type":"succeeded","message":{"type":"message","x":"\u2028"}}}`,
		`{"custom_id":"b","result":{"type":"errored","error":{"type":"error","error":{"type":"invalid_request_error","message":"it said no"},"request_id":"req_` + hex + `_1"}}}`,
		`{"custom_id":"c","result":{"type":"errored","error":{"type":"error","error":{"type":"overloaded_error","message":"own words"},"request_id":"req_` + hex + `_2"}}}`,
		`{"custom_id":"d","result":{"type":"errored","error":{"type":"error","error":{"type":"api_error","message":"it said no"},"request_id":"req_` + hex + `_3"}}}`,
		`{"custom_id":null,"result":{"type":"canceled"}}`, // in this world no shard knows its custom_id
	}
	if diff := cmp.Diff(want, w.resultsOf(ended)); diff != "" {
		t.Error(diff)
	}
	table := w.get("/v1/jobs/" + f.JobID + "/results?format=parquet&partial=true&include_inputs=true").want(200).text
	refused := `{"type":"error","error":{"type":"overloaded_error","message":"own words"}}`
	for column, want := range map[string][]string{
		"custom_id": {"a", "b", "c", "d", ""}, "inputs": {"input 0", "input 1", "input 2", "input 3", ""},
		f.JobID: {reply, `{"error":{"message":"x"}}`, refused, "", ""}, "status_code": {"200", "400", "429", "", ""},
		"input_tokens": {"3", "0", "0", "0", "0"}, "output_tokens": {"4", "0", "0", "0", "0"},
		"error_code": {"", "http_400", "http_429", "engine_failed", "not_run"},
	} {
		if diff := cmp.Diff(want, columnOf(t, table, column)); diff != "" {
			t.Errorf("%s: %s", column, diff)
		}
	}
	if got := w.do("DELETE", path, "").want(200).json(); got["id"] != id || got["type"] != "message_batch_deleted" {
		t.Errorf("got %v", got)
	}
	for _, gone := range []string{path, path + "/results"} {
		w.get(gone).want(404)
	}
	w.do("DELETE", path, "").want(404)
	if objects := w.objectsOf(f.JobID); len(objects) != 0 {
		t.Errorf("objects %v", objects)
	}
}

// A batch that is cancelled before its requests are counted also has a line for every
// request.
func TestMessages_CancelledBeforeTheyAreCounted(t *testing.T) {
	t.Parallel()
	w := setup(t)
	id := w.messaged("a", "b")
	w.do("POST", "/v1/messages/batches/"+id+"/cancel", "").want(200)
	ended := w.get("/v1/messages/batches/" + id).want(200).json()
	if diff := cmp.Diff(counts(0, 0, 0, 2, 0), ended["request_counts"]); diff != "" {
		t.Error(diff)
	}
	want := []string{`{"custom_id":"a","result":{"type":"canceled"}}`, `{"custom_id":"b","result":{"type":"canceled"}}`}
	if diff := cmp.Diff(want, w.resultsOf(ended)); diff != "" {
		t.Error(diff)
	}
}

func TestMessages_Pages(t *testing.T) {
	t.Parallel()
	w := setup(t)
	var ids []string // newest first
	for i := range 7 {
		ids = append([]string{w.messaged(fmt.Sprint(i))}, ids...)
	}
	for _, i := range []int{1, 2} { // two neighbours are deleted
		w.do("POST", "/v1/messages/batches/"+ids[i]+"/cancel", "").want(200)
		w.do("DELETE", "/v1/messages/batches/"+ids[i], "").want(200)
	}
	page := func(query string) string {
		got := w.get("/v1/messages/batches" + query).want(200).json()
		var shown []string
		for _, b := range got["data"].([]any) {
			id := b.(map[string]any)["id"].(string)
			for i := range ids {
				if ids[i] == id {
					shown = append(shown, fmt.Sprint(i))
				}
			}
		}
		if data := got["data"].([]any); len(data) > 0 && (got["first_id"] != data[0].(map[string]any)["id"] || got["last_id"] != data[len(data)-1].(map[string]any)["id"]) {
			t.Errorf("ids %v", got)
		}
		return fmt.Sprint(strings.Join(shown, ""), " ", got["has_more"])
	}
	for query, want := range map[string]string{
		"":                                "03456 false",
		"?limit=2":                        "03 true",
		"?limit=2&after_id=" + ids[3]:     "45 true",
		"?limit=2&after_id=" + ids[4]:     "56 false",
		"?limit=2&before_id=" + ids[5]:    "34 true",
		"?limit=2&before_id=" + ids[4]:    "03 false",
		"?limit=2&before_id=" + ids[3]:    "0 false",
		"?limit=1000&before_id=" + ids[0]: " false",
	} {
		if got := page(query); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	for _, query := range []string{"?limit=1001", "?after_id=x", "?after_id=" + ids[0] + "&before_id=" + ids[1]} {
		w.get("/v1/messages/batches" + query).want(400)
	}
}

func TestMessages_ModelsHaveTheirForm(t *testing.T) {
	t.Parallel()
	w := setup(t)
	version := []string{"Anthropic-Version", "2026-10-21", "Authorization", "Bearer " + adminKey}
	list := w.get("/v1/models", version...).want(200).json()
	if _, own := list["object"]; own || list["has_more"] != false || list["first_id"] == nil {
		t.Errorf("got %v", list)
	}
	got := w.get("/v1/models/llama-3.1-8b", version...).want(200).json()
	if got["type"] != "model" || got["display_name"] != "llama-3.1-8b" || got["created_at"] != "1970-01-01T00:00:00Z" {
		t.Errorf("got %v", got)
	}
	if own := w.get("/v1/models/llama-3.1-8b").want(200).json(); own["object"] != "model" {
		t.Errorf("got %v", own)
	}
	w.get("/v1/models/nobody's").wantError(404, "not_found", "no model of this service")
}
