package http

import (
	"encoding/json"
	"fmt"
	nethttp "net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/internal/must"
)

// quotaed starts a world with configured quotas other than the defaults.
func quotaed(t testing.TB) *world {
	return setup(t, func(c *Config) {
		c.Quotas = []client.Quota{{Priority: 1, RowQuota: 50, TokenQuota: 5}, {Priority: 0, RowQuota: 2, TokenQuota: 4}}
	})
}

func (w *world) putQuotas(query, body string, headers ...string) *answered {
	w.Helper()
	return w.do("PUT", "/v1/quotas"+query, body, headers...)
}

// wantBody compares the body of a 200 with JSON.
func (a *answered) wantBody(want string) *answered {
	a.Helper()
	var expected map[string]any
	must.Succeed(a, json.Unmarshal([]byte(want), &expected))
	if diff := cmp.Diff(expected, a.want(200).json()); diff != "" {
		a.Errorf("body (-want +got):\n%s", diff)
	}
	return a
}

func TestSubmit_QuotasOfTheAccountArePinned(t *testing.T) {
	t.Parallel()
	w := quotaed(t)
	pinned := func(body string) string {
		spec := w.record(w.submitted(body)).Spec
		cost := "none"
		if spec.CostQuota != nil {
			cost = fmt.Sprint(*spec.CostQuota)
		}
		return fmt.Sprintf("rows %d, tokens %d, cost %s", spec.RowQuota, spec.TokenQuota, cost)
	}
	// Rows over the quota are accepted here; they make the job fail later.
	if got := pinned(`{"inputs":["a","b","c"]}`); got != "rows 2, tokens 4, cost none" {
		t.Error(got)
	}
	id := w.submitted(`{"inputs":["a"],"job_priority":1}`)
	w.putQuotas("", `{"quotas":[{"priority":1,"row_quota":7}],"cost_quota_usd":0.5}`).want(200)
	if got := pinned(`{"inputs":["a"],"job_priority":1}`); got != "rows 7, tokens 5, cost 0.5" {
		t.Error(got)
	}
	if got := pinned(`{"inputs":["a"],"job_priority":1,"cost_estimate":true}`); got != "rows 7, tokens 5, cost 0.5" {
		t.Error("an estimate:", got)
	}
	if spec := w.record(id).Spec; spec.RowQuota != 50 || spec.CostQuota != nil {
		t.Errorf("an earlier job has %d rows and a cost of %v", spec.RowQuota, spec.CostQuota)
	}
	want := `{"quotas":[{"priority":0,"row_quota":2,"token_quota":4},{"priority":1,"row_quota":7,"token_quota":5}]}` + "\n"
	if got := string(w.get("/v1/get-quotas").want(200).text); got != want {
		t.Errorf("got %s", got)
	}
}

func TestQuotas_DefaultsOfTheInterface(t *testing.T) {
	t.Parallel()
	want := `{"quotas":[{"priority":0,"row_quota":1000,"token_quota":1000000},{"priority":1,"row_quota":1000000,"token_quota":10000000}]}` + "\n"
	if got := string(setup(t).get("/v1/get-quotas").want(200).text); got != want {
		t.Errorf("got %s", got)
	}
}

