package http

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/store"
)

// listed returns the names of the jobs of a page, and the body of the answer.
func (w *world) listed(query string) (names []string, body map[string]any) {
	w.Helper()
	body = w.get("/v1/list-jobs?" + query).want(200).json()
	for _, job := range body["jobs"].([]any) {
		names = append(names, fmt.Sprint(job.(map[string]any)["name"]))
	}
	return names, body
}

func TestJobs_ListFiltered(t *testing.T) {
	t.Parallel()
	w, clock := setupClock(t)
	ids := map[string]string{}
	for _, name := range []string{"Nightly 1", "weekly", "Nightly 2", "nightly 3"} {
		ids[name] = w.submitted(fmt.Sprintf(`{"inputs":["a"],"name":%q,"description":"of %s's","model":"llama-3.1-8b"}`, name, name))
		clock.pass(time.Minute)
	}
	middle := clock.now().Add(-2*time.Minute - time.Second).UTC().Format(time.RFC3339Nano) // just before the creation of Nightly 2
	w.get("/v1/job-cancel/" + ids["Nightly 2"]).want(200)
	w.do("PATCH", "/v1/jobs/"+ids["weekly"], `{"paused":true}`).want(200)
	for query, want := range map[string][]string{
		"q=NIGHTLY":                               {"nightly 3", "Nightly 2", "Nightly 1"},
		"q=weekly%27s":                            {"weekly"},
		"q=" + ids["weekly"][4:]:                  {"weekly"},
		"q=monthly":                               nil,
		"status=cancelled":                        {"Nightly 2"},
		"status=pending,running&q=nightly":        {"nightly 3", "Nightly 1"},
		"status=paused":                           {"weekly"},
		"status=pending":                          {"nightly 3", "Nightly 1"},
		"status=":                                 {"nightly 3", "Nightly 2", "weekly", "Nightly 1"},
		"model=llama-3.1-8b&limit=100":            {"nightly 3", "Nightly 2", "weekly", "Nightly 1"},
		"model=llama-3.1":                         nil,
		"since=" + url.QueryEscape(middle):        {"nightly 3", "Nightly 2"},
		"q=ly+1&since=" + url.QueryEscape(middle): nil,
		"since=2000-01-01T00:00:00%2B02:00&q=ly":  {"nightly 3", "Nightly 2", "weekly", "Nightly 1"},
	} {
		names, body := w.listed(query)
		if !slices.Equal(names, want) {
			t.Errorf("%s: %q, want %q", query, names, want)
		}
		if query != "status=" && (body["next_cursor"] != nil || body["scanned_all"] != true) {
			t.Errorf("%s: %v", query, body)
		}
	}
	w.get("/v1/list-jobs?status=done").wantField("status", "pending, submitted, starting, running, succeeded, failed, cancelled, paused")
	w.get("/v1/list-jobs?status=running,").wantField("status", `""`)
	w.get("/v1/list-jobs?since=today").wantField("since", "2030-01-31T00:00:00Z")
	w.get("/v1/list-jobs?q="+strings.Repeat("a", 257)).wantField("q", "256")
}

// The pages of a filter have no gaps and no repetitions, also if the store's pages are
// larger than the requested page.
func TestJobs_PagesOfAFilter(t *testing.T) {
	t.Parallel()
	w := setup(t)
	var want []string
	for i := range 60 {
		name := fmt.Sprintf("odd %d", i)
		if i%3 == 0 {
			name = fmt.Sprintf("third %d", i)
			want = append([]string{name}, want...)
		}
		w.submitted(fmt.Sprintf(`{"inputs":["a"],"name":%q}`, name))
	}
	for _, limit := range []int{1, 3, 7, 20, 100} {
		var got []string
		for cursor := ""; ; {
			names, body := w.listed(fmt.Sprintf("q=third&limit=%d&cursor=%s", limit, cursor))
			got = append(got, names...)
			next, more := body["next_cursor"].(string)
			if !more {
				break
			}
			if len(names) != limit {
				t.Errorf("limit %d: a page of %d", limit, len(names))
			}
			cursor = next
		}
		if !slices.Equal(got, want) {
			t.Errorf("limit %d: %q", limit, got)
		}
	}
}

