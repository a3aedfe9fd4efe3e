package http

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/access"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/http/sdk"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
)

// sdkKey creates a key of the dialect and returns it as a header.
func (w *world) sdkKey() []string {
	w.Helper()
	text, record := access.NewKey(caller.DefaultAccount, caller.RoleUser, "sdk", time.Now())
	record.Dialect = sdk.Name
	must.Succeed(w, w.store.PutKey(w.Context(), record))
	return []string{"Authorization", "Key " + text}
}

// sdkStatus reads a status, and checks that the answer contains nothing else.
func (w *world) sdkStatus(id string, key []string) string {
	w.Helper()
	body := w.get("/v1/job-status/"+id, key...).want(200).json()
	if len(body) != 1 || len(body["job_status"].(map[string]any)) != 1 {
		w.Errorf("body %v, want only the status of the job", body)
	}
	return fmt.Sprint(body["job_status"].(map[string]any)[id])
}

func (w *world) wantSDK(id string, key []string, want ...string) {
	w.Helper()
	var got []string
	for range want {
		got = append(got, w.sdkStatus(id, key))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		w.Errorf("statuses (-want +got):\n%s", diff)
	}
}

func TestSDKDialect_StatusesAreUpperCase(t *testing.T) {
	t.Parallel()
	w := setup(t)
	key := w.sdkKey()
	id := w.submitted(`{"inputs":["a"]}`)
	w.wantSDK(id, key, "STARTING")
	f := w.claim(id)
	w.wantSDK(id, key, "STARTING")
	for _, next := range []rowmill.Status{rowmill.StatusStarting, rowmill.StatusRunning, rowmill.StatusFailed} {
		change := func(r *store.Record) error { return r.Job.Become(next, time.Now()) }
		if next.IsTerminal() {
			must.Get(w.store.Finish(t.Context(), f, change))(t)
		} else {
			w.update(f, change)
		}
		want := map[rowmill.Status]string{rowmill.StatusStarting: "STARTING", rowmill.StatusRunning: "RUNNING", rowmill.StatusFailed: "FAILED"}[next]
		w.wantSDK(id, key, want, want)
		if got := w.get("/v1/jobs/"+id, key...).want(200).json()["job"].(map[string]any)["status"]; got != want {
			t.Errorf("status in the record %v, want %s", got, want)
		}
		for _, query := range []string{"", "?limit=1"} {
			jobs := w.get("/v1/list-jobs"+query, key...).want(200).json()["jobs"].([]any)
			if got := jobs[0].(map[string]any)["status"]; got != want {
				t.Errorf("status in the list%s %v, want %s", query, got, want)
			}
		}
	}
	if got := w.get("/v1/job-status/" + id).want(200).json()["job_status"]; got != "failed" {
		t.Errorf("another key sees %v", got)
	}
}

// A client that waits for the start of a job accepts STARTING and RUNNING; some clients
// do not accept SUCCEEDED. So a job that ended a short time ago, before any client asked,
// is shown as RUNNING once.
func TestSDKDialect_ShowsRunningOnceBeforeSucceeded(t *testing.T) {
	t.Parallel()
	var ahead atomic.Int64 // how far the time is ahead
	w := setup(t, func(c *Config) { c.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) } })
	key, other := w.sdkKey(), w.sdkKey()
	fast := w.succeeded(`{"inputs":["a"]}`, answers("x"))
	if got := w.get("/v1/job-status/" + fast).want(200).json()["job_status"]; got != "succeeded" {
		t.Errorf("another key sees %v", got)
	}
	w.wantSDK(fast, key, "RUNNING", "SUCCEEDED", "SUCCEEDED")
	if !w.record(fast).ShownRunning {
		t.Error("the record does not remember it")
	}
	w.wantSDK(fast, other, "SUCCEEDED") // another client, perhaps at another node

	started := w.submitted(`{"inputs":["a"]}`)
	w.wantSDK(started, key, "STARTING")
	f := w.start(started, 1)
	w.succeed(f, answers("x"))
	w.wantSDK(started, key, "SUCCEEDED")

	f = w.running(`{"inputs":["a"]}`, 1)
	w.wantSDK(f.JobID, key, "RUNNING")
	w.succeed(f, answers("x"))
	w.wantSDK(f.JobID, key, "SUCCEEDED")

	past := w.succeeded(`{"inputs":["a"]}`, answers("x"))
	ahead.Store(int64(11 * time.Second))
	w.wantSDK(past, key, "SUCCEEDED")
	ahead.Store(0)

	f = w.running(`{"inputs":["a"]}`, 1)
	must.Get(w.store.Cancel(t.Context(), f.JobID, time.Now(), nil))(t)
	w.wantSDK(f.JobID, key, "CANCELLED")
}

// noNotes is a store that cannot record that a client has asked.
type noNotes struct{ store.Store }

func (noNotes) MarkShownRunning(context.Context, string) error { return rowmill.ErrUnavailable }

func TestSDKDialect_RealStatusIfTheStoreFails(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *Config) { c.Store = noNotes{c.Store} })
	key := w.sdkKey()
	w.wantSDK(w.submitted(`{"inputs":["a"]}`), key, "STARTING")
	w.wantSDK(w.succeeded(`{"inputs":["a"]}`, answers("x")), key, "SUCCEEDED", "SUCCEEDED")
}

