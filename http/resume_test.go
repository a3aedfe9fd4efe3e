package http

import (
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
)

func (w *world) resume(id, body string, headers ...string) *answered {
	w.Helper()
	return w.do("POST", "/v1/jobs/"+id+"/resume", body, headers...)
}

func TestResume_MakesAJobThatContinuesAnother(t *testing.T) {
	t.Parallel()
	w := setup(t)
	id := w.ended(rowmill.StatusCancelled)
	listed := func() any {
		w.Helper()
		jobs := w.get("/v1/list-jobs?limit=100").want(200).json()["jobs"].([]any)
		return jobs[len(jobs)-1].(map[string]any)["continued_by"]
	}
	if by := listed(); by != nil {
		t.Errorf("listed as continued by %v", by)
	}
	made := w.resume(id, `{"job_priority":1,"name":"again"}`, "Idempotency-Key", "k").want(200).json()["results"].(string)
	record := w.record(made)
	old := w.record(id)
	if c := record.Spec.Continue; c == nil || c.Job != id || c.Failed || record.Spec.Inline != nil || record.Job.Status != rowmill.StatusPending {
		t.Errorf("the job is %s, continues %+v and has %d rows", record.Job.Status, c, len(record.Spec.Inline))
	}
	if record.Spec.Priority != 1 || record.Spec.RowQuota != 1_000_000 || *record.Job.Name != "again" || record.Spec.Model.ID != old.Spec.Model.ID {
		t.Errorf("priority %d, row quota %d, name %s, model %s", record.Spec.Priority, record.Spec.RowQuota, *record.Job.Name, record.Spec.Model.ID)
	}
	if old.Job.Status != rowmill.StatusCancelled || old.Job.ContinuedBy == nil || *old.Job.ContinuedBy != made || *record.Job.Continues != id {
		t.Errorf("the old job is %s, continued by %v", old.Job.Status, old.Job.ContinuedBy)
	}
	if by := listed(); by != made {
		t.Errorf("listed as continued by %v", by)
	}
	shown := w.get("/v1/jobs/" + made).want(200).json()["job"].(map[string]any)
	if shown["continues"] != id || shown["rows_taken_over"] != 0.0 {
		t.Errorf("shown as continuing %v with %v rows", shown["continues"], shown["rows_taken_over"])
	}
	if again := w.resume(id, `{"name":"again","job_priority":1}`, "Idempotency-Key", "k").want(200).json()["results"]; again != made {
		t.Errorf("the same request made %v", again)
	}
	w.resume(id, `{"name":"other"}`, "Idempotency-Key", "k").wantError(409, "idempotency_conflict", "")
	if again := w.resume(id, `{"name":"again","job_priority":1}`).want(200).json()["results"]; again != made {
		t.Errorf("the same request without a key made %v", again)
	}
	if of := w.resume(id, `{}`).wantError(409, "already_continued", `{"again": true}`).json()["job_id"]; of != made {
		t.Errorf("another request is refused because of %v", of)
	}
	if third := w.resume(id, `{"again":true}`).want(200).json()["results"]; third == made || *w.record(id).Job.ContinuedBy != third {
		t.Errorf("a third request made %v, the job is continued by %s", third, *w.record(id).Job.ContinuedBy)
	}
	if by := listed(); by != *w.record(id).Job.ContinuedBy {
		t.Errorf("listed as continued by %v", by)
	}
	w.resume(made, `{}`).wantError(409, "job_not_over", "has not ended")
}

// A job with a limit is continued with the same rows, or with all rows of its input.
func TestResume_Rest(t *testing.T) {
	t.Parallel()
	w := setup(t)
	f := w.running(`{"inputs":["a","b","c"],"limit":2,"sample":"random","name":"trial"}`, 2)
	w.succeed(f, answers("x", "y"))
	id := f.JobID
	shown := w.get("/v1/jobs/" + id).want(200).json()["job"].(map[string]any)
	if shown["limit"] != 2.0 || shown["sample"] != "random" || shown["num_rows"] != 2.0 || shown["input_rows"] != 3.0 {
		t.Errorf("%v of %v rows, limit %v, sample %v", shown["num_rows"], shown["input_rows"], shown["limit"], shown["sample"])
	}
	w.resume(id, `{}`).wantError(409, "nothing_to_run", `send {"rows": "rest"} to run the other 1 rows`)
	w.resume(id, `{"rows":"failed"}`).wantError(409, "nothing_to_run", "")
	rest := w.resume(id, `{"rows":"rest"}`).want(200).json()["results"].(string)
	if again := w.resume(id, `{"rows":"rest"}`).want(200).json()["results"]; again != rest {
		t.Errorf("the same request made %v", again)
	}
	record := w.record(rest)
	if c := record.Spec.Continue; !c.Rest || !c.Failed || record.Spec.RowChoice != (rowmill.RowChoice{}) || record.Job.RowChoice != (rowmill.RowChoice{}) || record.Job.InputRows != nil {
		t.Errorf("the rest continues %+v with %+v", c, record.Spec.RowChoice)
	}
	whole := w.succeeded(`{"inputs":["a","b"],"limit":2}`, answers("x", "y"))
	w.resume(whole, `{"rows":"rest"}`).wantError(409, "nothing_to_run", "all 2 rows")
	w.resume(w.succeeded(`{"inputs":["a"]}`, answers("x")), `{"rows":"rest"}`).wantError(409, "nothing_to_run", "had no limit")
	f = w.running(`{"inputs":["a","b","c"],"limit":2}`, 2)
	w.succeed(f, answers("x", ""))
	same := w.record(w.resume(f.JobID, `{}`).want(200).json()["results"].(string))
	if c := same.Spec.Continue; c.Rest || !c.Failed || same.Spec.Limit != 2 || same.Job.Limit != 2 {
		t.Errorf("a job with a failed row is continued with %+v, limit %d", c, same.Spec.Limit)
	}
	w.resume(f.JobID, `{"rows":"rest"}`).wantError(409, "already_continued", "with other rows")
	f = w.running(`{"inputs":["a","b","c"],"cost_estimate":true}`, 3)
	w.resume(f.JobID, `{"rows":"rest"}`).wantError(409, "estimate_job", "once it has succeeded")
	w.succeed(f, answers("x", "y", "z"))
	w.resume(f.JobID, `{}`).wantError(409, "estimate_job", `send {"rows": "rest"}`)
	record = w.record(w.resume(f.JobID, `{"rows":"rest"}`).want(200).json()["results"].(string))
	if c := record.Spec.Continue; !c.Rest || record.Spec.Estimate || record.Job.RunType != rowmill.RunFull || record.Job.Estimate != nil {
		t.Errorf("an estimate is continued as %+v, %s", c, record.Job.RunType)
	}
}