func TestQuotas_PutReplacesTheAccountsOwn(t *testing.T) {
	t.Parallel()
	w := quotaed(t)
	const configured = `"quotas":[{"priority":0,"row_quota":2,"token_quota":4},{"priority":1,"row_quota":50,"token_quota":5}]`
	w.get("/v1/quotas").wantBody(`{"account":"default",` + configured + `,"cost_quota_usd":null,"own":{"quotas":[],"cost_quota_usd":null}}`)
	for _, step := range []struct{ body, want string }{
		{
			`{"quotas":[{"priority":1,"row_quota":9,"token_quota":null},{"priority":0,"token_quota":9223372036854775807}],"cost_quota_usd":12.5}`,
			`{"account":"default","quotas":[{"priority":0,"row_quota":2,"token_quota":9223372036854775807},{"priority":1,"row_quota":9,"token_quota":5}],
				"cost_quota_usd":12.5,"own":{"quotas":[{"priority":1,"row_quota":9},{"priority":0,"token_quota":9223372036854775807}],"cost_quota_usd":12.5}}`,
		},
		{`{"cost_quota_usd":0}`, `{"account":"default",` + configured + `,"cost_quota_usd":0,"own":{"quotas":[],"cost_quota_usd":0}}`},
		{
			`{"quotas":[{"priority":0,"row_quota":3}],"cost_quota_usd":null,"account":null}`,
			`{"account":"default","quotas":[{"priority":0,"row_quota":3,"token_quota":4},{"priority":1,"row_quota":50,"token_quota":5}],
				"cost_quota_usd":null,"own":{"quotas":[{"priority":0,"row_quota":3}],"cost_quota_usd":null}}`,
		},
		{`{}`, `{"account":"default",` + configured + `,"cost_quota_usd":null,"own":{"quotas":[],"cost_quota_usd":null}}`},
		{`{"quotas":null}`, `{"account":"default",` + configured + `,"cost_quota_usd":null,"own":{"quotas":[],"cost_quota_usd":null}}`},
	} {
		w.putQuotas("", step.body).wantBody(step.want)
		w.get("/v1/quotas").wantBody(step.want)
	}
	if logs := w.logs.String(); !strings.Contains(logs, "action=quotas.set") || !strings.Contains(logs, "account=default") {
		t.Error("a change of quotas is not logged")
	}
}

func TestQuotas_BrokenBodiesAreRefused(t *testing.T) {
	t.Parallel()
	w := quotaed(t)
	w.putQuotas("", `{"quotas":[{"priority":1,"row_quota":9}]}`).want(200)
	for name, tt := range map[string]struct{ body, field, piece string }{
		"PriorityMissing":    {`{"quotas":[{"row_quota":1}]}`, "quotas[0].priority", "missing"},
		"PriorityUnknown":    {`{"quotas":[{"priority":0},{"priority":9}]}`, "quotas[1].priority", "is 9; it must be " + rowmill.PriorityValues},
		"PriorityTwice":      {`{"quotas":[{"priority":0},{"priority":0}]}`, "quotas[1].priority", "twice"},
		"PriorityText":       {`{"quotas":[{"priority":"0"}]}`, "quotas[0].priority", "must be the integer " + rowmill.PriorityValues},
		"RowsZero":           {`{"quotas":[{"priority":0,"row_quota":0}]}`, "quotas[0].row_quota", "is 0; it must be at least 1"},
		"RowsFraction":       {`{"quotas":[{"priority":0,"row_quota":1.5}]}`, "quotas[0].row_quota", "whole number of rows"},
		"TokensNegative":     {`{"quotas":[{"priority":0,"token_quota":-1}]}`, "quotas[0].token_quota", "is -1"},
		"TokensBeyond64Bits": {`{"quotas":[{"priority":0,"token_quota":9223372036854775808}]}`, "quotas[0].token_quota", "whole number of tokens"},
		"UnknownQuota":       {`{"quotas":[{"priority":0,"rows":5}]}`, "quotas[0].rows", "unknown; the fields are priority, row_quota"},
		"QuotasObject":       {`{"quotas":{"priority":0}}`, "quotas", "must be an array of objects"},
		"QuotaNumber":        {`{"quotas":[5]}`, "quotas[0]", "must be an object"},
		"CostNegative":       {`{"cost_quota_usd":-0.01}`, "cost_quota_usd", "is -0.01"},
		"CostText":           {`{"cost_quota_usd":"5"}`, "cost_quota_usd", "must be a number of US dollars"},
		"CostTooLarge":       {`{"cost_quota_usd":1e7}`, "cost_quota_usd", "US dollars"},
		"NamelessField":      {`{"":5}`, `""`, "unknown; the fields are account, quotas and cost_quota_usd"},
		"AccountEmpty":       {`{"account":""}`, "account", "1 to 128 characters"},
		"RowsTooPrecise":     {`{"quotas":[{"priority":0,"row_quota":9007199254740994.0}]}`, "quotas[0].row_quota", "whole number of rows"},
		"UnknownField":       {`{"cost_quota":5}`, "cost_quota", "unknown; the fields are account, quotas and cost_quota_usd"},
		"AccountNumber":      {`{"account":5}`, "account", "must be a string"},
		"AccountSteers":      {`{"account":"a\u001b[2J"}`, "account", "plain text"},
		"AccountTooLong":     {`{"account":"` + strings.Repeat("a", 129) + `"}`, "account", "1 to 128 characters"},
	} {
		t.Run(name, func(t *testing.T) {
			answer := w.putQuotas("", tt.body)
			answer.TB = t
			answer.wantField(tt.field, tt.piece)
		})
	}
	w.putQuotas("?account=", `{"account":"c"}`).wantField("account", "1 to 128 characters")
	w.putQuotas("?account=b", `{"account":"c"}`).wantField("account", `"c" in the body and "b" in the query`)
	fields := w.putQuotas("", `{"quotas":[{"priority":5,"row_quota":0}],"cost_quota_usd":[]}`).fields()
	if len(fields) != 3 {
		t.Errorf("all broken fields at once: %v", fields)
	}
	for _, body := range []string{``, `[]`, `null`, `{"quotas":[]} {}`, `{"quotas"`} {
		w.putQuotas("", body).wantError(400, "invalid_json", "one JSON object")
	}
	w.putQuotas("", `{"account":"`+strings.Repeat("a", exchange.SmallObject)+`"}`).wantError(413, "body_too_large", "65536")
	if got := w.get("/v1/get-quotas").want(200).text; !strings.Contains(string(got), `"row_quota":9`) {
		t.Errorf("a refused body changed the quotas: %s", got)
	}
}