func TestSDKDialect_CancelledJobsHaveAFailureReason(t *testing.T) {
	t.Parallel()
	w := setup(t)
	key := w.sdkKey()
	id := w.submitted(`{"inputs":["a"]}`)
	w.get("/v1/job-cancel/"+id, key...).want(200)
	reason, _ := w.get("/v1/jobs/"+id, key...).want(200).json()["job"].(map[string]any)["failure_reason"].(map[string]any)
	if text, _ := reason["message"].(string); text == "" {
		t.Errorf("failure_reason %v", reason)
	}
	if got := w.get("/v1/jobs/" + id).want(200).json()["job"].(map[string]any)["failure_reason"]; got != nil {
		t.Errorf("another key sees the failure_reason %v", got)
	}
}

// A client that follows a new job shows a progress bar with this many rows.
func TestNumRows_OfInlineRowsIsKnownAtOnce(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *Config) { c.MaxInlineBytes = 50 })
	w.publish(grade)
	for body, want := range map[string]any{
		`{"inputs":["a","b","c"]}`:                           3.0,
		`{"inputs":["` + strings.Repeat("a", 60) + `","b"]}`: 2.0, // in an object
		`{"model":"grade","inputs":[{"essay":"A"},"ready"]}`: 2.0,
		`{"inputs":"https://example.org/a.csv"}`:             nil,
		`{"inputs":["a"],"cost_estimate":true}`:              1.0,
	} {
		id := w.submitted(body)
		if got := w.get("/v1/jobs/" + id).want(200).json()["job"].(map[string]any)["num_rows"]; got != want {
			t.Errorf("%.60s: num_rows %v, want %v", body, got, want)
		}
		w.get("/v1/jobs/" + id + "/results?partial=true").want(409)
		w.get("/v1/job-cancel/" + id).want(200)
		if got := w.get("/v1/jobs/" + id).want(200).json()["job"].(map[string]any)["num_rows"]; got != want {
			t.Errorf("%.60s, cancelled: num_rows %v, want %v", body, got, want)
		}
		w.get("/v1/jobs/" + id + "/results?partial=true").want(409)
	}
}

func TestSDKDialect_UnknownJob(t *testing.T) {
	t.Parallel()
	w := setup(t)
	id := rowmill.NewJobID()
	body := w.get("/v1/job-status/"+id, w.sdkKey()...).wantError(404, "job_not_found", id).json()
	if diff := cmp.Diff(map[string]any{id: "UNKNOWN"}, body["job_status"]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Clients make a table of a list from its first records. A column that is null in all of
// them must not have a value in a later record.
func TestSDKDialect_ListsHaveNoNulls(t *testing.T) {
	t.Parallel()
	w := setup(t)
	key := w.sdkKey()
	w.succeeded(`{"inputs":["a"],"name":"first","json_schema":{"type":"object"}}`, answers("{}"))
	w.submitted(`{"inputs":["a"]}`)
	for _, path := range []string{"/v1/list-jobs", "/v1/list-jobs?limit=5"} {
		jobs := w.get(path, key...).want(200).json()["jobs"].([]any)
		open, over := jobs[0].(map[string]any), jobs[1].(map[string]any)
		var nulls []string
		for name, value := range open {
			if value == nil {
				nulls = append(nulls, name)
			}
		}
		if !slices.Equal(nulls, []string{"datetime_completed"}) || fmt.Sprint(open["input_tokens"], open["job_cost"]) != "0 0" {
			t.Errorf("%s: nulls %v in %v", path, nulls, open)
		}
		if over["name"] != "first" || over["json_schema"] == nil || over["status"] != "SUCCEEDED" {
			t.Errorf("%s: %v", path, over)
		}
		for _, job := range w.get(path).want(200).json()["jobs"].([]any) {
			if _, there := job.(map[string]any)["failure_reason"]; !there {
				t.Errorf("%s: a key without a dialect misses failure_reason", path)
			}
		}
	}
}

// Clients find the type of a column from its first hundred values, and fail if all
// completion times are null.
func TestSDKDialect_ListHasACompletionTime(t *testing.T) {
	t.Parallel()
	w := setup(t)
	key := w.sdkKey()
	w.succeeded(`{"inputs":["a"]}`, answers("x"))
	completed := func(key ...string) (times []string) {
		for _, job := range w.get("/v1/list-jobs", key...).want(200).json()["jobs"].([]any) {
			times = append(times, fmt.Sprint(job.(map[string]any)["datetime_completed"]))
		}
		return times
	}
	const epoch = "1970-01-01T00:00:00Z"
	for range 99 {
		w.submitted(`{"inputs":["a"]}`)
	}
	if times := completed(key...); slices.Contains(times, epoch) {
		t.Errorf("the hundredth job has ended, but: %v", times)
	}
	w.submitted(`{"inputs":["a"]}`)
	if times := completed(key...); slices.Index(times, epoch) != 99 || times[100] == "<nil>" || times[98] != "<nil>" {
		t.Errorf("none of the first hundred jobs has ended: %v", times)
	}
	if times := completed(); slices.Contains(times, epoch) {
		t.Errorf("with a key without a dialect: %v", times)
	}
}