// manyJobs is a store with n jobs. Job number i has the name i. Job number failed has a failed row.
type manyJobs struct {
	store.Store
	n, failed int
}

func (m manyJobs) List(_ context.Context, account string, limit int, cursor string) ([]*rowmill.Job, string, error) {
	from := 0
	if cursor != "" {
		if _, err := fmt.Sscan(cursor, &from); err != nil {
			return nil, "", err
		}
	}
	var page []*rowmill.Job
	for ; len(page) < limit && from < m.n; from++ {
		name := fmt.Sprint(from)
		page = append(page, &rowmill.Job{ID: fmt.Sprintf("job-00000000-0000-7000-8000-%012d", from), Labels: rowmill.Labels{Name: &name}, Status: rowmill.StatusSucceeded, RunType: rowmill.RunFull, Model: "m"})
		if from == m.failed {
			page[len(page)-1].FailedRows = 1
		}
	}
	if from == m.n {
		return page, "", nil
	}
	return page, fmt.Sprint(from), nil
}

// A request reads a limited number of jobs, and its answer says so.
func TestJobs_FilterReadsALimitedNumber(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *Config) { c.Store = manyJobs{Store: c.Store, n: 25_000} })
	names, body := w.listed("q=12345")
	if len(names) != 0 || body["scanned_all"] != false || body["next_cursor"] != "10000" {
		t.Errorf("%q %v", names, body)
	}
	names, body = w.listed("q=12345&cursor=10000")
	if !slices.Equal(names, []string{"12345"}) || body["scanned_all"] != false || body["next_cursor"] != "20000" {
		t.Errorf("%q %v", names, body)
	}
	names, body = w.listed("q=12345&cursor=20000")
	if len(names) != 0 || body["scanned_all"] != true || body["next_cursor"] != nil {
		t.Errorf("%q %v", names, body)
	}
	if got := w.get("/v1/jobs/counts").want(200).json(); got["counted"] != 10_000.0 || got["of_all"] != false {
		t.Errorf("%v", got)
	}
	if got := w.do("POST", "/v1/jobs/cancel", `{"filter":{}}`).want(200).json(); got["already_over"] != 10_000.0 || got["scanned_all"] != false {
		t.Errorf("%v", got)
	}
}

func TestJobs_FilterByFailedRows(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *Config) { c.Store = manyJobs{Store: c.Store, n: 20, failed: 7} })
	for query, want := range map[string]int{"failed_rows=true": 1, "failed_rows=true&status=succeeded": 1, "failed_rows=true&status=failed": 0, "failed_rows=false": 20} {
		if names, _ := w.listed(query); len(names) != want || want == 1 && names[0] != "7" {
			t.Errorf("%s: %q, want %d jobs", query, names, want)
		}
	}
	w.get("/v1/list-jobs?failed_rows=some").wantField("failed_rows", "true or false")
	if got := w.get("/v1/jobs/counts").want(200).json(); got["with_failed_rows"] != 1.0 {
		t.Errorf("%v", got)
	}
	if got := w.do("POST", "/v1/jobs/cancel", `{"filter":{"failed_rows":true}}`).want(200).json(); got["matched"] != 1.0 {
		t.Errorf("%v", got)
	}
}

// A search finds a job without a name by the texts that the console shows in place of a name.
func TestJobs_FilterWithoutName(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.submitted(`{"inputs":["a"],"model":"llama-3.1-8b","system_prompt":"Sort the Tickets."}`)
	w.submitted(`{"inputs":["a"],"name":"named","system_prompt":"Sort the tickets."}`)
	for query, want := range map[string]int{"q=tickets": 1, "q=LLAMA": 1, "q=orders": 0, "q=named": 1} {
		if names, _ := w.listed(query); len(names) != want {
			t.Errorf("%s: %q, want %d jobs", query, names, want)
		}
	}
}

