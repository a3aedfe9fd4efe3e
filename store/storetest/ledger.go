package storetest

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
)

// pricedModel returns a model that costs 0.05 USD per million input tokens and 0.2 USD per
// million output tokens. These prices and their small sums have no exact float.
func pricedModel(id string) rowmill.Model {
	return rowmill.Model{ID: id, Kind: rowmill.KindGeneration, ContextLength: 4096, InputPrice: 0.05, OutputPrice: 0.2}
}

// createSpendingJob creates a running job of an account with a priced model.
func (s *suite) createSpendingJob(account, model string) store.Fence {
	s.Helper()
	return s.spendingWith(account, model, "")
}

// spendingWith is like createSpendingJob, for a job that the API key named key has
// submitted. An empty key means no API key.
func (s *suite) spendingWith(account, model, key string) store.Fence {
	s.Helper()
	rec := s.newRecord(account)
	rec.Spec.Model = pricedModel(model)
	if key != "" {
		rec.Job.KeyID = &key
	}
	return s.startJob(rec)
}

// startJob creates a job, claims it and moves it to running.
func (s *suite) startJob(rec store.Record) store.Fence {
	s.Helper()
	s.must(s.Create(s.Context(), rec, nil))
	f := s.claim(rec.Job.ID, s.session())
	s.update(f, func(r *store.Record) error { return moveThrough(r, rowmill.StatusStarting, rowmill.StatusRunning) })
	return f
}

// spend commits one part of a job.
func (s *suite) spend(f store.Fence, key string, totals store.RowTotals) {
	s.Helper()
	part := store.Part{Key: key, Rows: totals.Rows, Totals: totals}
	s.must(s.CommitParts(s.Context(), f, []store.Part{part}))
}

// usage returns the usage of an account for the days around today.
func (s *suite) usage(account string) []store.Usage {
	s.Helper()
	return must.Get(s.Usage(s.Context(), account, s.Now().AddDate(0, 0, -2), s.Now().AddDate(0, 0, 2)))(s)
}

// usageByKey is like usage, but by day, model and API key.
func (s *suite) usageByKey(account string) []store.KeyUsage {
	s.Helper()
	return must.Get(s.UsageByKey(s.Context(), account, s.Now().AddDate(0, 0, -2), s.Now().AddDate(0, 0, 2)))(s)
}

// wantKeys compares an account's usage of a model by API key, summed over days.
func (s *suite) wantKeys(account, model string, want map[string]store.RowTotals) {
	s.Helper()
	got, costs := map[string]store.RowTotals{}, map[string]rowmill.Money{}
	for _, u := range s.usageByKey(account) {
		if u.Model == model {
			got[u.Key], costs[u.Key] = got[u.Key].Plus(u.Totals), costs[u.Key].Plus(u.Cost)
		}
	}
	s.wantEqual(fmt.Sprintf("usage of %s by account %s by key", model, account), want, got)
	for key, totals := range want {
		if charge := pricedModel(model).TokenCost(totals.InputTokens, totals.OutputTokens); costs[key] != charge {
			s.Errorf("%s costs key %q of account %s %v, want %v", model, key, account, costs[key], charge)
		}
	}
}

// checkSumOfKeys checks the order of the usage by key, and that its sums over keys equal the
// usage.
func (s *suite) checkSumOfKeys(account string) {
	s.Helper()
	var sum []store.Usage
	keyed := s.usageByKey(account)
	for i, k := range keyed {
		if i > 0 && k.Day.Equal(keyed[i-1].Day) && k.Model == keyed[i-1].Model {
			if k.Key <= keyed[i-1].Key {
				s.Errorf("the keys are not sorted: %q follows %q", k.Key, keyed[i-1].Key)
			}
			last := &sum[len(sum)-1]
			last.Totals, last.Cost = last.Totals.Plus(k.Totals), last.Cost.Plus(k.Cost)
			continue
		}
		sum = append(sum, k.Usage)
	}
	s.wantEqual(fmt.Sprintf("usage of account %s and its sum over keys", account), s.usage(account), sum)
}

