package quotas

import (
	"encoding/json"
	nethttp "net/http"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/cmd/rowmill/connect"
	"github.com/rowmill/rowmill/http/access"
	"github.com/rowmill/rowmill/http/caller"
	apiquotas "github.com/rowmill/rowmill/http/quotas"
	"github.com/rowmill/rowmill/internal/clitest"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A program is the commands with a service.
type program struct {
	*clitest.Program
	answered func(r *nethttp.Request) // called after each answer, if set
}

func start(t testing.TB) *program {
	t.Helper()
	p := &program{}
	p.Program = clitest.Start(t, clitest.Config{
		Commands: func(service connect.Options) []*cobra.Command {
			return []*cobra.Command{Command(service), Usage(service)}
		},
		Wrap: func(api nethttp.Handler) nethttp.Handler {
			return nethttp.HandlerFunc(func(w nethttp.ResponseWriter, r *nethttp.Request) {
				api.ServeHTTP(w, r)
				if p.answered != nil {
					p.answered(r)
				}
			})
		},
	})
	p.Now = time.Date(2026, 2, 28, 12, 0, 0, 0, time.UTC)
	return p
}

func TestQuotasShowWhereTheyComeFrom(t *testing.T) {
	t.Parallel()
	p := start(t)
	const head = "QUOTA VALUE FROM"
	p.Run("quotas get").WantOutput(0, "account default").WantTable(
		head,
		"rows of a job, priority 0 1,000 configuration",
		"input tokens of a job, priority 0 1,000,000 configuration",
		"rows of a job, priority 1 1,000,000 configuration",
		"input tokens of a job, priority 1 10,000,000 configuration",
		"cost of a month no limit configuration")
	p.Run("quotas set --priority 1 --rows 5000000 --cost-usd 12.5").WantOutput(0).WantTable(
		head,
		"rows of a job, priority 0 1,000 configuration",
		"input tokens of a job, priority 0 1,000,000 configuration",
		"rows of a job, priority 1 5,000,000 account",
		"input tokens of a job, priority 1 10,000,000 configuration",
		"cost of a month 12.50 USD account")
	// Quotas without a flag do not change.
	p.Run("quotas set --priority 0 --tokens 7").WantOutput(0)
	p.Run("quotas set --priority 1 --tokens 8").WantOutput(0)
	p.Run("quotas get").WantOutput(0).WantTable(
		head,
		"rows of a job, priority 0 1,000 configuration",
		"input tokens of a job, priority 0 7 account",
		"rows of a job, priority 1 5,000,000 account",
		"input tokens of a job, priority 1 8 account",
		"cost of a month 12.50 USD account")
	p.Run("quotas set --priority 0 --tokens default").WantOutput(0)
	p.Run("quotas set --priority 1 --tokens default --rows default --cost-usd none").WantOutput(0)
	p.Run("quotas get -o json").WantOutput(0)
	var doc struct {
		Own struct {
			Quotas    []any    `json:"quotas"`
			CostQuota *float64 `json:"cost_quota_usd"`
		} `json:"own"`
	}
	if err := json.Unmarshal(p.Out.Bytes(), &doc); err != nil || len(doc.Own.Quotas) != 0 || doc.Own.CostQuota != nil {
		t.Errorf("with everything taken back: %s, %v", p.Out.String(), err)
	}
	p.Run("quotas set --cost-usd 0").WantOutput(0, "0.00 USD")
}

func TestQuotasOfAnotherAccount(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.Run("quotas set --priority 0 --rows 3 --account acme").WantOutput(0, "account acme", "3")
	p.Run("quotas get").WantOutput(0, "account default", "1,000")
	text, record := access.NewKey("acme", caller.RoleUser, "test", p.Now)
	must.Succeed(t, p.Store.PutKey(t.Context(), record))
	p.Key = text
	p.Run("quotas get").WantOutput(4, "administrator's key")
}

func TestQuotasSetRefusals(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.answered = func(r *nethttp.Request) { t.Errorf("%s %s was sent", r.Method, r.URL) }
	for line, want := range map[string]string{
		"quotas set":                                   "nothing to change",
		"quotas set --priority 1":                      "nothing to change",
		"quotas set --rows 5":                          "name it with --priority: " + rowmill.PriorityValues,
		"quotas set --rows 5 --priority 9":             "--priority is 9; it must be " + rowmill.PriorityValues,
		"quotas set --cost-usd 5 --priority 1":         "for all jobs together",
		"quotas set --rows 0 --priority 1":             `at least 1, or default; is "0"`,
		"quotas set --rows many --priority 1":          `is "many"`,
		"quotas set --tokens 1.5 --priority 1":         "--tokens must be a whole number",
		"quotas set --cost-usd -1":                     `is "-1"`,
		"quotas set --cost-usd NaN":                    `is "NaN"`,
		"quotas set --cost-usd default":                "or none",
		"quotas set --rows 5 --priority 1 --print xml": "table or json",
		"usage --from yesterday":                       "such as 2026-01-31",
		"usage --group-by day,account":                 `it has "account"`,
		"usage --group-by=":                            "names nothing",
	} {
		p.Run(line).WantOutput(2, want)
	}
}

func TestQuotasSetLosesNoUpdate(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.answered = func(r *nethttp.Request) {
		if r.Method != nethttp.MethodGet {
			return
		}
		p.answered = nil // another client is first
		if _, err := p.Store.PutValue(t.Context(), apiquotas.ValueName("default"), json.RawMessage(`{"cost_quota_usd":9}`), 0); err != nil {
			t.Error(err)
		}
	}
	p.Run("quotas set --priority 0 --rows 3").WantOutput(1, "read them again and repeat")
	p.Run("quotas get").WantOutput(0, "9.00 USD", "1,000")
	p.Run("quotas set --priority 0 --rows 3").WantOutput(0, "9.00 USD", "3")
}

func TestUsage(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.Run("usage").WantOutput(0, "account default, 2026-02-01 to 2026-02-28").WantTable(
		"DAY MODEL ROWS FAILED COPIES TOKENS IN TOKENS OUT USD", "total 0 0 0 0 0 0.000000")
	_, key := access.NewKey("acme", caller.RoleUser, "nightly", p.Now)
	must.Succeed(t, p.Store.PutKey(t.Context(), key))
	record := store.Record{
		Job:  rowmill.Job{ID: "job-1", Status: rowmill.StatusPending, RunType: rowmill.RunFull, JobTimes: rowmill.JobTimes{Created: p.Now}, KeyID: &key.ID},
		Spec: rowmill.Spec{Account: "acme", Model: rowmill.Model{ID: "m", InputPrice: 0.1, OutputPrice: 0.3}},
	}
	_, _, err := p.Store.Create(t.Context(), record, nil)
	must.Succeed(t, err)
	session, err := p.Store.OpenSession(t.Context(), "node", 100*time.Hour)
	must.Succeed(t, err)
	record, err = p.Store.Claim(t.Context(), "job-1", session, store.Claim{})
	must.Succeed(t, err)
	owner := store.Fence{JobID: "job-1", Session: session, Epoch: record.Epoch}
	for _, key := range []string{"a", "b"} {
		totals := store.RowTotals{Rows: 1500, Failed: 1, Deduplicated: 300, InputTokens: 2_000_000, OutputTokens: 1_000_000}
		part := store.Part{Key: key, Rows: 1500, Totals: totals}
		must.Succeed(t, p.Store.CommitParts(t.Context(), owner, []store.Part{part}))
		p.Now = p.Now.AddDate(0, 0, 1)
	}
	p.Run("usage --account acme --from 2026-02-01").WantOutput(0).WantTable(
		"DAY MODEL ROWS FAILED COPIES TOKENS IN TOKENS OUT USD",
		"2026-02-28 m 1,500 1 300 2,000,000 1,000,000 0.500000",
		"2026-03-01 m 1,500 1 300 2,000,000 1,000,000 0.500000",
		"total 3,000 2 600 4,000,000 2,000,000 1.000000")
	p.Run("usage --account acme --from 2026-02-01 --group-by key").WantOutput(0).WantTable(
		"KEY NAME ROWS FAILED COPIES TOKENS IN TOKENS OUT USD",
		key.ID+" nightly 3,000 2 600 4,000,000 2,000,000 1.000000",
		"total 3,000 2 600 4,000,000 2,000,000 1.000000")
	p.Run("usage --account acme --from 2026-02-01 --group-by model,day --key "+key.ID).WantOutput(0).WantTable(
		"DAY MODEL ROWS FAILED COPIES TOKENS IN TOKENS OUT USD",
		"2026-02-28 m 1,500 1 300 2,000,000 1,000,000 0.500000",
		"2026-03-01 m 1,500 1 300 2,000,000 1,000,000 0.500000",
		"total 3,000 2 600 4,000,000 2,000,000 1.000000")
	p.Run("usage --account acme --key 000000000000").WantOutput(0).WantTable(
		"DAY MODEL ROWS FAILED COPIES TOKENS IN TOKENS OUT USD", "total 0 0 0 0 0 0.000000")
	p.Run("usage --key nightly").WantOutput(1, "key_id", "rowmill keys list")
	p.Run("usage --account acme --to 2026-02-28 -o json").WantOutput(0, `"cost_usd": 0.5`, `"from": "2026-02-01"`)
	p.Run("usage --from 2026-02-02 --to 2026-02-01").WantOutput(1, "after to")
}