// A job with a limit is a test only if the limit leaves out rows.
func TestJobs_FilterByKind(t *testing.T) {
	t.Parallel()
	w, clock := setupClock(t)
	w.submitted(`{"inputs":["a","b"],"name":"whole"}`)
	w.submitted(`{"inputs":["a","b"],"name":"test","limit":1}`)
	w.submitted(`{"inputs":["a","b"],"name":"all by limit","limit":2}`)
	w.submitted(`{"inputs":["a","b"],"name":"estimate","cost_estimate":true}`)
	w.submitted(fmt.Sprintf(`{"inputs":["a"%s],"name":"pilot","limit":11}`, strings.Repeat(`,"b"`, 11)))
	for query, want := range map[string][]string{
		"kind=whole":       {"pilot", "all by limit", "whole"},
		"kind=tests":       {"estimate", "test"},
		"kind=tests&q=EST": {"estimate", "test"},
		"kind=":            {"pilot", "estimate", "all by limit", "test", "whole"},
	} {
		if names, _ := w.listed(query); !slices.Equal(names, want) {
			t.Errorf("%s: %q, want %q", query, names, want)
		}
	}
	w.get("/v1/list-jobs?kind=half").wantField("kind", "whole or tests")
	w.get("/v1/jobs/counts?kind=half").wantField("kind", "whole or tests")
	if got := w.do("POST", "/v1/jobs/cancel", `{"filter":{"kind":"tests"},"dry_run":true}`).want(200).json(); got["matched"] != 2.0 {
		t.Errorf("%v", got)
	}
	clock.pass(2 * time.Second)
	for kind, want := range map[string]float64{"": 5, "whole": 3, "tests": 2} {
		if got := w.get("/v1/jobs/counts?kind=" + kind).want(200).json(); got["counted"] != want || got["tests"] != 2.0 {
			t.Errorf("%s: %v", kind, got)
		}
	}
}

func TestJobs_Counts(t *testing.T) {
	t.Parallel()
	w, clock := setupClock(t)
	const none = `{"counts":{"pending":0,"submitted":0,"starting":0,"running":0,"succeeded":0,"failed":0,"cancelled":0,"paused":0},"with_failed_rows":0,"tests":0,"counted":0,"of_all":true}`
	w.get("/v1/jobs/counts").wantBody(none)
	id := w.submitted(`{"inputs":["a"]}`)
	w.submitted(`{"inputs":["a"]}`)
	w.get("/v1/jobs/counts").wantBody(none) // cached
	clock.pass(2 * time.Second)
	w.get("/v1/job-cancel/" + id).want(200)
	w.get("/v1/jobs/counts").wantBody(`{"counts":{"pending":1,"submitted":0,"starting":0,"running":0,"succeeded":0,"failed":0,"cancelled":1,"paused":0},"with_failed_rows":0,"tests":0,"counted":2,"of_all":true}`)
	paused := w.submitted(`{"inputs":["a"]}`)
	w.do("PATCH", "/v1/jobs/"+paused, `{"paused":true}`).want(200)
	clock.pass(2 * time.Second)
	if got := fmt.Sprint(w.get("/v1/jobs/counts").want(200).json()["counts"]); !strings.Contains(got, "paused:1 pending:1 ") {
		t.Error(got)
	}
	other := w.newKey(`{"account":"acme"}`)
	w.get("/v1/jobs/counts", other.header()...).wantBody(none)
}