// wantUsage compares an account's usage by model, summed over days.
func (s *suite) wantUsage(account string, want map[string]store.RowTotals) {
	s.Helper()
	got := map[string]store.RowTotals{}
	costs := map[string]rowmill.Money{}
	for _, u := range s.usage(account) {
		got[u.Model] = got[u.Model].Plus(u.Totals)
		costs[u.Model] = costs[u.Model].Plus(u.Cost)
	}
	s.wantEqual(fmt.Sprintf("usage of account %s", account), want, got)
	s.checkSumOfKeys(account)
	for model, totals := range want {
		if charge := pricedModel(model).TokenCost(totals.InputTokens, totals.OutputTokens); costs[model] != charge {
			s.Errorf("%s costs account %s %v, want %v", model, account, costs[model], charge)
		}
	}
}

func testUsage(s *suite) {
	if usage := s.usage("a"); len(usage) != 0 {
		s.Errorf("an account that never ran a job used %v, want nothing", usage)
	}
	one := store.RowTotals{Rows: 4, Failed: 1, TruncatedRows: 1, TruncatedOutputs: 2, InputTokens: 30, OutputTokens: 7, Deduplicated: 2}
	f := s.createSpendingJob("a", "m")
	s.spend(f, "1", one)
	s.spend(f, "2", one)
	s.spend(s.createSpendingJob("a", "m"), "1", one)
	s.spend(s.createSpendingJob("a", "k"), "1", one)
	s.spend(s.createSpendingJob("ab", "m"), "1", one)
	s.wantUsage("a", map[string]store.RowTotals{"m": one.Plus(one).Plus(one), "k": one})
	s.wantUsage("ab", map[string]store.RowTotals{"m": one})
	s.wantUsage("b", map[string]store.RowTotals{})

	usage := s.usage("a")
	if !slices.IsSortedFunc(usage, func(u, v store.Usage) int { return u.Day.Compare(v.Day) }) {
		s.Errorf("the days are not sorted: %v", usage)
	}
	if len(usage) == 2 && (usage[0].Model != "k" || usage[1].Model != "m") {
		s.Errorf("the models are not sorted: %v", usage)
	}
	for _, u := range usage {
		if u.Day.Location() != time.UTC || !u.Day.Equal(u.Day.Truncate(24*time.Hour)) {
			s.Errorf("%v is not midnight in UTC", u.Day)
		}
	}
	for name, days := range map[string][2]int{"before": {-9, -3}, "after": {3, 9}, "backwards": {2, -2}} {
		if usage, err := s.Usage(s.Context(), "a", s.Now().AddDate(0, 0, days[0]), s.Now().AddDate(0, 0, days[1])); err != nil || len(usage) != 0 {
			s.Errorf("%s: %v, %v", name, usage, err)
		}
	}
	if usage, err := s.Usage(s.Context(), "a", time.Time{}, time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)); err != nil || len(usage) < 2 {
		s.Errorf("over all time the usage is %v, %v; want at least 2 models", usage, err)
	}
	s.reopen()
	s.wantUsage("a", map[string]store.RowTotals{"m": one.Plus(one).Plus(one), "k": one})
}

