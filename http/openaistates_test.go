package http

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
)

// batchState is the status of a batch and its requests: total, completed, failed.
type batchState struct {
	status                   string
	total, completed, failed float64
}

func stateOf(batch map[string]any) batchState {
	counts := batch["request_counts"].(map[string]any)
	return batchState{batch["status"].(string), counts["total"].(float64), counts["completed"].(float64), counts["failed"].(float64)}
}

// wantBatch checks the state of a batch in an answer.
func (a *answered) wantBatch(want batchState) map[string]any {
	a.Helper()
	got := a.want(200).json()
	if stateOf(got) != want {
		a.Errorf("the batch is %+v, want %+v", stateOf(got), want)
	}
	return got
}

// wantListed checks the state of a batch in the list, which makes no files.
func (w *world) wantListed(id string, want batchState) {
	w.Helper()
	for _, b := range w.get("/v1/batches?limit=100").want(200).json()["data"].([]any) {
		if b := b.(map[string]any); b["id"] == id {
			if stateOf(b) != want {
				w.Errorf("the batch is listed as %+v, want %+v", stateOf(b), want)
			}
			return
		}
	}
	w.Errorf("batch %s is not listed", id)
}

// requestsOf returns requests with outputs. An empty text is a failed request.
func requestsOf(texts ...string) []done {
	rows := answers(texts...)
	for i := range rows {
		rows[i].id = rowmill.ID{Kind: rowmill.IDString, Text: fmt.Sprint(i)}
	}
	return rows
}

// committed commits outputs of a batch's requests.
func (w *world) committed(f store.Fence, texts ...string) {
	w.Helper()
	part := w.part(f, schemaOf(w.record(f.JobID), rowmill.IDString), 0, 0, requestsOf(texts...), "a.parquet")
	must.Succeed(w, w.store.CommitParts(w.Context(), f, []store.Part{part}))
}

// begunBatch creates a batch of four requests: one has an answer, one has failed.
func (w *world) begunBatch() (id string, f store.Fence) {
	w.Helper()
	id = w.batched(w.uploaded("in.jsonl", requestLine("a", "llama-3.1-8b")))
	f = w.start(jobOf(id), 4)
	w.committed(f, `{}`, "")
	return id, f
}

// checkOpenAI checks every answer of a world. This test makes batches of all statuses.
func TestOpenAI_BatchesInEveryState(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.get("/v1/batches").want(200)
	path := func(id string) string { return "/v1/batches/" + id }

	id := w.batched(w.uploaded("in.jsonl", requestLine("a", "llama-3.1-8b")))
	w.get(path(id)).wantBatch(batchState{status: "validating"})
	f := w.claim(jobOf(id))
	rows := int64(3)
	w.update(f, func(r *store.Record) error {
		r.Job.NumRows, r.Shards = &rows, 1
		return r.Job.Become(rowmill.StatusStarting, time.Now())
	})
	w.get(path(id)).wantBatch(batchState{"validating", 3, 0, 0}) // it waits for a server
	w.update(f, become(rowmill.StatusRunning))
	w.get(path(id)).wantBatch(batchState{"in_progress", 3, 0, 0})
	w.succeed(f, requestsOf(`{"n":12345678901234567890,"x":1e400}`, "", `{}`))
	w.wantListed(id, batchState{"finalizing", 3, 2, 1})
	completed := w.get(path(id)).wantBatch(batchState{"completed", 3, 2, 1})
	w.get("/v1/files/" + completed["error_file_id"].(string)).want(200)
	output := w.get("/v1/files/" + completed["output_file_id"].(string) + "/content").want(200)
	if want := `"body":{"n":12345678901234567890,"x":1e400}`; !strings.Contains(string(output.text), want) {
		t.Errorf("the output is %s, want %s as the server wrote it", output.text, want)
	}
	if got := output.header.Get("Content-Disposition"); got != `attachment; filename="`+id+`_output.jsonl"` {
		t.Errorf("the output is called %s", got)
	}
	w.do("POST", path(id)+"/cancel", "").want(400)

	id, _ = w.begunBatch()
	w.get(path(id)).wantBatch(batchState{"in_progress", 4, 1, 1})
	w.do("POST", path(id)+"/cancel", "").wantBatch(batchState{"cancelling", 4, 1, 1})
	w.wantListed(id, batchState{"cancelling", 4, 1, 1})
	w.get(path(id)).wantBatch(batchState{"cancelled", 4, 1, 3})
	w.do("POST", path(id)+"/cancel", "").wantBatch(batchState{"cancelled", 4, 1, 3})

	id = w.batched(w.uploaded("in.jsonl", requestLine("a", "llama-3.1-8b")))
	w.do("POST", path(id)+"/cancel", "").wantBatch(batchState{status: "cancelling"})
	w.get(path(id)).wantBatch(batchState{status: "cancelled"}) // the number of requests is unknown

	id, f = w.begunBatch()
	w.fail(f, rowmill.Failf(rowmill.CodeWindowExpired, "late"))
	w.wantListed(id, batchState{"finalizing", 4, 1, 1})
	w.get(path(id)).wantBatch(batchState{"expired", 4, 1, 3})

	id, f = w.begunBatch()
	w.fail(f, rowmill.Failf(rowmill.CodeModelUnavailable, "no server"))
	w.get(path(id)).wantBatch(batchState{"failed", 4, 1, 3})
	w.do("POST", path(id)+"/cancel", "").want(400)

	id = w.batched(w.uploaded("in.jsonl", "nonsense"))
	f = w.claim(jobOf(id))
	w.update(f, become(rowmill.StatusStarting))
	bad := rowmill.Failf(rowmill.CodeInvalidInputFile, "line 1")
	bad.AdditionalContext = `[{"code":"invalid_json_line","message":"Line 1 is no JSON.","param":null,"line":1}]`
	w.fail(f, bad)
	failed := w.get(path(id)).wantBatch(batchState{status: "failed"})
	if first := failed["errors"].(map[string]any)["data"].([]any)[0].(map[string]any); first["line"] != 1.0 || first["code"] != "invalid_json_line" {
		t.Errorf("errors %v", failed["errors"])
	}
	w.get("/v1/batches?limit=3").want(200)
}

