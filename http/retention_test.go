package http

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
)

const day = 24 * time.Hour

// A later is a world with a store clock that a test can advance.
type later struct {
	*world
	ahead atomic.Int64 // nanoseconds
}

func setupLater(t *testing.T, change ...func(*Config)) *later {
	t.Helper()
	l := &later{}
	l.world = setupStore(t, func() time.Time { return time.Now().Add(time.Duration(l.ahead.Load())) }, change...)
	return l
}

func (l *later) pass(d time.Duration) { l.ahead.Add(int64(d)) }

// effects returns the presets of the answer by days; 0 means never.
func (l *later) effects() map[int]map[string]any {
	l.Helper()
	found := map[int]map[string]any{}
	for _, preset := range l.get("/v1/settings/preview").want(200).json()["presets"].([]any) {
		p := preset.(map[string]any)
		days, _ := p["retention_days"].(float64)
		found[int(days)] = p
	}
	return found
}

func TestPreviewSettings_EffectOfEachChoice(t *testing.T) {
	t.Parallel()
	l := setupLater(t)
	ended := func() (id string, at time.Time) {
		id = l.succeeded(`{"inputs":["a"]}`, answers("x"))
		rec := l.record(id)
		return id, rec.EndedAt()
	}
	_, first := ended()
	l.pass(30 * day)
	second, _ := ended()
	l.pass(6 * day)
	_, third := ended()
	l.pass(2 * day)
	_, last := ended()
	l.submitted(`{"inputs":["a"]}`) // has not ended
	l.get("/v1/settings/preview?account=acme").want(200)

	artifacts := func(id string) (size int64) {
		for _, a := range l.record(id).Artifacts {
			size += a.Size
		}
		return size
	}
	each := float64(artifacts(second)) // all have the same size
	for days, want := range map[int]struct {
		jobs int
		next time.Time
	}{
		1: {3, last.AddDate(0, 0, 1)}, 7: {2, third.AddDate(0, 0, 7)}, 30: {1, time.Time{}}, 90: {0, first.AddDate(0, 0, 90)}, 0: {},
	} {
		got := l.effects()[days]
		if got["jobs"] != float64(want.jobs) || got["at_least"] != false || got["result_bytes"] != each*float64(want.jobs) {
			t.Errorf("%d days: %v, want %d jobs of %v bytes", days, got, want.jobs, each)
		}
		if oldest, _ := got["oldest_ended_at"].(string); want.jobs > 0 && oldest != first.UTC().Format(time.RFC3339Nano) || want.jobs == 0 && oldest != "" {
			t.Errorf("%d days: the oldest ended %q, want %v", days, oldest, first)
		}
		if next, _ := got["next_at"].(string); !want.next.IsZero() && next != want.next.UTC().Format(time.RFC3339Nano) {
			t.Errorf("%d days: next %q, want %v", days, next, want.next)
		}
	}
	if next := l.effects()[0]["next_at"]; next != nil {
		t.Errorf("for ever ends %v", next)
	}
	// Data that was deleted on request does not count.
	l.do("DELETE", "/v1/jobs/"+second+"/data", "").want(200)
	if got := l.effects()[7]["jobs"]; got != 1.0 {
		t.Errorf("%v jobs", got)
	}
	answer := l.get("/v1/settings/preview").want(200).json()
	if answer["account"] != "default" || answer["retention_days"] != 90.0 || answer["looked_at"] != 4.0 || answer["looked_at_all"] != true {
		t.Errorf("%v", answer)
	}
}

// A longHeld store reports more jobs with data than a preview reads. All are the same
// job.
type longHeld struct {
	store.Store
	asked int
}

func (s *longHeld) RetainedJobs(ctx context.Context, account string, ended time.Time, limit int) ([]string, error) {
	s.asked = limit
	ids, err := s.Store.RetainedJobs(ctx, account, ended, 1)
	for len(ids) < limit {
		ids = append(ids, ids[0])
	}
	return ids, err
}

func TestPreviewSettings_AtLeast(t *testing.T) {
	t.Parallel()
	long := &longHeld{}
	l := setupLater(t, func(c *Config) { long.Store, c.Store = c.Store, long })
	l.succeeded(`{"inputs":["a"]}`, answers("x"))
	l.pass(8 * day)
	answer := l.get("/v1/settings/preview").want(200).json()
	if long.asked != 1001 || answer["looked_at"] != float64(1000) || answer["looked_at_all"] != false {
		t.Errorf("asked for %d: %v", long.asked, answer)
	}
	week, month := answer["presets"].([]any)[1].(map[string]any), answer["presets"].([]any)[2].(map[string]any)
	if week["jobs"] != float64(1000) || week["at_least"] != true || week["next_at"] != nil {
		t.Errorf("a week: %v", week)
	}
	if month["jobs"] != 0.0 || month["at_least"] != false || month["next_at"] == nil { // the jobs that were not read ended later
		t.Errorf("a month: %v", month)
	}
}

func TestPreviewSettings_WithoutJobs(t *testing.T) {
	t.Parallel()
	w := setup(t)
	none := func(days string) string {
		return `{"retention_days":` + days + `,"jobs":0,"at_least":false,"result_bytes":0,"oldest_ended_at":null,"next_at":null}`
	}
	w.get("/v1/settings/preview").wantBody(`{"account":"default","retention_days":90,"looked_at":0,"looked_at_all":true,
		"presets":[` + none("1") + `,` + none("7") + `,` + none("30") + `,` + none("90") + `,` + none("null") + `]}`)
	w.get("/v1/settings/preview?account=").wantField("account", "name of an account")
}

// A failed job has data to remove, but no result files.
func TestPreviewSettings_OfAJobThatFailed(t *testing.T) {
	t.Parallel()
	l := setupLater(t)
	f := l.running(`{"inputs":["a"]}`, 1)
	must.Get(l.store.Finish(t.Context(), f, func(r *store.Record) error {
		r.Job.FailureReason = &rowmill.Failure{Code: "x", Message: "y"}
		return r.Job.Become(rowmill.StatusFailed, time.Now())
	}))(t)
	l.pass(2 * day)
	if got := l.effects()[1]; got["jobs"] != 1.0 || got["result_bytes"] != 0.0 {
		t.Errorf("%v", got)
	}
}
