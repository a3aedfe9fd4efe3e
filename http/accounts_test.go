package http

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/rowmill/rowmill/http/caller"
)

// TestAccounts_OperatorsReadAll checks that an operator reads jobs, files and usage of one account
// or of all accounts.
func TestAccounts_OperatorsReadAll(t *testing.T) {
	t.Parallel()
	w := setup(t)
	red, blue := newTenant(w, "crimson", 715_517), newTenant(w, "cobalt", 924_429)
	own := w.submitted(`{"inputs":["a"]}`)
	if got := fmt.Sprint(w.get("/v1/accounts").want(200).json()["accounts"]); got != "[cobalt crimson default]" {
		t.Errorf("the accounts are %s", got)
	}
	w.do("PUT", "/v1/quotas?account=crimson", `{"cost_quota_usd":7.5}`).want(200)
	if got := fmt.Sprint(w.get("/v1/accounts").want(200).json()["cost_quotas_usd"]); got != "map[crimson:7.5]" {
		t.Errorf("the cost quotas are %s", got)
	}
	listed := func(path, list, id string) map[string]string {
		t.Helper()
		accounts := map[string]string{}
		for _, one := range w.get(path).want(200).json()[list].([]any) {
			entry := one.(map[string]any)
			account, _ := entry["account"].(string)
			accounts[entry[id].(string)] = account
		}
		return accounts
	}
	for _, path := range []string{"/v1/list-jobs?account=*", "/v1/list-jobs?account=*&limit=100", "/v1/list-jobs?account=*&status=pending,running,succeeded,failed,cancelled"} {
		got := listed(path, "jobs", "job_id")
		if got[red.jobs["done"]] != "crimson" || got[blue.jobs["pending"]] != "cobalt" || got[own] != caller.DefaultAccount {
			t.Errorf("%s: %v", path, got)
		}
	}
	of := listed("/v1/list-jobs?limit=100&account=crimson", "jobs", "job_id")
	if _, foreign := of[blue.jobs["done"]]; foreign || of[red.jobs["done"]] != "crimson" || of[own] != "" {
		t.Errorf("jobs of crimson: %v", of)
	}
	if mine := listed("/v1/list-jobs?limit=100", "jobs", "job_id"); len(mine) != 1 || mine[own] != "" {
		t.Errorf("own jobs: %v", mine)
	}
	count := func(query string) float64 {
		return w.get("/v1/jobs/counts" + query).want(200).json()["counted"].(float64)
	}
	if all, one := count("?account=*"), count("?account=crimson"); all != count("?account=cobalt")+one+count("") || one != float64(len(of)) {
		t.Errorf("%v jobs are counted, %v of crimson", all, one)
	}
	files := listed("/v1/files?account=*", "data", "id")
	if files[red.file] != "crimson" || files[blue.file] != "cobalt" {
		t.Errorf("files: %v", files)
	}
	if page := w.get("/v1/files?account=*&limit=1&order=asc").want(200).json(); page["has_more"] != true || len(page["data"].([]any)) != 1 {
		t.Errorf("a page of files: %v", page)
	}
	if one := listed("/v1/files?account=crimson", "data", "id"); one[red.file] != "crimson" || one[blue.file] != "" {
		t.Errorf("files of crimson: %v", one)
	}
	w.get("/v1/files?account=crimson&after=" + blue.file).want(404)
	usage := w.get("/v1/usage?account=*&group_by=model").want(200).json()
	rows := map[string]float64{}
	for _, line := range usage["usage"].([]any) {
		rows[line.(map[string]any)["account"].(string)] += line.(map[string]any)["rows"].(float64)
	}
	if one := w.get("/v1/usage?account=crimson").want(200).json()["total"].(map[string]any)["rows"]; rows["crimson"] != one || rows["cobalt"] == 0 || usage["account"] != "*" ||
		usage["total"].(map[string]any)["rows"] != rows["crimson"]+rows["cobalt"] {
		t.Errorf("usage %v, of crimson %v", usage, one)
	}
	done := red.jobs["done"]
	for _, path := range []string{"", "/progress", "/timeline", "/errors/counts"} {
		for account, want := range map[string]int{"*": 200, "crimson": 200, "cobalt": 404, "default": 404} {
			w.get("/v1/jobs/" + done + path + "?account=" + account).want(want)
		}
		w.get("/v1/jobs/"+done+path).wantError(404, "job_not_found", done)
	}
	if job := w.get("/v1/jobs/" + done + "?account=*").want(200).json()["job"].(map[string]any); job["account"] != "crimson" {
		t.Errorf("the job is of %v", job["account"])
	}
	// Rows, and requests that change something, need a key of the account.
	for _, ask := range []string{
		"GET /v1/jobs/ID/rows/0", "GET /v1/jobs/ID/errors", "GET /v1/jobs/ID/preview", "GET /v1/jobs/ID/results", "GET /v1/jobs/ID/results-url",
		"POST /v1/jobs/ID/cancel", "GET /v1/job-cancel/ID", "POST /v1/jobs/ID/resume", "POST /v1/jobs/ID/release", "DELETE /v1/jobs/ID/data", "PATCH /v1/jobs/ID",
	} {
		method, path, _ := strings.Cut(ask, " ")
		for _, account := range []string{"*", "crimson"} {
			w.do(method, strings.ReplaceAll(path, "ID", done)+"?account="+account, "").wantError(403, "forbidden", "own account")
		}
	}
	w.get("/v1/files/" + red.file + "?account=crimson").want(403)
	w.do("POST", "/v1/jobs/cancel?account=crimson", `{"filter":{"status":"pending"}}`).wantError(403, "forbidden", "own account")
	if status := w.record(own).Job.Status; status.IsTerminal() {
		t.Errorf("the own job is %s", status)
	}
}