// Files of all purposes, with and without an expiry.
func TestOpenAI_FilesOfEveryPurpose(t *testing.T) {
	t.Parallel()
	w := setup(t)
	empty := w.get("/v1/files").want(200).json()
	if empty["first_id"] != "" || empty["last_id"] != "" || empty["has_more"] != false {
		t.Errorf("an empty list is %v", empty)
	}
	w.do("PATCH", "/v1/settings", `{"retention_days":null}`).want(200)
	w.do("POST", "/v1/files", formOf("rows.csv", "x", "purpose", "user_data"), "Content-Type", formType).want(200)
	id := w.batched(w.uploaded("in.jsonl", requestLine("a", "llama-3.1-8b")))
	w.succeed(w.start(jobOf(id), 1), requestsOf(`{}`))
	w.get("/v1/batches/" + id).want(200)
	var purposes []string
	for _, f := range w.get("/v1/files").want(200).json()["data"].([]any) {
		f := f.(map[string]any)
		purposes = append(purposes, f["purpose"].(string))
		if _, expires := f["expires_at"]; expires == (f["purpose"] == "batch_output") {
			t.Errorf("%v", f) // here results never expire
		}
		w.get("/v1/files/" + f["id"].(string)).want(200)
		w.do("DELETE", "/v1/files/"+f["id"].(string), "").want(200)
	}
	if slices.Sort(purposes); fmt.Sprint(purposes) != "[batch batch_output user_data]" {
		t.Errorf("purposes %v", purposes)
	}
}

func TestOpenAI_UploadsInEveryState(t *testing.T) {
	t.Parallel()
	now := time.Now()
	w := setup(t, func(c *Config) { c.Now = func() time.Time { return now } })
	status := func(id string) any { return w.get("/v1/uploads/" + id).want(200).json()["status"] }
	done, given, late := w.begun("done", ""), w.begun("given up", "ab"), w.begun("late", "abc")
	if got := status(done); got != "pending" {
		t.Errorf("status %v", got)
	}
	if got := w.completed(done, "", w.sent(done, "x")).want(200).json(); got["status"] != "completed" || got["file"] == nil || status(done) != "completed" {
		t.Errorf("got %v", got)
	}
	if got := w.do("POST", "/v1/uploads/"+given+"/cancel", "").want(200).json(); got["status"] != "cancelled" || status(given) != "cancelled" {
		t.Errorf("got %v", got)
	}
	if now = now.Add(25 * time.Hour); status(late) != "expired" {
		t.Errorf("status %v", status(late))
	}
}

func TestOpenAI_Models(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for _, m := range w.get("/v1/models", "Authorization", "Bearer "+adminKey).want(200).json()["data"].([]any) {
		w.get("/v1/models/" + m.(map[string]any)["id"].(string)).want(200)
	}
	for key, status := range map[string]int{adminKey: 404, "nobody's": 401} {
		bearer := w.get("/v1/models/nobody's", "Authorization", "Bearer "+key).want(status).json()
		if said := bearer["error"].(map[string]any); said["message"] != bearer["message"] || said["code"] != bearer["code"] {
			t.Errorf("got %v", bearer)
		}
		if own := w.get("/v1/models/nobody's", "Authorization", "Key "+key).want(status).json(); own["error"] != nil || own["message"] == nil {
			t.Errorf("got %v", own)
		}
		theirs := w.get("/v1/models/nobody's", "Authorization", "", "X-Api-Key", key, "Anthropic-Version", "2023-06-01").want(status).json()
		if theirs["type"] != "error" || theirs["message"] != nil {
			t.Errorf("got %v", theirs)
		}
	}
}
