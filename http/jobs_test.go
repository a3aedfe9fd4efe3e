package http

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
)

// These helpers do the work of the pipeline.

// claim makes a new session the owner of the job.
func (w *world) claim(id string) store.Fence {
	w.Helper()
	session, err := w.store.OpenSession(w.Context(), "node", time.Hour)
	must.Succeed(w, err)
	record, err := w.store.Claim(w.Context(), id, session, store.Claim{Node: "gpu1", Process: "gpu1-a"})
	must.Succeed(w, err)
	return store.Fence{JobID: id, Session: session, Epoch: record.Epoch}
}

func (w *world) update(f store.Fence, change func(*store.Record) error) {
	w.Helper()
	must.Get(w.store.Update(w.Context(), f, change))(w)
}

func become(status rowmill.Status) func(*store.Record) error {
	return func(r *store.Record) error { return r.Job.Become(status, time.Now()) }
}

// failed creates a job, makes it fail and returns its id.
func (w *world) failed(body string, reason *rowmill.Failure) string {
	w.Helper()
	id := w.submitted(body)
	f := w.claim(id)
	w.update(f, become(rowmill.StatusStarting))
	_, err := w.store.Finish(w.Context(), f, func(r *store.Record) error {
		r.Job.FailureReason = reason
		return r.Job.Become(rowmill.StatusFailed, time.Now())
	})
	must.Succeed(w, err)
	return id
}

// unknownIDs has ids of no job.
var unknownIDs = []string{"job-00000000-0000-4000-8000-000000000000", "job-x", "x", "job-%00", strings.Repeat("a", 3000)}

func TestJob_HasEveryFieldOfTheInterface(t *testing.T) {
	t.Parallel()
	w := setup(t)
	id := w.submitted(`{"inputs":["a"],"name":"n"}`)
	job := w.get("/v1/jobs/" + id).want(200).json()["job"].(map[string]any)
	for name, want := range map[string]any{
		"job_id": id, "status": "pending", "model": "gpt-oss-20b", "system_prompt": nil, "job_priority": 0.0,
		"datetime_started": nil, "datetime_completed": nil, "json_schema": nil, "name": "n", "description": nil,
		"input_tokens": nil, "output_tokens": nil, "job_cost": nil, "num_rows": 1.0, "failure_reason": nil,
		"cost_estimate": nil, "run_type": "FULL", "rows_done": 0.0, "failed_rows": 0.0,
		"deduplicated_rows": 0.0, "truncated_rows": 0.0, "truncated_outputs": 0.0, "estimate": nil,
	} {
		if got, there := job[name]; !there || got != want {
			t.Errorf("%s = %v (there: %t), want %v", name, got, there, want)
		}
	}
	created, _ := job["datetime_created"].(string)
	if at, err := time.Parse(time.RFC3339, created); err != nil || !strings.HasSuffix(created, "Z") || time.Since(at) > time.Minute {
		t.Errorf("datetime_created %q: %v", created, err)
	}
	for _, list := range []string{"warnings"} {
		if _, isList := job[list].([]any); !isList {
			t.Errorf("%s is %v, want a list", list, job[list])
		}
	}
}

func TestJob_UnknownIs404WithMessage(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for _, id := range unknownIDs {
		w.get("/v1/jobs/"+id).wantError(404, "job_not_found", "no job was found")
	}
}

