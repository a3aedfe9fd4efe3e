package http

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
)

// used commits rows of an account as one job on a model.
func (w *world) used(account, model string, totals store.RowTotals) {
	w.Helper()
	w.usedWith("", account, model, totals)
}

// usedWith is used with a key id; empty: no key.
func (w *world) usedWith(key, account, model string, totals store.RowTotals) {
	w.Helper()
	record := store.Record{
		Job:  rowmill.Job{ID: rowmill.NewJobID(), Status: rowmill.StatusPending, RunType: rowmill.RunFull, JobTimes: rowmill.JobTimes{Created: time.Now()}, KeyID: exchange.NilIfZero(key)},
		Spec: rowmill.Spec{Account: account, Model: rowmill.Model{ID: model, InputPrice: 0.1, OutputPrice: 0.3}},
	}
	_, _, err := w.store.Create(w.Context(), record, nil)
	must.Succeed(w, err)
	session, err := w.store.OpenSession(w.Context(), "node", time.Hour)
	must.Succeed(w, err)
	claimed, err := w.store.Claim(w.Context(), record.Job.ID, session, store.Claim{})
	must.Succeed(w, err)
	f := store.Fence{JobID: record.Job.ID, Session: session, Epoch: claimed.Epoch}
	must.Succeed(w, w.store.CommitParts(w.Context(), f, []store.Part{{Key: "p", Rows: totals.Rows, Totals: totals}}))
}

// onDay starts a world whose clocks, the store's too, show *now.
func onDay(t testing.TB, now *time.Time) *world {
	clock := func() time.Time { return *now }
	return setupStore(t, clock, func(c *Config) { c.Now = clock })
}

func TestUsage_ByDayAndModel(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 2, 27, 23, 59, 0, 0, time.UTC)
	w := onDay(t, &now)
	w.get("/v1/usage").wantBody(`{"account":"default","from":"2026-02-01","to":"2026-02-27","usage":[],
		"total":{"rows":0,"failed_rows":0,"deduplicated_rows":0,"input_tokens":0,"output_tokens":0,"cost_usd":0}}`)
	one := store.RowTotals{Rows: 3, Failed: 1, InputTokens: 1, OutputTokens: 3}
	w.used(caller.DefaultAccount, "n", one)
	w.used(caller.DefaultAccount, "m", one)
	w.used("other", "m", one)
	now = now.Add(2 * time.Minute)
	w.used(caller.DefaultAccount, "m", one)
	w.used(caller.DefaultAccount, "m", one)
	line := func(day, model string) string {
		return `{"day":"` + day + `","model":"` + model + `","rows":3,"failed_rows":1,"deduplicated_rows":0,"input_tokens":1,"output_tokens":3,"cost_usd":0.000001}`
	}
	w.get("/v1/usage").wantBody(`{"account":"default","from":"2026-02-01","to":"2026-02-28","usage":[` +
		line("2026-02-27", "m") + `,` + line("2026-02-27", "n") +
		`,{"day":"2026-02-28","model":"m","rows":6,"failed_rows":2,"deduplicated_rows":0,"input_tokens":2,"output_tokens":6,"cost_usd":0.000002}],
		"total":{"rows":12,"failed_rows":4,"deduplicated_rows":0,"input_tokens":4,"output_tokens":12,"cost_usd":0.000004}}`)
	w.get("/v1/usage?from=2026-02-27&to=2026-02-27").wantBody(`{"account":"default","from":"2026-02-27","to":"2026-02-27","usage":[` +
		line("2026-02-27", "m") + `,` + line("2026-02-27", "n") + `],
		"total":{"rows":6,"failed_rows":2,"deduplicated_rows":0,"input_tokens":2,"output_tokens":6,"cost_usd":0.000002}}`)
	for _, query := range []string{"?from=2026-03-01&to=2026-03-05", "?to=2026-02-26", "?from=1999-12-31&to=2000-12-30"} {
		if usage := w.get("/v1/usage" + query).want(200).json()["usage"].([]any); len(usage) != 0 {
			t.Errorf("%s: %v", query, usage)
		}
	}
}