func testUsageByKey(s *suite) {
	of := func(n int64) store.RowTotals {
		return store.RowTotals{Rows: n, Failed: 1, TruncatedRows: 2, TruncatedOutputs: 3, InputTokens: 7 * n, OutputTokens: 3 * n, Deduplicated: n}
	}
	if usage := s.usageByKey("a"); len(usage) != 0 {
		s.Errorf("an account that never ran a job used %v", usage)
	}
	// These names would be equal if they were joined without a separator.
	s.spend(s.spendingWith("a", "m", "k"), "1", of(1))
	s.spend(s.spendingWith("a", "m", "k1"), "1", of(2))
	s.spend(s.spendingWith("a", "m", "1:k"), "1", of(3))
	s.spend(s.spendingWith("a", "m", ""), "1", of(4))
	s.spend(s.spendingWith("a", "1m", "k"), "1", of(5))
	s.spend(s.spendingWith("ab", "m", "k"), "1", of(6))
	s.spend(s.spendingWith("a", "0.1:2:m", "k:0.05"), "1", of(8))
	f := s.spendingWith("a", "m", "k")
	part := store.Part{Key: "2", Rows: 7, Totals: of(7)}
	carried := store.Part{Key: "c", Rows: 5, Totals: of(5), Carried: true}
	for range 2 { // the second call is by the next owner
		s.must(s.CommitParts(s.Context(), f, []store.Part{part, part, carried}))
		s.must(s.CloseSession(s.Context(), f.Session))
		f = s.claim(f.JobID, s.session())
	}
	rec := s.newRecord("a")
	rec.Spec.Model, rec.Spec.Estimate, rec.Job.RunType, rec.Job.KeyID = pricedModel("m"), true, rowmill.RunEstimate, new("k")
	s.spend(s.startJob(rec), "p", of(9))
	for range 2 {
		s.wantKeys("a", "m", map[string]store.RowTotals{"k": of(1).Plus(of(7)), "k1": of(2), "1:k": of(3), "": of(4)})
		s.wantKeys("a", "1m", map[string]store.RowTotals{"k": of(5)})
		s.wantKeys("a", "0.1:2:m", map[string]store.RowTotals{"k:0.05": of(8)})
		s.wantKeys("ab", "m", map[string]store.RowTotals{"k": of(6)})
		s.wantKeys("b", "m", map[string]store.RowTotals{})
		s.checkSumOfKeys("a")
		s.reopen()
	}
	if got := s.get(f.JobID).Job.KeyID; got == nil || *got != "k" {
		s.Errorf("the record names the API key %v, want k", got)
	}
	for name, days := range map[string][2]int{"before": {-9, -3}, "after": {3, 9}, "backwards": {2, -2}} {
		if usage, err := s.UsageByKey(s.Context(), "a", s.Now().AddDate(0, 0, days[0]), s.Now().AddDate(0, 0, days[1])); err != nil || len(usage) != 0 {
			s.Errorf("%s: %v, %v", name, usage, err)
		}
	}
	for name, key := range map[string]string{"empty": "", "with a NUL": "k\x00"} {
		rec := s.newRecord("a")
		rec.Job.KeyID = &key
		s.wantError(fmt.Sprintf("a job of a key that is %s is accepted", name), errAny)(s.Create(s.Context(), rec, nil))
	}
}

// testUsageRepeated repeats commits: late, with only some of the parts, and by the next
// owner. No repeat may count twice.
func testUsageRepeated(s *suite) {
	f := s.createSpendingJob("a", "m")
	of := func(n int64) store.RowTotals { return store.RowTotals{Rows: n, InputTokens: 10 * n, OutputTokens: n} }
	part := func(key string, n int64) store.Part { return store.Part{Key: key, Rows: n, Totals: of(n)} }
	commit := func(parts ...store.Part) {
		s.Helper()
		s.must(s.CommitParts(s.Context(), f, parts))
	}
	commit(part("a", 1), part("b", 2))
	commit(part("a", 1), part("b", 2))
	commit(part("b", 2), part("c", 4))
	commit(part("a", 100)) // only the key identifies the part
	s.wantUsage("a", map[string]store.RowTotals{"m": of(7)})
	s.must(s.ReplaceParts(s.Context(), f, store.Part{Key: "d", Rows: 7, Complete: true, Totals: of(7)}))
	commit(part("a", 1), part("d", 7))
	s.must(s.CloseSession(s.Context(), f.Session))
	late := f
	f = s.claim(f.JobID, s.session())
	commit(part("b", 2), part("e", 1))
	s.wantError("commit of the former owner", rowmill.ErrLeaseLost)(s.CommitParts(s.Context(), late, []store.Part{part("z", 9)}))
	s.wantUsage("a", map[string]store.RowTotals{"m": of(8)})
}