func TestJob_OfAnotherAccountIsUnknown(t *testing.T) {
	t.Parallel()
	w := setup(t)
	id := w.submitted(`{"inputs":["a"]}`)
	other := []string{"Authorization", "Key " + w.keyOf("other", caller.RoleAdmin)}
	for _, path := range []string{
		"/v1/jobs/%s", "/v1/job-status/%s", "/v1/job-cancel/%s", "/v1/jobs/%s/results", "/v1/jobs/%s/results-url",
		"/v1/jobs/%s/rows/0", "/v1/jobs/%s/errors",
	} {
		theirs := w.get(fmt.Sprintf(path, id), other...).wantError(404, "job_not_found", id).json()
		unknown := w.get(fmt.Sprintf(path, unknownIDs[0]), other...).want(404).json()
		if len(theirs) != len(unknown) || theirs["code"] != unknown["code"] {
			t.Errorf("%s: %v differs from %v", path, theirs, unknown)
		}
	}
	if jobs := w.get("/v1/list-jobs", other...).want(200).json()["jobs"].([]any); len(jobs) != 0 {
		t.Errorf("lists %v", jobs)
	}
	if w.record(id).Job.Status != rowmill.StatusPending {
		t.Error("the job was changed")
	}
}

func TestStatus_OfEveryState(t *testing.T) {
	t.Parallel()
	w := setup(t)
	id := w.submitted(`{"inputs":["a"]}`)
	status := func(want string) map[string]any {
		t.Helper()
		body := w.get("/v1/job-status/" + id).want(200).json()
		if body["job_status"] != want || body["message"] == "" || len(body) != 3 {
			t.Errorf("body %v, want %s", body, want)
		}
		if metadata, isObject := body["metadata"].(map[string]any); !isObject || metadata["failure_reason"] != nil {
			t.Errorf("metadata %v", body["metadata"])
		}
		return body
	}
	status("pending")
	f := w.claim(id)
	status("submitted")
	w.update(f, func(r *store.Record) error {
		r.Job.Message = "waiting for an engine that serves gpt-oss-20b"
		return r.Job.Become(rowmill.StatusStarting, time.Now())
	})
	if body := status("starting"); body["message"] != "waiting for an engine that serves gpt-oss-20b" {
		t.Errorf("message %v", body["message"])
	}
	w.update(f, become(rowmill.StatusRunning))
	status("running")
	w.get("/v1/job-cancel/" + id).want(200)
	status("cancelled")
	id = w.failed(`{"inputs":["a"]}`, nil)
	status("failed")
	id = w.succeeded(`{"inputs":["a"]}`, answers("x"))
	status("succeeded")
}

// While records cannot be written, they cannot contain the reason why a job waits. The
// answers about jobs that have not ended contain it.
func TestJob_WaitingReasonThatTheRecordLacks(t *testing.T) {
	t.Parallel()
	w := setup(t)
	over, runs := w.succeeded(`{"inputs":["a"]}`, answers("x")), w.submitted(`{"inputs":["a"]}`)
	w.service.waiting = "Waiting for the record store."
	for _, id := range []string{over, runs} {
		job := w.get("/v1/jobs/" + id).want(200).json()["job"].(map[string]any)
		status := w.get("/v1/job-status/" + id).want(200).json()
		for where, message := range map[string]any{"job": job["message"], "status": status["message"]} {
			if said := message == w.service.waiting; said != (id == runs) {
				t.Errorf("%s of a job that is %s says %q", where, job["status"], message)
			}
		}
	}
}

func TestStatus_OfAFailedJobHoldsTheReason(t *testing.T) {
	t.Parallel()
	w := setup(t)
	reason := rowmill.Failf(rowmill.CodeDownloadFailed, "the download answered 404")
	reason.AdditionalContext = "host example.org"
	id := w.failed(`{"inputs":["a"]}`, reason)
	body := w.get("/v1/job-status/" + id).want(200).json()
	metadata := body["metadata"].(map[string]any)
	if metadata["failure_reason"] != "the download answered 404" || metadata["additional_context"] != "host example.org" ||
		!strings.Contains(fmt.Sprint(body["message"]), "404") {
		t.Errorf("body %v", body)
	}
	job := w.get("/v1/jobs/" + id).want(200).json()["job"].(map[string]any)
	inRecord := job["failure_reason"].(map[string]any)
	if inRecord["code"] != "download_failed" || inRecord["message"] != "the download answered 404" || inRecord["additional_context"] != "host example.org" {
		t.Errorf("record has %v", inRecord)
	}
}

