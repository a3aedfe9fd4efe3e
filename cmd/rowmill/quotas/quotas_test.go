package quotas

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	nethttp "net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob/dir"
	"github.com/rowmill/rowmill/catalog"
	"github.com/rowmill/rowmill/cmd/rowmill/connect"
	"github.com/rowmill/rowmill/cmd/rowmill/exit"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
	"github.com/rowmill/rowmill/http"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/bolt"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// idle is a pipeline that runs nothing.
type idle struct{ http.Fleet }

func (idle) Submitted(string)                    {}
func (idle) Cancelled(string)                    {}
func (idle) Checks(context.Context) []http.Check { return nil }
func (idle) Draining() bool                      { return false }

// A program is the commands beside a service without a pipeline.
type program struct {
	testing.TB
	store    *bolt.Store
	server   *httptest.Server
	answered func(r *nethttp.Request) // called after each answer, when set
	now      time.Time
	key      string
	out, err bytes.Buffer
}

func start(t testing.TB) *program {
	t.Helper()
	p := &program{TB: t, now: time.Date(2026, 2, 28, 12, 0, 0, 0, time.UTC), key: "administrator"}
	clock := func() time.Time { return p.now }
	var err error
	if p.store, err = bolt.Open(t.Context(), bolt.Config{Path: filepath.Join(t.TempDir(), "records.db"), Clock: clock}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.store.Close() })
	bucket, err := dir.Open(dir.Config{Root: t.TempDir(), NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bucket.Close() })
	api, err := http.New(http.Config{
		Store: p.store, Bucket: bucket, Catalog: catalog.Default(), Service: idle{}, AdminKey: p.key, Now: clock,
	})
	if err != nil {
		t.Fatal(err)
	}
	p.server = httptest.NewServer(nethttp.HandlerFunc(func(w nethttp.ResponseWriter, r *nethttp.Request) {
		api.Handler().ServeHTTP(w, r)
		if p.answered != nil {
			p.answered(r)
		}
	}))
	t.Cleanup(p.server.Close)
	return p
}