func TestQuotas_AreForAdministrators(t *testing.T) {
	t.Parallel()
	w := quotaed(t)
	as := func(account, role string) []string { return []string{"Authorization", "Key " + w.keyOf(account, role)} }
	user, admin, theirs := as("acme", caller.RoleUser), as("acme", caller.RoleAdmin), as("other", caller.RoleAdmin)
	root, plain := as(caller.DefaultAccount, caller.RoleAdmin), as(caller.DefaultAccount, caller.RoleUser)
	const body = `{"quotas":[{"priority":0,"row_quota":77}]}`
	for _, key := range [][]string{user, plain} {
		for _, query := range []string{"", "?account=acme"} {
			w.get("/v1/quotas"+query, key...).wantError(403, "forbidden", "administrator's key")
			w.putQuotas(query, body, key...).wantError(403, "forbidden", "administrator's key")
		}
		w.putQuotas("", `{"quotas":5}`, key...).wantError(403, "forbidden", "administrator's key")
	}
	w.get("/v1/quotas?account=acme", theirs...).wantError(403, "forbidden", "account default")
	w.putQuotas("?account=acme", body, theirs...).wantError(403, "forbidden", "account default")
	w.putQuotas("", `{"account":"acme","quotas":[]}`, theirs...).wantError(403, "forbidden", "account default")

	rows := func(key []string) string {
		body := w.get("/v1/get-quotas", key...).want(200).json()["quotas"].([]any)
		return fmt.Sprint(body[0].(map[string]any)["row_quota"])
	}
	w.putQuotas("", body, admin...).want(200)
	if rows(user) != "77" || rows(theirs) != "2" || rows(root) != "2" {
		t.Errorf("acme has %s rows, other %s, default %s", rows(user), rows(theirs), rows(root))
	}
	w.putQuotas("?account=acme", `{"quotas":[{"priority":0,"row_quota":78}]}`, admin...).want(200) // their own account, named
	w.putQuotas("", `{"account":"other","quotas":[{"priority":0,"row_quota":79}]}`, root...).want(200)
	if rows(user) != "78" || rows(theirs) != "79" || rows(root) != "2" {
		t.Errorf("acme has %s rows, other %s, default %s", rows(user), rows(theirs), rows(root))
	}
	if got := w.get("/v1/quotas?account=other").want(200).json()["account"]; got != "other" {
		t.Errorf("account %v", got)
	}
}