// testUsageOfCarriedRows commits rows that another job and an estimate ran, together with rows
// of this job, and again by the next owner. The rows of the estimate are not paid yet.
func testUsageOfCarriedRows(s *suite) {
	f := s.createSpendingJob("a", "m")
	of := store.RowTotals{Rows: 3, Failed: 1, InputTokens: 30, OutputTokens: 6}
	carried := store.Part{Key: "c", Rows: 5, Totals: store.RowTotals{Rows: 5, Failed: 2}, Carried: true}
	own := store.Part{Key: "o", Rows: 3, Totals: of}
	unpaid := store.Part{Key: "u", Rows: 1, Totals: store.RowTotals{Rows: 1, InputTokens: 7, OutputTokens: 2}, Carried: true, Unpaid: true}
	for range 2 {
		s.must(s.CommitParts(s.Context(), f, []store.Part{carried, own, unpaid}))
		s.wantUsage("a", map[string]store.RowTotals{"m": of.Plus(unpaid.Totals)})
		s.wantEqual("parts", []store.Part{carried, own, unpaid}, s.parts(f.JobID))
		if job := s.get(f.JobID).Job; job.RowsDone != 9 || job.FailedRows != 3 || *job.InputTokens != 37 {
			s.Errorf("the job has %+v and %d input tokens, want 9 rows done, 3 failed, and 37 input tokens", job.RowCounts, *job.InputTokens)
		}
		s.must(s.CloseSession(s.Context(), f.Session))
		f = s.claim(f.JobID, s.session())
	}
}

// testUsageRace commits the same parts at the same time, next to writes that fail. A
// transaction that runs again must not count twice.
func testUsageRace(s *suite) {
	f, broken := s.spendingWith("a", "m", "k"), s.createSpendingJob("b", "m")
	of := store.RowTotals{Rows: 8, InputTokens: 80, OutputTokens: 9}
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			part := store.Part{Key: fmt.Sprint("p", i/2), Rows: 8, Totals: of} // two parts with each key
			if err := s.CommitParts(s.Context(), f, []store.Part{part}); err != nil {
				s.Errorf("commit parts: %v", err)
			}
		})
		wg.Go(func() {
			s.wantError("a change that panics is accepted", errAny)(s.Update(s.Context(), broken, func(*store.Record) error { panic("a bug") }))
		})
	}
	wg.Wait()
	var want store.RowTotals
	for range 8 {
		want = want.Plus(of)
	}
	s.wantUsage("a", map[string]store.RowTotals{"m": want})
	s.wantKeys("a", "m", map[string]store.RowTotals{"k": want})
}

func testUsageOutlivesJobs(s *suite) {
	of := store.RowTotals{Rows: 1, InputTokens: 10, OutputTokens: 20}
	want := store.RowTotals{}
	for _, end := range []rowmill.Status{rowmill.StatusSucceeded, rowmill.StatusFailed, rowmill.StatusCancelled} {
		f := s.spendingWith("a", "m", "k")
		s.update(f, func(r *store.Record) error { r.Job.NumRows = new(int64(1)); return nil })
		s.spend(f, "p", of)
		want = want.Plus(of)
		s.end(f, end)
		s.wantError(fmt.Sprintf("a commit after the job has %s", end), rowmill.ErrTerminal)(s.CommitParts(s.Context(), f, []store.Part{{Key: "late", Rows: 1, Totals: of}}))
		s.must(s.DropParts(s.Context(), f.JobID))
		s.wantUsage("a", map[string]store.RowTotals{"m": want})
		s.wantKeys("a", "m", map[string]store.RowTotals{"k": want})
	}
}

func testUsageOfEstimates(s *suite) {
	s.spend(s.createEstimateJob("a"), "p", store.RowTotals{Rows: 1, InputTokens: 10, OutputTokens: 20})
	s.wantUsage("a", map[string]store.RowTotals{})
}

// createEstimateJob creates a running estimate job of an account.
func (s *suite) createEstimateJob(account string) store.Fence {
	s.Helper()
	rec := s.newRecord(account)
	rec.Spec.Model, rec.Spec.Estimate, rec.Job.RunType = pricedModel("m"), true, rowmill.RunEstimate
	return s.startJob(rec)
}

func testFinishEstimate(s *suite) {
	estimated := func(r *store.Record) error {
		r.Job.CostEstimate, r.Job.JobCost = new(0.5), r.Spec.Model.Cost(&r.Job)
		return moveThrough(r, rowmill.StatusSucceeded)
	}
	for name, f := range map[string]store.Fence{"without parts": s.createEstimateJob("a"), "with a sample": s.createEstimateJob("a")} {
		if name == "with a sample" {
			s.update(f, func(r *store.Record) error { r.Job.NumRows = new(int64(100)); return nil })
			s.spend(f, "p", store.RowTotals{Rows: 3, InputTokens: 10, OutputTokens: 20})
		}
		rec, err := s.Finish(s.Context(), f, estimated)
		if err != nil {
			s.Fatalf("%s: %v", name, err)
		}
		if rec.Job.Status != rowmill.StatusSucceeded || *rec.Job.CostEstimate != 0.5 || *rec.Job.JobCost != 0 {
			s.Errorf("%s: %s", name, asJSON(s, rec))
		}
		s.wantUnchanged(rec)
	}
}