func TestStatus_CountsRows(t *testing.T) {
	t.Parallel()
	w := setup(t)
	look := func(id string) any { return w.get("/v1/job-status/" + id).want(200).json()["metadata"] }
	pending := map[string]any{"num_rows": nil, "rows_done": 0.0, "failed_rows": 0.0, "input_tokens": nil, "output_tokens": nil}
	if diff := cmp.Diff(any(pending), look(w.submitted(`{"inputs":"http://example.org/a.csv"}`))); diff != "" {
		t.Errorf("a pending job (-want +got):\n%s", diff)
	}
	f := w.running(`{"inputs":["a","b","c"]}`, 3)
	parts := []store.Part{w.some(f, 0, 0, 0, "a.parquet", "x", "")}
	parts[0].Totals.InputTokens, parts[0].Totals.OutputTokens = 13, 20
	must.Succeed(t, w.store.CommitParts(t.Context(), f, parts))
	running := map[string]any{"num_rows": 3.0, "rows_done": 2.0, "failed_rows": 1.0, "input_tokens": 13.0, "output_tokens": 20.0}
	if diff := cmp.Diff(any(running), look(f.JobID)); diff != "" {
		t.Errorf("a running job (-want +got):\n%s", diff)
	}
}

func TestStatus_OfAnUnknownJobIs404WithUnknown(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for _, id := range unknownIDs {
		body := w.get("/v1/job-status/"+id).wantError(404, "job_not_found", "no job was found").json()
		if metadata, isObject := body["metadata"].(map[string]any); body["job_status"] != "unknown" || !isObject || len(metadata) != 0 {
			t.Errorf("body %v", body)
		}
	}
}

func TestCancel_EveryCancellableState(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for _, until := range []rowmill.Status{rowmill.StatusPending, rowmill.StatusSubmitted, rowmill.StatusStarting, rowmill.StatusRunning} {
		id := w.submitted(`{"inputs":["a"]}`)
		if until != rowmill.StatusPending {
			f := w.claim(id)
			for _, next := range []rowmill.Status{rowmill.StatusStarting, rowmill.StatusRunning} {
				if w.record(id).Job.Status != until {
					w.update(f, become(next))
				}
			}
		}
		if at := w.record(id).Job.Status; at != until {
			t.Fatalf("job is %s, want %s", at, until)
		}
		body := w.get("/v1/job-cancel/" + id).want(200).json()
		if body["cancelled"] != true || body["message"] == "" || len(body) != 2 {
			t.Errorf("%s: body %v", until, body)
		}
		// The cancellation is durable before the answer.
		if job := w.record(id).Job; job.Status != rowmill.StatusCancelled || job.Completed == nil {
			t.Errorf("%s: job %+v", until, job)
		}
		if last := w.service.cancelled[len(w.service.cancelled)-1]; last != id {
			t.Errorf("%s: the pipeline got the hint %s", until, last)
		}
	}
}

func TestCancel_OfAFinishedJobIsFalse(t *testing.T) {
	t.Parallel()
	w := setup(t)
	cancelled := w.submitted(`{"inputs":["a"]}`)
	w.get("/v1/job-cancel/" + cancelled).want(200)
	hints := len(w.service.cancelled)
	for id, piece := range map[string]string{
		cancelled:                         "was cancelled before",
		w.failed(`{"inputs":["a"]}`, nil): "already failed",
		w.succeeded(`{"inputs":["a"]}`, answers("x")): "already completed",
	} {
		before := w.record(id)
		body := w.get("/v1/job-cancel/" + id).want(200).json()
		if body["cancelled"] != false || !strings.Contains(fmt.Sprint(body["message"]), piece) {
			t.Errorf("body %v, want %q", body, piece)
		}
		if after := w.record(id); after.Version != before.Version {
			t.Errorf("the %s job was changed", before.Job.Status)
		}
	}
	if len(w.service.cancelled) != hints {
		t.Errorf("hints %v", w.service.cancelled)
	}
}

