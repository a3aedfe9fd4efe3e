package http

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
)

func (w *world) objectsOf(id string) []blob.ObjectInfo {
	w.Helper()
	infos, err := w.bucket.List(w.Context(), "jobs/"+id+"/")
	must.Succeed(w, err)
	return infos
}

func TestDeleteData_RemovesAllButTheRecord(t *testing.T) {
	t.Parallel()
	w := setup(t)
	id := w.succeeded(`{"inputs":["a"]}`, answers("x", ""))
	path := "/v1/jobs/" + id
	w.get(path + "/results-url").want(200) // creates another artifact
	before := w.get(path).want(200).json()
	first := w.do("DELETE", path+"/data", "").want(200).json()
	if first["job_id"] != id || first["data_removed"] == nil {
		t.Errorf("answer %v", first)
	}
	if got := w.objectsOf(id); len(got) != 0 {
		t.Errorf("objects %v are left", got)
	}
	if parts, err := w.store.ListParts(t.Context(), id); err != nil || len(parts) != 0 {
		t.Errorf("parts %v are left, %v", parts, err)
	}
	for _, gone := range []string{"/results", "/results?format=parquet", "/results?format=csv&include_inputs=true", "/results-url", "/rows/0", "/errors"} {
		w.get(path+gone).wantError(410, "results_expired", "retention")
	}
	w.get(path+"/rows/9007199254740992").wantError(400, "invalid_request", "row") // the request is invalid whatever the state of the job
	w.do("POST", "/v1/job-results", `{"job_id":"`+id+`"}`).wantError(410, "results_expired", "retention")
	if diff := cmp.Diff(before, w.get(path).want(200).json()); diff != "" {
		t.Errorf("record (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(first, w.do("DELETE", path+"/data", "").want(200).json()); diff != "" {
		t.Errorf("deleting again (-first +second):\n%s", diff)
	}
}

func TestDeleteData_OfAJobThatIsNotOverIsRefused(t *testing.T) {
	t.Parallel()
	w := setup(t)
	id := w.submitted(`{"inputs":["a"]}`)
	path := "/v1/jobs/" + id
	if body := w.do("DELETE", path+"/data", "").wantError(409, "job_not_over", "cancel it").json(); body["status"] != "pending" {
		t.Errorf("status %v", body["status"])
	}
	f := w.running(`{"inputs":["a"]}`, 1)
	if body := w.do("DELETE", "/v1/jobs/"+f.JobID+"/data", "").wantError(409, "job_not_over", "running").json(); body["status"] != "running" {
		t.Errorf("status %v", body["status"])
	}
	w.get("/v1/job-cancel/" + id).want(200)
	w.do("DELETE", path+"/data", "").want(200)
	if rec := w.record(id); rec.Spec.Inline != nil {
		t.Errorf("the record still holds the rows %v", rec.Spec.Inline)
	}
	w.get(path+"/errors").wantError(410, "results_expired", "retention")
}

func TestRelease(t *testing.T) {
	t.Parallel()
	w := setup(t)
	f := w.running(`{"inputs":["a"]}`, 1)
	path := "/v1/jobs/" + f.JobID
	w.do("POST", path+"/release", "").wantError(409, "job_not_parked", "running")
	w.park(f)
	until := w.get(path).want(200).json()["job"].(map[string]any)["parked_until"].(string)
	if at, err := time.Parse(time.RFC3339, until); err != nil || at.Before(time.Now()) {
		t.Errorf("parked until %s, %v", until, err)
	}
	for range 2 {
		job := w.do("POST", path+"/release", "").want(200).json()["job"].(map[string]any)
		if at, err := time.Parse(time.RFC3339, job["parked_until"].(string)); err != nil || at.After(time.Now()) {
			t.Errorf("the job is released, and parked until %v, %v", at, err)
		}
	}
	if orphans, err := w.store.Orphans(t.Context(), 1); err != nil || len(orphans) != 1 {
		t.Errorf("%d jobs wait for an owner, want 1, %v", len(orphans), err)
	}
}

func TestReschedule(t *testing.T) {
	t.Parallel()
	w := setup(t)
	id := w.submitted(`{"inputs":["a"],"job_priority":1}`)
	path := "/v1/jobs/" + id
	w.do("PATCH", path, `{"paused":"yes"}`).wantError(400, "invalid_request", "paused")
	w.do("PATCH", path, `{"job_priority":7}`).wantError(400, "invalid_request", "prototyping")
	w.do("PATCH", path, `{"pause":true}`).wantError(400, "invalid_request", "pause")
	w.do("PATCH", "/v1/jobs/"+rowmill.NewJobID(), `{"paused":true}`).wantError(404, "job_not_found", "job-")
	job := w.do("PATCH", path, `{"paused":true,"job_priority":0}`).want(200).json()["job"].(map[string]any)
	if message := job["message"].(string); job["paused"] != true || job["job_priority"] != 0.0 || !strings.HasPrefix(message, "Paused.") {
		t.Errorf("the answer is %v", job)
	}
	if view := w.get(path + "/progress").want(200).json(); !strings.HasPrefix(view["waits_for"].(string), "Paused.") {
		t.Errorf("the progress is %v", view)
	}
	if rec := w.record(id); rec.Spec.RowQuota != 1000 || !rec.Job.Paused {
		t.Errorf("the record is %+v, want the row quota of priority 0 and a pause", rec)
	}
	job = w.do("PATCH", path, `{"paused":false}`).want(200).json()["job"].(map[string]any)
	if _, paused := job["paused"]; paused || job["job_priority"] != 0.0 {
		t.Errorf("the answer is %v", job)
	}
	many := w.submitted(`{"inputs":[` + strings.Repeat(`"a",`, 1000) + `"a"],"job_priority":1}`)
	w.do("PATCH", "/v1/jobs/"+many, `{"job_priority":0}`).wantError(409, rowmill.CodeRowQuota, "1001 rows")
	if want := []string{id, id}; !slices.Equal(w.service.rescheduled, want) {
		t.Errorf("the pipeline got hints about %v, want %v", w.service.rescheduled, want)
	}
	w.get("/v1/job-cancel/" + id).want(200)
	w.do("PATCH", path, `{"paused":true}`).wantError(409, "job_over", "cancelled")
}

// park parks a job that the owner has.
func (w *world) park(f store.Fence) {
	w.Helper()
	must.Succeed(w, w.store.Park(w.Context(), f, time.Hour, "Parked"))
}

func TestDeleteData_OfAnotherAccountIsUnknown(t *testing.T) {
	t.Parallel()
	w := setup(t)
	id := w.succeeded(`{"inputs":["a"]}`, answers("x"))
	w.do("DELETE", "/v1/jobs/"+id+"/data", "", "Authorization", "Key "+w.keyOf("other", caller.RoleAdmin)).wantError(404, "job_not_found", id)
	w.get("/v1/jobs/" + id + "/results").want(200)
}

// A lapsingStore loses the end of a job when the job's parts are dropped.
type lapsingStore struct {
	store.Store
	lapses int
}

func (s *lapsingStore) DropParts(ctx context.Context, id string) error {
	if s.lapses--; s.lapses >= 0 {
		return fmt.Errorf("drop parts: job %s is running: %w", id, rowmill.ErrConflict)
	}
	return s.Store.DropParts(ctx, id)
}

// If the store has lost a confirmed write, the client did nothing wrong, so the answer
// asks it to try again.
func TestDeleteData_AfterALostWrite(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *Config) { c.Store = &lapsingStore{c.Store, 1} })
	path := "/v1/jobs/" + w.succeeded(`{"inputs":["a"]}`, answers("x")) + "/data"
	w.do("DELETE", path, "").wantError(503, "unavailable", "try again")
	w.do("DELETE", path, "").want(200)
}

// A job stays held after its data was deleted, so that the janitor checks it again.
func TestDeleteData_LeavesTheJobHeld(t *testing.T) {
	t.Parallel()
	w := setup(t)
	id := w.succeeded(`{"inputs":["a"]}`, answers("x"))
	w.do("DELETE", "/v1/jobs/"+id+"/data", "").want(200)
	if held, err := w.store.RetainedJobs(t.Context(), caller.DefaultAccount, time.Now().Add(time.Hour), 10); err != nil || !cmp.Equal(held, []string{id}) {
		t.Errorf("held %v, %v", held, err)
	}
}
