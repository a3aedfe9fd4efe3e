package http

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
)

// ended creates a job of ten rows, commits some rows in three parts, and ends the job.
func (w *world) ended(status rowmill.Status) (id string) {
	w.Helper()
	inputs := make([]string, 10)
	for i := range inputs {
		inputs[i] = fmt.Sprintf("input %d", i)
	}
	sent, _ := json.Marshal(inputs)
	f := w.running(fmt.Sprintf(`{"inputs":%s}`, sent), 10)
	w.commit(f,
		w.some(f, 0, 0, 5, "b.parquet", "f", "g"),
		w.some(f, 0, 0, 1, "a.parquet", "b", ""),
		w.some(f, 0, 0, 4, "c.parquet", "e"),
	)
	w.end(f, status)
	return f.JobID
}

func (w *world) end(f store.Fence, status rowmill.Status) {
	w.Helper()
	var err error
	switch status {
	case rowmill.StatusCancelled:
		w.get("/v1/job-cancel/" + f.JobID).want(200)
	default:
		_, err = w.store.Finish(w.Context(), f, func(r *store.Record) error {
			r.Job.FailureReason = rowmill.Failf(rowmill.CodeTooManyFailedRows, "too many")
			return r.Job.Become(status, time.Now())
		})
	}
	must.Succeed(w, err)
}

// The committed rows of a failed or cancelled job were paid for, so they stay available.
func TestPartialResults_OfAJobThatDidNotSucceed(t *testing.T) {
	t.Parallel()
	for _, status := range []rowmill.Status{rowmill.StatusFailed, rowmill.StatusCancelled} {
		t.Run(string(status), func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			id := w.ended(status)
			results := "/v1/jobs/" + id + "/results"
			for _, path := range []string{results, results + "-url"} {
				w.get(path).want(409).wantError(409, "job_not_succeeded", "partial=true")
			}
			want := map[string]any{
				"outputs": []any{nil, "b", nil, nil, "e", "f", "g", nil, nil, nil},
				"inputs":  []any{"input 0", "input 1", "input 2", "input 3", "input 4", "input 5", "input 6", "input 7", "input 8", "input 9"},
			}
			if diff := cmp.Diff(want, w.get(results+"?partial=true&include_inputs=true").want(200).json()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			w.get(results + "?partial=1&format=csv").want(200)
			first := w.get(results + "?partial=true&format=parquet").want(200)
			if !strings.HasPrefix(string(first.text), "PAR1") {
				t.Errorf("the Parquet file begins with %q", first.text[:min(4, len(first.text))])
			}
			url := w.get(results + "-url?partial=true").want(200).json()
			key := url["artifact"].(map[string]any)["key"].(string)
			if got := w.object(key); string(got) != string(first.text) {
				t.Error("the URL leads to another file than the download")
			}
			if again := w.get(results + "-url?partial=true").want(200).json(); again["artifact"].(map[string]any)["key"] != key {
				t.Error("the file was made twice")
			}
			whys := map[float64]string{}
			next := ""
			for pages := 0; pages < 10; pages++ {
				page := w.get("/v1/jobs/" + id + "/errors?limit=2" + next).want(200).json()
				for _, e := range page["errors"].([]any) {
					e := e.(map[string]any)
					whys[e["row"].(float64)] = e["code"].(string)
				}
				if page["next_cursor"] == nil {
					break
				}
				next = "&cursor=" + page["next_cursor"].(string)
			}
			none := rowmill.RowNotRun
			if diff := cmp.Diff(map[float64]string{0: none, 2: "schema_violation", 3: none, 7: none, 8: none, 9: none}, whys); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
			if own := w.get("/v1/jobs/" + id + "/errors?not_run=false").want(200).json()["errors"].([]any); len(own) != 1 {
				t.Errorf("%d rows failed themselves, want 1", len(own))
			}
			w.do("DELETE", "/v1/jobs/"+id+"/data", "").want(200)
			w.get(results + "?partial=true").want(410)
			w.get(results + "-url?partial=true").want(410)
		})
	}
}

// The input may be removed before the outputs of the committed rows.
func TestPartialResults_AfterTheInputWasRemoved(t *testing.T) {
	t.Parallel()
	w := setup(t)
	id := w.ended(rowmill.StatusFailed)
	must.Succeed(t, w.store.MarkInputRemoved(t.Context(), id, time.Now()))
	got := w.get("/v1/jobs/" + id + "/results?partial=true&include_inputs=true").want(200).json()
	want := map[string]any{
		"outputs": []any{nil, "b", nil, nil, "e", "f", "g", nil, nil, nil},
		"inputs":  []any{nil, "input 1", "input 2", nil, "input 4", "input 5", "input 6", nil, nil, nil},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPartialResults_WithoutRowsOrWithAll(t *testing.T) {
	t.Parallel()
	w := setup(t)
	counted := w.submitted(`{"inputs":["a"]}`)
	w.get("/v1/jobs/"+counted+"/results?partial=true").wantError(409, "no_rows", "not counted yet")
	w.get("/v1/job-cancel/" + counted).want(200)
	w.get("/v1/jobs/"+counted+"/results?partial=true").wantError(409, "no_rows", "before its rows were counted")
	estimate := w.submitted(`{"inputs":["a"],"cost_estimate":true}`)
	w.get("/v1/jobs/"+estimate+"/results?partial=true").wantError(409, "no_results", "estimate")
	whole := w.succeeded(`{"inputs":["a","b"]}`, answers("x", ""))
	plain := w.get("/v1/jobs/" + whole + "/results").want(200)
	if partial := w.get("/v1/jobs/" + whole + "/results?partial=true").want(200); string(partial.text) != string(plain.text) {
		t.Errorf("partial results of a success are %s, its results %s", partial.text, plain.text)
	}
	w.get("/v1/jobs/"+whole+"/results?partial=perhaps").want(400).wantField("partial", "true or false")
}

func TestPartialResults_OfARunningJob(t *testing.T) {
	t.Parallel()
	w := setup(t)
	f := w.running(`{"inputs":["a"]}`, 4)
	w.commit(f, w.some(f, 0, 0, 2, "a.parquet", "c"))
	for _, format := range []string{"csv", "parquet"} {
		w.get("/v1/jobs/" + f.JobID + "/results?partial=true&format=" + format).want(200)
	}
	got := w.get("/v1/jobs/" + f.JobID + "/results?partial=true").want(200).json()
	if diff := cmp.Diff(map[string]any{"outputs": []any{nil, nil, "c", nil}}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	w.get("/v1/jobs/"+f.JobID+"/results-url?partial=true").wantError(409, "job_not_over", "/results?partial=true")
}