// The rows that a new job runs may have a larger max_tokens than the rows of the old job.
func TestResume_MaxTokens(t *testing.T) {
	t.Parallel()
	w := setup(t)
	f := w.running(`{"inputs":["a","b"],"model":"llama-3.1-8b","sampling_params":{"max_tokens":8,"temperature":0.5,"min_tokens":2}}`, 2)
	w.succeed(f, answers("x", ""))
	of := func(id string) map[string]any {
		w.Helper()
		return w.get("/v1/jobs/" + id).want(200).json()["job"].(map[string]any)["sampling_params"].(map[string]any)
	}
	w.resume(f.JobID, `{"sampling_params":{"max_tokens":0}}`).wantField("sampling_params.max_tokens", "at least 1")
	w.resume(f.JobID, `{"sampling_params":{"max_tokens":1}}`).wantField("sampling_params.min_tokens", "max_tokens")
	w.resume(f.JobID, `{"sampling_params":{"max_tokens":100000000}}`).wantField("sampling_params.max_tokens", "no room for a prompt")
	w.resume(f.JobID, `{"sampling_params":{"temperature":1}}`).wantField("sampling_params.temperature", "unknown")
	const body = `{"sampling_params":{"max_tokens":16}}`
	made := w.resume(f.JobID, body, "Idempotency-Key", "k").want(200).json()["results"].(string)
	record := w.record(made)
	if spec := record.Spec; spec.MaxTokens() != 16 || !spec.Continue.Failed {
		t.Errorf("the new job has max_tokens %d, continues %+v", spec.MaxTokens(), spec.Continue)
	}
	if now, old := of(made), of(f.JobID); now["max_tokens"] != 16.0 || now["temperature"] != 0.5 || old["max_tokens"] != 8.0 {
		t.Errorf("the new job shows %v, the old job %v", now, old)
	}
	for _, headers := range [][]string{nil, {"Idempotency-Key", "k"}} {
		if again := w.resume(f.JobID, body, headers...).want(200).json()["results"]; again != made {
			t.Errorf("the same request made %v", again)
		}
	}
	w.resume(f.JobID, `{}`).wantError(409, "already_continued", "max_tokens")
	w.resume(f.JobID, `{"sampling_params":{"max_tokens":32}}`, "Idempotency-Key", "k").wantError(409, "idempotency_conflict", "")
}

func TestResume_Refuses(t *testing.T) {
	t.Parallel()
	w := setup(t)
	whole := w.succeeded(`{"inputs":["a"]}`, answers("x"))
	w.resume(whole, `{}`).wantError(409, "nothing_to_run", "all 1 rows")
	f := w.running(`{"inputs":["a","b"]}`, 2)
	w.succeed(f, answers("x", ""))
	some := f.JobID
	w.resume(some, `{"rows":"missing"}`).wantError(409, "nothing_to_run", `"failed"`)
	if made := w.resume(some, `{}`).want(200).json()["results"].(string); !w.record(made).Spec.Continue.Failed {
		t.Error("a success is continued without its failed rows")
	}
	many := w.ended(rowmill.StatusFailed) // too many rows failed
	w.resume(many, `{"rows":"missing"}`).wantError(409, "nothing_to_run", `"failed"`)
	if made := w.resume(many, `{}`).want(200).json()["results"].(string); !w.record(made).Spec.Continue.Failed {
		t.Error("a job that too many rows of failed is continued without them")
	}
	estimate := w.submitted(`{"inputs":["a"],"cost_estimate":true}`)
	w.get("/v1/job-cancel/" + estimate).want(200)
	w.resume(estimate, `{}`).wantError(409, "estimate_job", "")
	far := w.submitted(`{"inputs":"https://example.org/rows.csv","column_name":"c"}`)
	w.get("/v1/job-cancel/" + far).want(200)
	w.resume(far, `{}`).wantError(409, "input_removed", "never downloaded")
	gone := w.ended(rowmill.StatusCancelled)
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	must.Succeed(t, w.store.MarkInputRemoved(t.Context(), gone, at))
	w.resume(gone, `{}`).wantError(409, "input_removed", "at 2026-03-04T05:06:07Z, because jobs.input_retention")
	w.do("DELETE", "/v1/jobs/"+many+"/data", "").want(200)
	w.resume(many, `{}`).want(410)
	w.resume(gone, `{"rows":"all"}`).want(400).wantField("rows", "missing")
	other := w.keyOf("other", "user")
	w.resume(gone, `{}`, "Authorization", "Key "+other).want(404)
}