func TestUsage_ByKey(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 2, 27, 23, 59, 0, 0, time.UTC)
	w := onDay(t, &now)
	named, bare, revoked := w.newKey(`{"name":"nightly"}`), w.newKey(`{}`), w.newKey(`{"name":"gone"}`)
	theirs := w.newKey(`{"account":"acme","name":"theirs"}`)
	w.do("DELETE", "/v1/keys/"+revoked.id, "").want(200)
	of := func(n int64) store.RowTotals { return store.RowTotals{Rows: n, Failed: 1, InputTokens: 10 * n} }
	w.used(caller.DefaultAccount, "m", of(1)) // a job from before keys were recorded
	w.usedWith(named.id, caller.DefaultAccount, "m", of(10))
	w.usedWith(named.id, caller.DefaultAccount, "n", of(100))
	w.usedWith(bare.id, caller.DefaultAccount, "m", of(1000))
	w.usedWith(theirs.id, "acme", "m", of(5))
	now = now.Add(2 * time.Minute)
	w.usedWith(named.id, caller.DefaultAccount, "m", of(20))
	w.usedWith(revoked.id, caller.DefaultAccount, "m", of(2))

	figures := func(rows, failed int64) string {
		return fmt.Sprintf(`"rows":%d,"failed_rows":%d,"deduplicated_rows":0,"input_tokens":%d,"output_tokens":0,"cost_usd":%v`, rows, failed, 10*rows, rowmill.Money(1_000_000*rows).USD())
	}
	key := func(id, name string) string {
		quoted := func(s string) string {
			if s == "" {
				return "null"
			}
			return strconv.Quote(s)
		}
		return `"key_id":` + quoted(id) + `,"key_name":` + quoted(name) + `,`
	}
	keys := map[string]string{"": key("", ""), named.id: key(named.id, "nightly"), bare.id: key(bare.id, ""), revoked.id: key(revoked.id, "")}
	// lines returns the lines of an answer, sorted by key id; of has the figures of each
	// key.
	lines := func(of map[string]string) string {
		var all []string
		for _, id := range slices.Sorted(maps.Keys(of)) {
			all = append(all, `{`+keys[id]+of[id]+`}`)
		}
		return strings.Join(all, ",")
	}
	answer := func(lines, total string) string {
		return `{"account":"default","from":"2026-02-01","to":"2026-02-28","usage":[` + lines + `],"total":{` + total + `}}`
	}
	all := figures(1133, 6)
	w.get("/v1/usage?group_by=key").wantBody(answer(lines(map[string]string{
		"": figures(1, 1), named.id: figures(130, 3), bare.id: figures(1000, 1), revoked.id: figures(2, 1),
	}), all))
	w.get("/v1/usage?group_by=model").wantBody(answer(`{"model":"m",`+figures(1033, 5)+`},{"model":"n",`+figures(100, 1)+`}`, all))
	w.get("/v1/usage?group_by=day").wantBody(answer(`{"day":"2026-02-27",`+figures(1111, 4)+`},{"day":"2026-02-28",`+figures(22, 2)+`}`, all))
	day := func(day, model string) string { return `"day":"` + day + `","model":"` + model + `",` }
	w.get("/v1/usage?group_by=key,model,day,key&from=2026-02-28").wantBody(`{"account":"default","from":"2026-02-28","to":"2026-02-28","usage":[` +
		lines(map[string]string{named.id: day("2026-02-28", "m") + figures(20, 1), revoked.id: day("2026-02-28", "m") + figures(2, 1)}) +
		`],"total":{` + figures(22, 2) + `}}`)

	// The usage of a single key.
	w.get("/v1/usage?key_id=" + named.id).wantBody(answer(`{`+day("2026-02-27", "m")+figures(10, 1)+`},{`+day("2026-02-27", "n")+figures(100, 1)+
		`},{`+day("2026-02-28", "m")+figures(20, 1)+`}`, figures(130, 3)))
	w.get("/v1/usage?group_by=key&key_id=" + revoked.id).wantBody(answer(lines(map[string]string{revoked.id: figures(2, 1)}), figures(2, 1)))

	// A key of another account has no usage here, like a key that does not exist. All
	// keys of an account see the same usage.
	empty := answer("", figures(0, 0))
	for _, id := range []string{theirs.id, "000000000000"} {
		w.get("/v1/usage?group_by=key&key_id=" + id).wantBody(empty)
	}
	mine := []string{"Authorization", "Key " + theirs.text}
	w.get("/v1/usage?group_by=key&account=acme").want(200)
	if got, want := w.get("/v1/usage?group_by=key", mine...).want(200).text, `[{"key_id":"`+theirs.id+`","key_name":"theirs","rows":5,`; !strings.Contains(string(got), want) {
		t.Errorf("acme sees %s, want %s", got, want)
	}
	w.get("/v1/usage?group_by=key&key_id="+named.id, mine...).wantBody(strings.Replace(empty, "default", "acme", 1))
}

func TestUsage_GroupByIsChecked(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for name, tt := range map[string]struct{ query, field, piece string }{
		"Nothing":  {"?group_by=", "group_by", `has ""`},
		"Account":  {"?group_by=day,account", "group_by", `has "account"; it must be one or more of day, model and key`},
		"KeyName":  {"?key_id=nightly", "key_id", "the ID of a key"},
		"EmptyKey": {"?key_id=", "key_id", `is ""`},
		"KeyText":  {"?key_id=rk_0123456789ab", "key_id", "GET /v1/keys"},
		"Capitals": {"?key_id=0123456789AB", "key_id", "0123456789ab"},
	} {
		t.Run(name, func(t *testing.T) {
			answer := w.get("/v1/usage" + tt.query)
			answer.TB = t
			answer.wantField(tt.field, tt.piece)
		})
	}
	if fields := w.get("/v1/usage?from=x&group_by=y&key_id=z").fields(); len(fields) != 3 {
		t.Errorf("all broken fields: %v", fields)
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

func TestUsage_OfTheCallersAccountOnly(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.used("acme", "m", store.RowTotals{Rows: 1, InputTokens: 5})
	as := func(account, role string) []string { return []string{"Authorization", "Key " + w.keyOf(account, role)} }
	ours, theirs, plain := as("acme", caller.RoleUser), as("other", caller.RoleAdmin), as(caller.DefaultAccount, caller.RoleUser)
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