func testUsageByDay(s *suite) {
	if s.Sleeps {
		s.Skip("days cannot pass")
	}
	of := store.RowTotals{Rows: 1, InputTokens: 10, OutputTokens: 20}
	day := s.Now().UTC().Truncate(24 * time.Hour)
	s.Advance(24*time.Hour - s.Now().Sub(day) - time.Nanosecond) // the last moment of today
	for n := range 3 {
		s.spend(s.spendingWith("a", "m", "k"), "p", of)
		s.Advance(time.Duration(1+n) * 24 * time.Hour) // longer than the ttl of a session
	}
	at := func(n int) store.Usage {
		return store.Usage{Day: day.AddDate(0, 0, n), Model: "m", Totals: of, Cost: pricedModel("m").TokenCost(10, 20)}
	}
	for _, tt := range []struct {
		from, to time.Time
		want     []store.Usage
	}{
		{day, day.AddDate(0, 0, 9), []store.Usage{at(0), at(1), at(3)}},
		{day, day, []store.Usage{at(0)}},
		{day.Add(24*time.Hour - 1), day.Add(24 * time.Hour), []store.Usage{at(0), at(1)}},
		{day.AddDate(0, 0, 1).In(time.FixedZone("west", -3600)), day.AddDate(0, 0, 2), []store.Usage{at(1)}},
		{day.AddDate(0, 0, 2), day.AddDate(0, 0, 2), nil},
	} {
		got, err := s.Usage(s.Context(), "a", tt.from, tt.to)
		if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
			s.Errorf("from %v to %v: %v (-want +got):\n%s", tt.from, tt.to, err, diff)
		}
		var want []store.KeyUsage
		for _, u := range tt.want {
			want = append(want, store.KeyUsage{Usage: u, Key: "k"})
		}
		keyed, err := s.UsageByKey(s.Context(), "a", tt.from, tt.to)
		if diff := cmp.Diff(want, keyed); diff != "" || err != nil {
			s.Errorf("by key from %v to %v: %v (-want +got):\n%s", tt.from, tt.to, err, diff)
		}
	}
}

// testUsageIsTheSumOverParts makes random commits, with repeats, and compares the
// ledger with the parts.
func testUsageIsTheSumOverParts(s *suite) {
	round := 0
	rapid.Check(s.T, func(t *rapid.T) {
		round++
		account := fmt.Sprint("account ", round)
		models, keys := []string{"m", "k", "m", "m"}, []string{"", "x", "x", "y"}
		var fences []store.Fence
		for i, model := range models {
			fences = append(fences, s.spendingWith(account, model, keys[i]))
		}
		for range rapid.IntRange(1, 8).Draw(t, "commits") {
			f := rapid.SampledFrom(fences).Draw(t, "job")
			var parts []store.Part
			for range rapid.IntRange(0, 3).Draw(t, "parts") {
				n := rapid.Int64Range(0, 6).Draw(t, "part") // a small range, so that the keys of parts repeat
				parts = append(parts, store.Part{Key: fmt.Sprint(n), Rows: n, Totals: store.RowTotals{Rows: n, InputTokens: 7 * n, OutputTokens: 3 * n}})
			}
			must.Succeed(t, s.CommitParts(s.Context(), f, parts))
		}
		want, byKey := map[string]store.RowTotals{}, map[string]map[string]store.RowTotals{"m": {}, "k": {}}
		for i, f := range fences {
			for _, p := range s.parts(f.JobID) {
				if p.Rows > 0 {
					want[models[i]] = want[models[i]].Plus(p.Totals)
					byKey[models[i]][keys[i]] = byKey[models[i]][keys[i]].Plus(p.Totals)
				}
			}
		}
		s.wantUsage(account, want)
		for model, want := range byKey {
			s.wantKeys(account, model, want)
		}
	})
}