func TestJobs_CancelMany(t *testing.T) {
	t.Parallel()
	w := setup(t)
	var ids []string
	for i := range 3 {
		ids = append(ids, w.submitted(fmt.Sprintf(`{"inputs":["a"],"name":"n%d"}`, i)))
	}
	w.get("/v1/job-cancel/" + ids[0]).want(200)
	cancel := func(body string) map[string]any {
		t.Helper()
		return w.do("POST", "/v1/jobs/cancel", body).want(200).json()
	}
	said := func(body map[string]any, matched, cancelled, over int, of ...string) {
		t.Helper()
		var named []string
		for _, id := range body["job_ids"].([]any) {
			named = append(named, id.(string))
		}
		slices.Sort(named)
		slices.Sort(of)
		if body["matched"] != float64(matched) || body["cancelled"] != float64(cancelled) || body["already_over"] != float64(over) || !slices.Equal(named, of) {
			t.Errorf("%v", body)
		}
	}
	said(cancel(`{"filter":{"q":"n"},"dry_run":true}`), 3, 2, 1, ids[1], ids[2])
	said(cancel(`{"filter":{"status":["pending","running"],"model":null},"dry_run":true}`), 2, 2, 0, ids[1], ids[2])
	said(cancel(`{"filter":{"status":"cancelled"},"dry_run":true}`), 1, 0, 1)
	if entries, _, err := w.store.ListAudit(t.Context(), caller.DefaultAccount, 10, ""); err != nil || len(entries) != 0 {
		t.Errorf("entries %v, %v", entries, err)
	}
	user := w.newKey(`{}`)
	w.do("POST", "/v1/jobs/cancel", `{"job_ids":["`+ids[0]+`","`+ids[1]+`","`+ids[1]+`"]}`, user.header()...).want(200)
	said(cancel(`{"filter":{"since":"2020-01-01T00:00:00Z"}}`), 3, 1, 2, ids[2])
	said(cancel(`{"filter":{}}`), 3, 0, 3)
	for _, id := range ids {
		if status := w.record(id).Job.Status; status != rowmill.StatusCancelled {
			t.Errorf("%s is %s", id, status)
		}
	}
	entries, _, err := w.store.ListAudit(t.Context(), caller.DefaultAccount, 10, "")
	if err != nil || len(entries) != 3 || entries[0].Action != "jobs.cancel" || entries[1].ByKey != user.id || !strings.Contains(string(entries[1].Details), ids[1]) {
		t.Errorf("entries %+v, %v", entries, err)
	}
	if len(w.service.cancelled) != 3 {
		t.Errorf("hints %q", w.service.cancelled)
	}
}

func TestJobs_CancelManyRefuses(t *testing.T) {
	t.Parallel()
	w := setup(t)
	id := w.submitted(`{"inputs":["a"]}`)
	for body, want := range map[string][2]string{
		`{}`:                              {"job_ids", "one of the two"},
		`{"job_ids":["a"],"filter":{}}`:   {"job_ids", "one of the two"},
		`{"job_ids":[]}`:                  {"job_ids", "1 to 1000"},
		`{"job_ids":"a"}`:                 {"job_ids", "array"},
		`{"filter":[]}`:                   {"filter", "object"},
		`{"filter":{"status":["done"]}}`:  {"filter.status", "pending"},
		`{"filter":{"state":"pending"}}`:  {"filter.state", "unknown"},
		`{"filter":{"since":"today"}}`:    {"filter.since", "a time"},
		`{"job_ids":["a"],"dryrun":true}`: {"dryrun", "unknown"},
		`{"job_ids":["` + strings.Repeat(`a","`, 1000) + `a"]}`: {"job_ids", "1001"},
	} {
		w.do("POST", "/v1/jobs/cancel", body).wantField(want[0], want[1])
	}
	w.do("POST", "/v1/jobs/cancel", `{"job_ids":["`+id+`","`+unknownIDs[0]+`"]}`).wantError(404, "job_not_found", unknownIDs[0])
	if status := w.record(id).Job.Status; status != rowmill.StatusPending {
		t.Errorf("the job is %s", status)
	}
}
