package http

import (
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/bolt"
)

// used commits rows of an account as one job on a model.
func (w *world) used(account, model string, totals store.Totals) {
	w.Helper()
	record := store.Record{
		Job:  rowmill.Job{ID: rowmill.NewJobID(), Status: rowmill.StatusPending, RunType: rowmill.RunFull, Created: time.Now()},
		Spec: rowmill.Spec{Account: account, Model: rowmill.Model{ID: model, InputPrice: 0.1, OutputPrice: 0.3}},
	}
	_, _, err := w.store.Create(w.Context(), record, nil)
	if err != nil {
		w.Fatal(err)
	}
	session, err := w.store.OpenSession(w.Context(), "node", time.Hour)
	if err != nil {
		w.Fatal(err)
	}
	claimed, err := w.store.Claim(w.Context(), record.Job.ID, session, store.Adopter{})
	if err != nil {
		w.Fatal(err)
	}
	f := store.Fence{JobID: record.Job.ID, Session: session, Epoch: claimed.Epoch}
	if err := w.store.CommitParts(w.Context(), f, []store.Part{{Key: "p", Rows: totals.Rows, Totals: totals}}, totals); err != nil {
		w.Fatal(err)
	}
}

// onDay is a world whose clock, and whose store's, stands at *now.
func onDay(t testing.TB, now *time.Time) *world {
	clock := func() time.Time { return *now }
	return setupStore(t, func(c *bolt.Config) { c.Clock = clock }, func(c *Config) { c.Now = clock })
}

func TestUsage_ByDayAndModel(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 2, 27, 23, 59, 0, 0, time.UTC)
	w := onDay(t, &now)
	w.get("/v1/usage").wantBody(`{"account":"default","from":"2026-02-01","to":"2026-02-27","usage":[],
		"total":{"rows":0,"failed_rows":0,"input_tokens":0,"output_tokens":0,"cost_usd":0}}`)
	one := store.Totals{Rows: 3, Failed: 1, InputTokens: 1, OutputTokens: 3}
	w.used(DefaultAccount, "n", one)
	w.used(DefaultAccount, "m", one)
	w.used("other", "m", one)
	now = now.Add(2 * time.Minute)
	w.used(DefaultAccount, "m", one)
	w.used(DefaultAccount, "m", one)
	line := func(day, model string) string {
		return `{"day":"` + day + `","model":"` + model + `","rows":3,"failed_rows":1,"input_tokens":1,"output_tokens":3,"cost_usd":0.000001}`
	}
	w.get("/v1/usage").wantBody(`{"account":"default","from":"2026-02-01","to":"2026-02-28","usage":[` +
		line("2026-02-27", "m") + `,` + line("2026-02-27", "n") +
		`,{"day":"2026-02-28","model":"m","rows":6,"failed_rows":2,"input_tokens":2,"output_tokens":6,"cost_usd":0.000002}],
		"total":{"rows":12,"failed_rows":4,"input_tokens":4,"output_tokens":12,"cost_usd":0.000004}}`)
	w.get("/v1/usage?from=2026-02-27&to=2026-02-27").wantBody(`{"account":"default","from":"2026-02-27","to":"2026-02-27","usage":[` +
		line("2026-02-27", "m") + `,` + line("2026-02-27", "n") + `],
		"total":{"rows":6,"failed_rows":2,"input_tokens":2,"output_tokens":6,"cost_usd":0.000002}}`)
	for _, query := range []string{"?from=2026-03-01&to=2026-03-05", "?to=2026-02-26", "?from=1999-12-31&to=2000-12-30"} {
		if usage := w.get("/v1/usage" + query).want(200).json()["usage"].([]any); len(usage) != 0 {
			t.Errorf("%s: %v", query, usage)
		}
	}
}

func TestUsage_DaysAreChecked(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 2, 28, 1, 0, 0, 0, time.UTC)
	w := onDay(t, &now)
	for name, tt := range map[string]struct{ query, field, piece string }{
		"NoDay":     {"?from=2026-02-30", "from", "such as 2026-01-31"},
		"Empty":     {"?to=", "to", `is ""`},
		"Time":      {"?to=2026-02-28T00:00:00Z", "to", "must be a day"},
		"Backwards": {"?from=2026-02-02&to=2026-02-01", "from", "after to"},
		"TooLong":   {"?from=2026-01-01&to=2027-01-02", "from", "367 days"},
		"Endless":   {"?from=0001-01-01&to=9999-12-31", "from", "at most 366"},
	} {
		t.Run(name, func(t *testing.T) {
			answer := w.get("/v1/usage" + tt.query)
			answer.TB = t
			answer.wantField(tt.field, tt.piece)
		})
	}
	if fields := w.get("/v1/usage?from=x&to=y").fields(); len(fields) != 2 {
		t.Errorf("both broken fields: %v", fields)
	}
}

func TestUsage_OfTheCallersAccountAlone(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.used("acme", "m", store.Totals{Rows: 1, InputTokens: 5})
	as := func(account, role string) []string { return []string{"Authorization", "Key " + w.keyOf(account, role)} }
	ours, theirs, plain := as("acme", RoleUser), as("other", RoleAdmin), as(DefaultAccount, RoleUser)
	rows := func(query string, key ...string) float64 {
		t.Helper()
		return w.get("/v1/usage"+query, key...).want(200).json()["total"].(map[string]any)["rows"].(float64)
	}
	if mine, others := rows("", ours...), rows("", theirs...); mine != 1 || others != 0 {
		t.Errorf("acme sees %v rows, other %v", mine, others)
	}
	if mine, all := rows("?account=acme", ours...), rows("?account=acme"); mine != 1 || all != 1 {
		t.Errorf("acme sees %v rows of its own by name, an administrator %v", mine, all)
	}
	w.get("/v1/usage?account=acme", theirs...).wantError(403, "forbidden", "account default")
	w.get("/v1/usage?account=acme", plain...).wantError(403, "forbidden", "administrator's key")
	w.get("/v1/usage?account="+strings.Repeat("a", 129)).wantField("account", "128 characters")
}
