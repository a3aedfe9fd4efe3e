package http

import (
	"fmt"
	"testing"
	"time"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
)

func TestRow_OfASucceededJob(t *testing.T) {
	t.Parallel()
	w := setup(t)
	rows, at := answers("x", ""), time.Date(2026, 7, 1, 12, 0, 0, 250_000_000, time.UTC)
	rows[1].out.Tries = &rowmill.RowAttempts{Omitted: 3, Attempts: []rowmill.Attempt{
		{At: at, Took: time.Second / 2, Node: "node-1", Engine: "sim", Status: 503, Code: "busy", Message: "later"},
		{At: at.Add(1750 * time.Millisecond), Took: time.Second, Node: "node-1", Engine: "sim", Code: rowmill.RowSchemaViolation, Message: "no"},
	}}
	id := w.succeeded(`{"inputs":["a","b"]}`, rows)
	want := `{"row":0,"input":"input 0","output":"x","error":null,"finish_reason":"stop","input_tokens":10,"output_tokens":20,"engine":"sim","duration_seconds":0.25,"attempts":1,"attempt_log":[],"attempts_omitted":0}` + "\n"
	if got := string(w.get("/v1/jobs/" + id + "/rows/0").want(200).text); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	want = `{"row":1,"input":"input 1","output":null,"error":{"code":"schema_violation","message":"is no object","raw_output":"raw"},"finish_reason":null,"input_tokens":3,"output_tokens":0,"engine":"sim","duration_seconds":0,"attempts":5,"attempt_log":[` +
		`{"at":"2026-07-01T12:00:00.25Z","duration_seconds":0.5,"node":"node-1","engine":"sim","status":503,"code":"busy","message":"later"},` +
		`{"at":"2026-07-01T12:00:02Z","duration_seconds":1,"node":"node-1","engine":"sim","status":null,"code":"schema_violation","message":"no"}],"attempts_omitted":3}` + "\n"
	if got := string(w.get("/v1/jobs/" + id + "/rows/1").want(200).text); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	w.get("/v1/jobs/"+id+"/rows/2").wantError(404, "row_not_found", "0 to 1")
}

// rowSet returns a set of rows in the form of a part's record.
func rowSet(t *testing.T, rows ...uint32) []byte {
	t.Helper()
	set, err := roaring.BitmapOf(rows...).ToBytes()
	must.Succeed(t, err)
	return set
}

func TestRow_OfARunningJobComesFromTheFirstPart(t *testing.T) {
	t.Parallel()
	w := setup(t)
	f := w.running(`{"inputs":["a"]}`, 10)
	schema := schemaOf(w.record(f.JobID), rowmill.IDNull)
	first, again := w.part(f, schema, 0, 0, answers("x", "y"), "a.parquet"), w.part(f, schema, 0, 1, answers("late", "z"), "b.parquet")
	first.Complete, first.Accepted = false, rowSet(t, 0, 1)
	w.commit(f, first)
	path := "/v1/jobs/" + f.JobID + "/rows/"
	if got := w.get(path + "1").want(200).json()["output"]; got != "y" {
		t.Errorf("output %v", got)
	}
	again.Complete, again.Accepted, again.Rows = false, rowSet(t, 2), 1
	w.commit(f, again)
	if got := w.get(path + "1").want(200).json()["output"]; got != "y" {
		t.Errorf("output %v, want that of the first commit", got)
	}
	if got := w.get(path + "2").want(200).json()["output"]; got != "z" {
		t.Errorf("output %v", got)
	}
	if body := w.get(path+"5").wantError(409, "row_not_done", "row 5").json(); body["status"] != "running" {
		t.Errorf("body %v", body)
	}
	w.get(path+"10").wantError(404, "row_not_found", "0 to 9")
}

func TestErrors_OfASucceededJobPage(t *testing.T) {
	t.Parallel()
	w := setup(t)
	id := w.succeeded(`{"inputs":["a"]}`, answers("x", "", "y", "", ""))
	w.wantErrors(id, 1, 3, 4)
	body := w.get("/v1/jobs/" + id + "/errors?limit=1").want(200).json()
	want := map[string]any{"row": 1.0, "code": "schema_violation", "message": "is no object", "raw_output": "raw"}
	if diff := cmp.Diff([]any{want}, body["errors"]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	none := w.succeeded(`{"inputs":["a"]}`, answers("x"))
	w.wantErrors(none)
}

// wantErrors reads the failed rows with every page size and compares their numbers.
func (w *world) wantErrors(id string, want ...int64) {
	w.Helper()
	for limit := 1; limit <= len(want)+1; limit++ {
		var got []int64
		for cursor := ""; ; {
			body := w.get(fmt.Sprintf("/v1/jobs/%s/errors?limit=%d&cursor=%s", id, limit, cursor)).want(200).json()
			page := body["errors"].([]any)
			if len(page) > limit {
				w.Errorf("%d errors on a page of %d", len(page), limit)
			}
			for _, e := range page {
				got = append(got, int64(e.(map[string]any)["row"].(float64)))
			}
			next, more := body["next_cursor"].(string)
			if !more {
				break
			}
			cursor = next
		}
		if diff := cmp.Diff(want, got); diff != "" {
			w.Errorf("limit %d (-want +got):\n%s", limit, diff)
		}
	}
}

func TestErrors_OfARunningJobComeFromItsParts(t *testing.T) {
	t.Parallel()
	w := setup(t)
	f := w.running(`{"inputs":["a"]}`, 100)
	w.wantErrors(f.JobID)
	schema := schemaOf(w.record(f.JobID), rowmill.IDNull)
	w.commit(f,
		w.part(f, schema, 1, 50, answers("", "x", ""), "c.parquet"),
		w.part(f, schema, 0, 0, answers("x", "", ""), "a.parquet"),
	)
	w.wantErrors(f.JobID, 1, 2, 50, 52)
}