// run runs a command line, such as "quotas get".
func (p *program) run(line string) *program {
	p.Helper()
	p.out.Reset()
	p.err.Reset()
	service := connect.Options{Term: &terminal.IO{
		In: strings.NewReader(""), Out: &p.out, Err: &p.err,
		Environ: []string{"ROWMILL_SERVER=" + p.server.URL, "ROWMILL_API_KEY=" + p.key},
		Width:   func() int { return 80 },
	}}
	root := &cobra.Command{Use: "rowmill", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(Command(service), Usage(service))
	root.SetArgs(strings.Fields(line))
	root.SetOut(&p.out)
	root.SetErr(&p.err)
	err := root.ExecuteContext(p.Context())
	if err != nil {
		fmt.Fprintln(&p.err, err)
	}
	fmt.Fprintf(&p.err, "exit code %d\n", exit.Code(err))
	return p
}

// want checks the exit code and that both streams together hold each text.
func (p *program) want(code int, texts ...string) *program {
	p.Helper()
	both := p.out.String() + p.err.String()
	for _, text := range append(texts, fmt.Sprintf("exit code %d\n", code)) {
		if !strings.Contains(both, text) {
			p.Errorf("lacks %q:\n%s", text, both)
		}
	}
	return p
}

// table checks what stands on standard output, blanks between columns aside.
func (p *program) table(lines ...string) *program {
	p.Helper()
	var got []string
	for line := range strings.Lines(p.out.String()) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	if want := strings.Join(lines, "\n"); strings.Join(got, "\n") != want {
		p.Errorf("printed\n%s\nwant\n%s\n%s", strings.Join(got, "\n"), want, p.err.String())
	}
	return p
}

func TestQuotasShowWhereTheyComeFrom(t *testing.T) {
	t.Parallel()
	p := start(t)
	const head = "QUOTA VALUE FROM"
	p.run("quotas get").want(0, "account default").table(
		head,
		"rows of a job, priority 0 1,000 configuration",
		"tokens in of a job, priority 0 1,000,000 configuration",
		"rows of a job, priority 1 1,000,000 configuration",
		"tokens in of a job, priority 1 10,000,000 configuration",
		"cost of a month no limit configuration")
	p.run("quotas set --priority 1 --rows 5000000 --cost-usd 12.5").want(0).table(
		head,
		"rows of a job, priority 0 1,000 configuration",
		"tokens in of a job, priority 0 1,000,000 configuration",
		"rows of a job, priority 1 5,000,000 account",
		"tokens in of a job, priority 1 10,000,000 configuration",
		"cost of a month 12.50 USD account")
	// What no flag names stays.
	p.run("quotas set --priority 0 --tokens 7").want(0)
	p.run("quotas set --priority 1 --tokens 8").want(0)
	p.run("quotas get").want(0).table(
		head,
		"rows of a job, priority 0 1,000 configuration",
		"tokens in of a job, priority 0 7 account",
		"rows of a job, priority 1 5,000,000 account",
		"tokens in of a job, priority 1 8 account",
		"cost of a month 12.50 USD account")
	p.run("quotas set --priority 0 --tokens default").want(0)
	p.run("quotas set --priority 1 --tokens default --rows default --cost-usd none").want(0)
	p.run("quotas get -o json").want(0)
	var doc struct {
		Own struct {
			Quotas    []any    `json:"quotas"`
			CostQuota *float64 `json:"cost_quota_usd"`
		} `json:"own"`
	}
	if err := json.Unmarshal(p.out.Bytes(), &doc); err != nil || len(doc.Own.Quotas) != 0 || doc.Own.CostQuota != nil {
		t.Errorf("with everything taken back: %s, %v", p.out.String(), err)
	}
	p.run("quotas set --cost-usd 0").want(0, "0.00 USD")
}

func TestQuotasOfAnotherAccount(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.run("quotas set --priority 0 --rows 3 --account acme").want(0, "account acme", "3")
	p.run("quotas get").want(0, "account default", "1,000")
	text, record := http.NewKey("acme", http.RoleUser, "test", p.now)
	if err := p.store.PutKey(t.Context(), record); err != nil {
		t.Fatal(err)
	}
	p.key = text
	p.run("quotas get").want(4, "administrator's key")
}

func TestQuotasSetRefusals(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.answered = func(r *nethttp.Request) { t.Errorf("%s %s was sent", r.Method, r.URL) }
	for line, want := range map[string]string{
		"quotas set":                                   "nothing to change",
		"quotas set --priority 1":                      "nothing to change",
		"quotas set --rows 5":                          "say --priority 0 or --priority 1",
		"quotas set --rows 5 --priority 2":             "say --priority 0 or --priority 1",
		"quotas set --cost-usd 5 --priority 1":         "for all jobs together",
		"quotas set --rows 0 --priority 1":             `at least 1, or default; is "0"`,
		"quotas set --rows many --priority 1":          `is "many"`,
		"quotas set --tokens 1.5 --priority 1":         "--tokens must be a whole number",
		"quotas set --cost-usd -1":                     `is "-1"`,
		"quotas set --cost-usd NaN":                    `is "NaN"`,
		"quotas set --cost-usd default":                "or none",
		"quotas set --rows 5 --priority 1 --print xml": "table or json",
		"usage --from yesterday":                       "such as 2026-01-31",
	} {
		p.run(line).want(2, want)
	}
}

func TestQuotasSetLosesNoUpdate(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.answered = func(r *nethttp.Request) {
		if r.Method != nethttp.MethodGet {
			return
		}
		p.answered = nil // somebody else comes first
		if _, err := p.store.PutValue(t.Context(), http.QuotasValue("default"), json.RawMessage(`{"cost_quota_usd":9}`), 0); err != nil {
			t.Error(err)
		}
	}
	p.run("quotas set --priority 0 --rows 3").want(1, "read them again and repeat")
	p.run("quotas get").want(0, "9.00 USD", "1,000")
	p.run("quotas set --priority 0 --rows 3").want(0, "9.00 USD", "3")
}

func TestUsage(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.run("usage").want(0, "account default, 2026-02-01 to 2026-02-28").table(
		"DAY MODEL ROWS FAILED TOKENS IN TOKENS OUT USD", "total 0 0 0 0 0.000000")
	record := store.Record{
		Job:  rowmill.Job{ID: "job-1", Status: rowmill.StatusPending, RunType: rowmill.RunFull, Created: p.now},
		Spec: rowmill.Spec{Account: "acme", Model: rowmill.Model{ID: "m", InputPrice: 0.1, OutputPrice: 0.3}},
	}
	_, _, err := p.store.Create(t.Context(), record, nil)
	if err != nil {
		t.Fatal(err)
	}
	session, err := p.store.OpenSession(t.Context(), "node", 100*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.store.Claim(t.Context(), "job-1", session); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"a", "b"} {
		totals := store.Totals{Rows: 1500, Failed: 1, InputTokens: 2_000_000, OutputTokens: 1_000_000}
		part := store.Part{Key: key, Rows: 1500, Totals: totals}
		if err := p.store.CommitParts(t.Context(), store.Fence{JobID: "job-1", Session: session, Epoch: 1}, []store.Part{part}, totals); err != nil {
			t.Fatal(err)
		}
		p.now = p.now.AddDate(0, 0, 1)
	}
	p.run("usage --account acme --from 2026-02-01").want(0).table(
		"DAY MODEL ROWS FAILED TOKENS IN TOKENS OUT USD",
		"2026-02-28 m 1,500 1 2,000,000 1,000,000 0.500000",
		"2026-03-01 m 1,500 1 2,000,000 1,000,000 0.500000",
		"total 3,000 2 4,000,000 2,000,000 1.000000")
	p.run("usage --account acme --to 2026-02-28 -o json").want(0, `"cost_usd": 0.5`, `"from": "2026-02-01"`)
	p.run("usage --from 2026-02-02 --to 2026-02-01").want(1, "after to")
}