func TestCancel_OfAnUnknownJobIs404(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for _, id := range unknownIDs {
		if body := w.get("/v1/job-cancel/"+id).wantError(404, "job_not_found", "no job was found").json(); body["cancelled"] != false {
			t.Errorf("body %v", body)
		}
	}
}

func TestCancel_OfConcurrentCancelsExactlyOneIsTrue(t *testing.T) {
	t.Parallel()
	w := setup(t)
	id := w.submitted(`{"inputs":["a"]}`)
	outcomes := make(chan any, 8)
	for range cap(outcomes) {
		go func() { outcomes <- w.get("/v1/job-cancel/" + id).json()["cancelled"] }()
	}
	won := 0
	for range cap(outcomes) {
		if <-outcomes == true {
			won++
		}
	}
	if won != 1 || len(w.service.cancelled) != 1 {
		t.Errorf("%d cancels answered true, hints %v", won, w.service.cancelled)
	}
}

func ids(body map[string]any) (found []string) {
	for _, job := range body["jobs"].([]any) {
		found = append(found, job.(map[string]any)["job_id"].(string))
	}
	return found
}

func TestList_PagesNewestFirst(t *testing.T) {
	t.Parallel()
	w := setup(t)
	var want []string
	for range 5 {
		want = append([]string{w.submitted(`{"inputs":["a"]}`)}, want...)
	}
	var got []string
	cursor := ""
	for pages := 1; ; pages++ {
		body := w.get("/v1/list-jobs?limit=2&cursor=" + cursor).want(200).json()
		if _, there := body["message"]; there {
			t.Error("a page has a message")
		}
		got = append(got, ids(body)...)
		next, more := body["next_cursor"].(string)
		if !more {
			if pages != 3 {
				t.Errorf("%d pages", pages)
			}
			break
		}
		cursor = next
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestList_WithoutLimitIsWhole(t *testing.T) {
	t.Parallel()
	w := setup(t)
	if body := w.get("/v1/list-jobs").want(200).json(); len(body["jobs"].([]any)) != 0 || body["message"] == "" {
		t.Errorf("body %v", body)
	}
	var want []string
	var creating errgroup.Group // the store groups these writes
	for i := range 401 {
		record := store.Record{SchemaVersion: store.SchemaVersion}
		record.Job.ID, record.Job.Status, record.Job.RunType = rowmill.NewJobID(), rowmill.StatusPending, rowmill.RunFull
		record.Job.Created, record.Spec.Account = time.Unix(int64(i), 0).UTC(), caller.DefaultAccount
		creating.Go(func() error {
			_, _, err := w.store.Create(context.Background(), record, nil)
			return err
		})
		want = append([]string{record.Job.ID}, want...)
	}
	must.Succeed(t, creating.Wait())
	// A cursor works only with a limit.
	body := w.get("/v1/list-jobs?cursor=nonsense").want(200).json()
	if got := ids(body); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %d jobs, want %d, or another order", len(got), len(want))
	}
	if _, there := body["next_cursor"]; there {
		t.Error("an unpaginated list has a cursor")
	}
}

func TestList_LimitIs1To100(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for _, limit := range []string{"0", "101", "-1", "x", "", "1.5", "99999999999999999999"} {
		w.get("/v1/list-jobs?limit="+limit).wantField("limit", "from 1 to 100")
	}
	w.get("/v1/list-jobs?limit=1").want(200)
	w.get("/v1/list-jobs?limit=100").want(200)
}

func TestList_MalformedCursorIs400(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.submitted(`{"inputs":["a"]}`)
	for _, cursor := range []string{"x", "%00", "AAAA", strings.Repeat("a", 2000)} {
		w.get("/v1/list-jobs?limit=1&cursor="+cursor).wantField("cursor", "")
	}
}