// TestAccounts_OthersAreRefused checks that all callers but operators get a 403 if they name another
// account, or all accounts.
func TestAccounts_OthersAreRefused(t *testing.T) {
	t.Parallel()
	w := setup(t)
	red, blue := newTenant(w, "crimson", 715_517), newTenant(w, "cobalt", 924_429)
	paths := []string{
		"/v1/list-jobs", "/v1/list-jobs?limit=5", "/v1/list-jobs?status=succeeded", "/v1/jobs/counts", "/v1/files", "/v1/usage",
		"/v1/jobs/" + blue.jobs["done"], "/v1/jobs/" + blue.jobs["done"] + "/progress", "/v1/jobs/" + blue.jobs["done"] + "/timeline",
		"/v1/jobs/" + blue.jobs["done"] + "/errors/counts", "/v1/jobs/" + blue.jobs["done"] + "/preview", "/v1/jobs/" + blue.jobs["done"] + "/results",
		"/v1/files/" + blue.file, "/v1/batches/" + blue.batch,
	}
	plain := *w
	plain.key = w.newKey(`{"name":"a user of the account default"}`).text
	askers := []*world{red.as(red.admin), red.as(red.user), &plain}
	for _, path := range paths {
		join := "?"
		if strings.Contains(path, "?") {
			join = "&"
		}
		for _, account := range []string{"*", "cobalt", "nobody"} {
			for _, asker := range askers {
				got := asker.get(path + join + "account=" + url.QueryEscape(account)).want(403)
				if slices.ContainsFunc(blue.marks(), func(mark string) bool { return holds(string(got.text), mark) && !strings.Contains(path+account, mark) }) {
					t.Errorf("%s of %s: %s", path, account, got.text)
				}
			}
		}
	}
	if shown := red.as(red.user).get("/v1/jobs/" + red.jobs["done"] + "?account=crimson").want(200).json()["job"].(map[string]any); shown["account"] != "crimson" {
		t.Errorf("the own account is shown as %v", shown["account"])
	}
	for _, asker := range askers {
		asker.get("/v1/accounts").wantError(403, "forbidden", "")
	}
}
