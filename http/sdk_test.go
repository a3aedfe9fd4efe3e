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
	"github.com/rowmill/rowmill/store"
)

// sdkKey makes a key of the dialect, as a header.
func (w *world) sdkKey() []string {
	w.Helper()
	text, record := access.NewKey(caller.DefaultAccount, caller.RoleUser, "sdk", time.Now())
	record.Dialect = sdk.Name
	if err := w.store.PutKey(w.Context(), record); err != nil {
		w.Fatal(err)
	}
	return []string{"Authorization", "Key " + text}
}

// sdkStatus asks for a status as a client does that reads nothing else.
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
		if next.Terminal() {
			if _, err := w.store.Finish(t.Context(), f, change); err != nil {
				t.Fatal(err)
			}
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

// A client that waits for a job to start takes STARTING and RUNNING for the
// sign, some not SUCCEEDED: RUNNING stands in for it once where a job was over
// before anybody asked, and not long ago.
func TestSDKDialect_RunningStandsInForSucceededOnce(t *testing.T) {
	t.Parallel()
	var ahead atomic.Int64 // of the time
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
	w.wantSDK(fast, other, "SUCCEEDED") // another client, maybe on another node

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
	if _, err := w.store.Cancel(t.Context(), f.JobID, time.Now(), nil); err != nil {
		t.Fatal(err)
	}
	w.wantSDK(f.JobID, key, "CANCELLED")
}

// noNotes is a store that notes nothing.
type noNotes struct{ store.Store }

func (noNotes) ShowRunning(context.Context, string) error { return rowmill.ErrUnavailable }

func TestSDKDialect_WithoutNotesAStatusIsTrue(t *testing.T) {
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

// A client that attaches to a job right away draws a bar of that many rows.
func TestNumRows_IsKnownAtOnceOfRowsThatWereSent(t *testing.T) {
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

// Clients make a table of a list from its first records: what is null in these
// must not come as something else behind them.
func TestSDKDialect_ListsHaveNoNullsToStumbleOver(t *testing.T) {
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

// Clients make dates of a column that they know by its first hundred values, and
// give up where these are null.
func TestSDKDialect_AListHasATimeOfCompletionAmongItsFirst(t *testing.T) {
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
		t.Errorf("the hundredth is over, and yet: %v", times)
	}
	w.submitted(`{"inputs":["a"]}`)
	if times := completed(key...); slices.Index(times, epoch) != 99 || times[100] == "<nil>" || times[98] != "<nil>" {
		t.Errorf("none of the first hundred is over: %v", times)
	}
	if times := completed(); slices.Contains(times, epoch) {
		t.Errorf("with a key without a dialect: %v", times)
	}
}