func TestQuotas_LostUpdatesAreRefused(t *testing.T) {
	t.Parallel()
	w := quotaed(t)
	tag := func(a *answered) string { return a.want(200).header.Get("ETag") }
	none := tag(w.get("/v1/quotas"))
	first := tag(w.putQuotas("", `{"cost_quota_usd":1}`, "If-Match", none))
	if first == none || tag(w.get("/v1/quotas")) != first {
		t.Errorf("tags %s and %s", none, first)
	}
	w.putQuotas("", `{"cost_quota_usd":2}`, "If-Match", none).wantError(412, "changed_meanwhile", "read them again")
	w.putQuotas("", `{"cost_quota_usd":2}`, "If-Match", `"77"`).wantError(412, "changed_meanwhile", `"77"`)
	if second := tag(w.putQuotas("", `{"cost_quota_usd":3}`, "If-Match", first)); second == first {
		t.Errorf("the tag stays %s", second)
	}
	w.putQuotas("", `{"cost_quota_usd":4}`, "If-Match", "*").want(200)

	// Only one of several requests that replace the same version succeeds.
	now := tag(w.get("/v1/quotas"))
	var wg sync.WaitGroup
	won := make(chan int, 8)
	for i := range 8 {
		r := w.request("PUT", "/v1/quotas", fmt.Sprintf(`{"cost_quota_usd":%d}`, 10+i), "If-Match", now)
		wg.Go(func() {
			response, err := w.client.Do(r)
			if err != nil {
				t.Error(err)
				return
			}
			response.Body.Close()
			switch response.StatusCode {
			case nethttp.StatusOK:
				won <- 10 + i
			case nethttp.StatusPreconditionFailed, nethttp.StatusConflict:
			default:
				t.Errorf("status %d", response.StatusCode)
			}
		})
	}
	wg.Wait()
	close(won)
	winner, more := <-won, 0
	for range won {
		more++
	}
	if got := w.get("/v1/quotas").json()["cost_quota_usd"]; more != 0 || got != float64(winner) {
		t.Errorf("%d further winners; the quota is %v, want that of the winner, %d", more, got, winner)
	}
}

func TestSubmit_CostEstimateMakesAnEstimateJob(t *testing.T) {
	t.Parallel()
	w := setup(t)
	body := w.post(`{"inputs":["a"],"cost_estimate":true}`).want(200).json()
	if message := fmt.Sprint(body["metadata"]); !strings.Contains(message, "cost_estimate") {
		t.Errorf("the answer says %s", message)
	}
	id := body["results"].(string)
	record := w.record(id)
	if record.Job.RunType != rowmill.RunEstimate || !record.Spec.Estimate || record.Spec.Spooled == "" || record.Job.Status != rowmill.StatusPending {
		t.Errorf("run type %s, estimate %v, status %s", record.Job.RunType, record.Spec.Estimate, record.Job.Status)
	}
	job := w.get("/v1/jobs/" + id).want(200).json()["job"].(map[string]any)
	if job["run_type"] != "COST_ESTIMATE" || job["cost_estimate"] != nil || job["estimate"] != nil {
		t.Errorf("run type %v, cost estimate %v, estimate %v", job["run_type"], job["cost_estimate"], job["estimate"])
	}
	if w.service.submitted[0] != id {
		t.Error("the pipeline got no hint")
	}
	if full := w.record(w.submitted(`{"inputs":["a"],"cost_estimate":false}`)); full.Job.RunType != rowmill.RunFull || full.Spec.Estimate {
		t.Errorf("a full job has run type %s", full.Job.RunType)
	}
	w.get("/v1/job-cancel/" + id).want(200)
	if cost := w.record(id).Job.JobCost; cost == nil || *cost != 0 {
		t.Errorf("a cancelled estimate costs %v", cost)
	}
}

// A number without a fraction is an integer in every notation. An account name must not
// be empty, in the query and in the body.
func TestQuotas_WholeNumbersAndNamesInTheQuery(t *testing.T) {
	t.Parallel()
	w := quotaed(t)
	own := w.putQuotas("", `{"quotas":[{"priority":1.0,"row_quota":9e2,"token_quota":5.0}]}`).want(200).json()["own"]
	if got := fmt.Sprint(own); !strings.Contains(got, "priority:1 row_quota:900 token_quota:5") {
		t.Errorf("own quotas %s", got)
	}
	w.submitted(`{"inputs":["a"],"job_priority":1.0}`)
	for _, path := range []string{"/v1/quotas", "/v1/settings", "/v1/keys", "/v1/audit", "/v1/functions", "/v1/usage"} {
		w.get(path+"?account=").wantField("account", "1 to 128 characters")
	}
	w.get("/v1/quotas?account=" + strings.Repeat("%C3%A4", 128)).want(200)
}
