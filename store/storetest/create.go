package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"pgregory.net/rapid"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
)

func testCreateAndGet(s *suite) {
	s.wantError("get of an unknown job", rowmill.ErrNotFound)(s.Get(s.Context(), "job-none"))
	s.wantError("head of an unknown job", rowmill.ErrNotFound)(s.Head(s.Context(), "job-none"))
	rec := s.newRecord("a")
	stored, existed, err := s.Create(s.Context(), rec, nil)
	if err != nil || existed {
		s.Fatalf("create: existed %v, %v", existed, err)
	}
	if stored.SchemaVersion != store.SchemaVersion || stored.Version <= 0 || stored.Epoch != 0 || stored.Session != "" {
		s.Errorf("a new record has schema version %d, version %d, epoch %d, session %q", stored.SchemaVersion, stored.Version, stored.Epoch, stored.Session)
	}
	s.wantSame("job", rec.Job, stored.Job)
	s.wantSame("specification", rec.Spec, stored.Spec)
	s.wantUnchanged(stored)
}

func testCreateTwice(s *suite) {
	rec := s.newRecord("a")
	first, _, err := s.Create(s.Context(), rec, nil)
	must.Succeed(s, err)
	rec.Job.Model = "another"
	s.wantError("create with a taken id", rowmill.ErrConflict)(s.Create(s.Context(), rec, nil))
	rec.Spec.Account = "b"
	s.wantError("create with an id another account took", rowmill.ErrConflict)(s.Create(s.Context(), rec, nil))
	s.wantUnchanged(first)
	if jobs, _, err := s.List(s.Context(), "b", 10, ""); err != nil || len(jobs) != 0 {
		s.Errorf("a refused job is listed, want none: %v, %v", ids(jobs), err)
	}
}

func testCreateRefuses(s *suite) {
	for name, makeInvalid := range map[string]func(*store.Record){
		"no id":      func(r *store.Record) { r.Job.ID = "" },
		"no account": func(r *store.Record) { r.Spec.Account = "" },
		"running":    func(r *store.Record) { r.Job.Status = rowmill.StatusRunning },
		"no status":  func(r *store.Record) { r.Job.Status = "" },
		"no time":    func(r *store.Record) { r.Job.Created = time.Time{} },
	} {
		rec := s.newRecord("a")
		makeInvalid(&rec)
		s.wantError(fmt.Sprintf("%s: created", name), errAny)(s.Create(s.Context(), rec, nil))
	}
	if jobs, _, err := s.List(s.Context(), "a", 10, ""); err != nil || len(jobs) != 0 {
		s.Errorf("refused jobs are listed, want none: %v, %v", ids(jobs), err)
	}
}

// testRecordSurvivesWhole stores a record in which every field is set, and reads it back
// unchanged.
func testRecordSurvivesWhole(s *suite) {
	long := strings.Repeat("päng\n", 13000) // an inline input near the size limit
	rec := store.Record{
		Job: rowmill.Job{
			ID: "job-whole", Status: rowmill.StatusPending, RunType: rowmill.RunEstimate, Model: "m", Priority: 1,
			Labels: rowmill.Labels{Name: new("näme"), Description: new("")}, Instructions: rowmill.Instructions{System: new("be \"brief\" \u2028 <b>&"), Schema: json.RawMessage(`{"type":"object","properties":{"a":{"const":12345678901234567890}}}`), Sampling: map[string]any{"seed": int64(1)<<62 + 1, "temperature": 0.7, "stop": []any{"a", "b"}, "nothing": nil}},
			JobTimes: rowmill.JobTimes{Created: time.Date(2026, 1, 2, 3, 4, 5, 123456789, time.UTC)},
			Estimate: &rowmill.Estimate{
				Method: rowmill.EstimateSampled, SampleRows: 3, SampleInputTokens: 40,
				Low: 0.05, High: 0.15, InputTokens: 1 << 40, OutputTokens: 60,
			},
			JobUsage: rowmill.JobUsage{CostEstimate: new(0.1)}, Warnings: []string{"w"}, Message: "waiting",
		},
		Spec: rowmill.Spec{
			Account: "a",
			Model: rowmill.Model{
				ID: "m", Kind: rowmill.KindReasoning, ContextLength: 4096, Dimension: 3, EngineNames: []string{"x/y"},
				Sampling:      map[string]any{"top_k": 20},
				RequestExtras: map[string]any{"chat": map[string]any{"deep": true, "n": 9007199254740993}},
				Tokenizer:     "o200k", Template: "chatml",
				NoLogprobs: true, InputPrice: 0.05, OutputPrice: 0.2,
			},
			URL: "https://example.org/a?sig=b&c=d", Inline: []string{"", long, "\x00", "last"}, Spooled: "spool", FromJob: "job-source", Source: "lake:a/*.csv",
			Continue:  &rowmill.Continuation{Job: "job-before", Failed: true},
			InputFile: rowmill.InputFile{Format: "csv", FileName: "f"}, ColumnChoice: rowmill.ColumnChoice{Column: "c", IDColumn: "i"}, System: "be brief", Schema: json.RawMessage(`{"type": "object"}`),
			Sampling: map[string]any{"seed": int64(-1) << 62, "max_tokens": 1}, Priority: 1, Estimate: true,
			Seeds: rowmill.Seeds{SeedPerRow: true, Seed: -1 << 63}, RowRules: rowmill.RowRules{TruncateRows: true, Repair: true, Dedup: true}, JobQuotas: rowmill.JobQuotas{RowQuota: 1 << 40, TokenQuota: 1 << 41, CostQuota: new(12.5)},
		},
	}
	stored, _, err := s.Create(s.Context(), rec, nil)
	must.Succeed(s, err)
	s.wantSame("job as stored", rec.Job, stored.Job)
	s.wantSame("specification as stored", rec.Spec, stored.Spec)
	s.reopen()
	s.wantUnchanged(stored)
	if got := s.get("job-whole").Spec.Inline; !slices.Equal(got, rec.Spec.Inline) {
		s.Errorf("%d inline rows are read back, and differ from the %d rows that were stored", len(got), len(rec.Spec.Inline))
	}
	jobs, _, err := s.List(s.Context(), "a", 1, "")
	if err != nil || len(jobs) != 1 {
		s.Fatalf("list: %d jobs, %v", len(jobs), err)
	}
	s.wantSame("job as listed", rec.Job, jobs[0])

	rec.Job.ID, rec.Job.System, rec.Job.Prompt, rec.Job.Schema = "job-empty", new(""), nil, nil
	rec.Spec.System, rec.Spec.Schema, rec.Spec.Inline = "", nil, nil
	s.must(s.Create(s.Context(), rec, nil))
	got := s.get("job-empty")
	s.wantSame("job with an empty prompt", rec.Job, got.Job)
	s.wantSame("specification without rows", rec.Spec, got.Spec)
}

func testIdempotency(s *suite) {
	idem := store.Idempotency{Key: "k", BodyHash: "h", TTL: long}
	s.wantError("lookup of an unused key", rowmill.ErrNotFound)(s.Lookup(s.Context(), "a", idem))
	first, existed, err := s.Create(s.Context(), s.newRecord("a"), &idem)
	if err != nil || existed {
		s.Fatalf("first create: existed %v, %v", existed, err)
	}
	again, existed, err := s.Create(s.Context(), s.newRecord("a"), &idem)
	if err != nil || !existed {
		s.Fatalf("second create: existed %v, %v; want the first job", existed, err)
	}
	s.wantSame("the first job", first, again)
	found := must.Get(s.Lookup(s.Context(), "a", idem))(s)
	s.wantSame("the job looked up", first, found)

	other := idem
	other.BodyHash = "other"
	s.wantError("create with another body", rowmill.ErrConflict)(s.Create(s.Context(), s.newRecord("a"), &other))
	s.wantError("lookup with another body", rowmill.ErrConflict)(s.Lookup(s.Context(), "a", other))
	if _, existed, err := s.Create(s.Context(), s.newRecord("b"), &other); err != nil || existed {
		s.Errorf("another account with the same key: existed %v, %v", existed, err)
	}

	// A refused submission does not use its idempotency key.
	taken := s.newRecord("a")
	taken.Job.ID = first.Job.ID
	unused := store.Idempotency{Key: "unused", BodyHash: "h", TTL: long}
	s.wantError("create with a taken id", rowmill.ErrConflict)(s.Create(s.Context(), taken, &unused))
	s.wantError("lookup of a key whose submission was refused", rowmill.ErrNotFound)(s.Lookup(s.Context(), "a", unused))
	if jobs, _, err := s.List(s.Context(), "a", 10, ""); err != nil || len(jobs) != 1 {
		s.Errorf("the account has the jobs %v (%v), want the first alone", ids(jobs), err)
	}
	s.reopen()
	if found, err := s.Lookup(s.Context(), "a", idem); err != nil || found.Job.ID != first.Job.ID {
		s.Errorf("after reopening the key leads to %s, %v", found.Job.ID, err)
	}
}

// testContinuedOnce lets many callers continue one job at the same time. Only one call
// must create a job.
func testContinuedOnce(s *suite) {
	old := s.finish(s.createRunning(2), rowmill.StatusFailed)
	const callers = 40
	made, created := make([]string, callers), make([]bool, callers)
	records := make([]store.Record, callers)
	for i := range records {
		records[i] = s.continuation(old.Job.ID, false)
	}
	s.callAtOnce(callers, func(i int) error {
		stored, existed, err := s.Create(s.Context(), records[i], nil)
		made[i], created[i] = stored.Job.ID, !existed
		return err
	})
	first := made[0]
	if n := len(slices.Compact(slices.Sorted(slices.Values(made)))); n != 1 {
		s.Errorf("%d calls created %d jobs, want 1", callers, n)
	}
	if n := len(slices.DeleteFunc(created, func(c bool) bool { return !c })); n != 1 {
		s.Errorf("%d callers learned that their call created the job, want 1", n)
	}
	old.Job.ContinuedBy, old.Version = &first, old.Version+1
	s.wantUnchanged(old)
	s.reopen()
	if again, existed, err := s.Create(s.Context(), s.continuation(old.Job.ID, false), nil); err != nil || !existed || again.Job.ID != first {
		s.Errorf("after reopening: job %s for %s, existed %v, %v", again.Job.ID, first, existed, err)
	}
	another, existed, err := s.Create(s.Context(), s.continuation(old.Job.ID, true), nil)
	if err != nil || existed || another.Job.ID == first {
		s.Errorf("create with Again: job %s, existed %v, %v; want a new job", another.Job.ID, existed, err)
	}
	old.Job.ContinuedBy, old.Version = &another.Job.ID, old.Version+1
	s.wantUnchanged(old)
	open := s.createRunning(2)
	early := s.newRecord("a")
	early.Spec.Continue = &rowmill.Continuation{Job: open.JobID}
	if _, existed, err := s.Create(s.Context(), early, nil); err != nil || existed {
		s.Errorf("continue a job that is still running: existed %v, %v; want a new job", existed, err)
	}
	if by := s.get(open.JobID).Job.ContinuedBy; by != nil {
		s.Errorf("a running job is continued by %s, want no continuation", *by)
	}
}

// continuation returns the record of a new job that continues job. again is
// Spec.Continue.AllowDuplicate.
func (s *suite) continuation(job string, again bool) store.Record {
	rec := s.newRecord("a")
	rec.Job.Continues = &job
	rec.Spec.Inline, rec.Spec.Continue = nil, &rowmill.Continuation{Job: job, AllowDuplicate: again}
	return rec
}

func testIdempotencyExpires(s *suite) {
	idem := store.Idempotency{Key: "k", BodyHash: "h", TTL: s.TTL}
	first, _, err := s.Create(s.Context(), s.newRecord("a"), &idem)
	must.Succeed(s, err)
	s.Advance(2 * s.TTL)
	s.wantError("lookup of an expired key", rowmill.ErrNotFound)(s.Lookup(s.Context(), "a", idem))
	idem = store.Idempotency{Key: "k", BodyHash: "another body", TTL: long}
	second, existed, err := s.Create(s.Context(), s.newRecord("a"), &idem)
	if err != nil || existed || second.Job.ID == first.Job.ID {
		s.Fatalf("create with an expired key: existed %v, job %s, %v", existed, second.Job.ID, err)
	}
	s.wantUnchanged(first)
	// Index entries that remain from the first use of the key must not end its second
	// use.
	for i := range 20 {
		filler := store.Idempotency{Key: fmt.Sprint("filler", i), BodyHash: "h", TTL: long}
		s.must(s.Create(s.Context(), s.newRecord("a"), &filler))
	}
	if found, err := s.Lookup(s.Context(), "a", idem); err != nil || found.Job.ID != second.Job.ID {
		s.Errorf("the key leads to %s, %v; want %s", found.Job.ID, err, second.Job.ID)
	}
}

func testIdempotencyRace(s *suite) {
	idem := store.Idempotency{Key: "k", BodyHash: "h", TTL: long}
	const callers = 16
	records := make([]store.Record, callers)
	for i := range records {
		records[i] = s.newRecord("a")
	}
	got := make([]string, callers)
	var created atomic.Int32
	s.callAtOnce(callers, func(i int) error {
		stored, existed, err := s.Create(s.Context(), records[i], &idem)
		got[i] = stored.Job.ID
		if !existed {
			created.Add(1)
		}
		return err
	})
	if distinct := slices.Compact(got); len(distinct) != 1 {
		s.Errorf("the calls returned the jobs %v, want the same one from all", distinct)
	}
	if created.Load() != 1 {
		s.Errorf("%d callers created the job, want 1", created.Load())
	}
}

func testListNewestFirst(s *suite) {
	var want []string
	for i := range 7 {
		want = slices.Insert(want, 0, s.create("a"))
		s.create(fmt.Sprintf("a%d", i)) // account names with a common prefix
		s.create("A")
	}
	for limit := 1; limit <= 8; limit++ {
		var got []string
		cursor, pages := "", 0
		for {
			jobs, next, err := s.List(s.Context(), "a", limit, cursor)
			if err != nil {
				s.Fatalf("limit %d: %v", limit, err)
			}
			if len(jobs) > limit {
				s.Fatalf("limit %d: %d jobs", limit, len(jobs))
			}
			got, pages = append(got, ids(jobs)...), pages+1
			if next == "" {
				break
			}
			cursor = next
		}
		s.wantEqual(fmt.Sprintf("limit %d", limit), want, got)
		if full := (len(want) + limit - 1) / limit; pages != full {
			s.Errorf("limit %d: %d pages, want %d: the cursor of the last page must be empty", limit, pages, full)
		}
	}
	if jobs, next, err := s.List(s.Context(), "nobody", 5, ""); err != nil || len(jobs) != 0 || next != "" {
		s.Errorf("list of an unknown account: %v, next %q, %v", ids(jobs), next, err)
	}
	s.wantError("a limit of 0 is accepted", errAny)(s.List(s.Context(), "a", 0, ""))
}

// testListAll lists the jobs of all accounts, in the order of their times, with the accounts.
func testListAll(s *suite) {
	type owned struct{ ID, Account string }
	var want []owned
	for i := range 40 { // more jobs of an account than a scan for accounts reads
		account := []string{"a", "a\x01", "b"}[i%7%3]
		want = slices.Insert(want, 0, owned{s.create(account), account})
	}
	slices.SortStableFunc(want, func(x, y owned) int {
		return s.get(y.ID).Job.Created.Compare(s.get(x.ID).Job.Created)
	})
	for _, limit := range []int{1, 7, 39, 40, 41} {
		var got []owned
		for cursor := ""; ; {
			jobs, next, err := s.ListAll(s.Context(), limit, cursor)
			if err != nil || len(jobs) > limit {
				s.Fatalf("limit %d: %d jobs, %v", limit, len(jobs), err)
			}
			for _, head := range jobs {
				got = append(got, owned{head.Job.ID, head.Account})
			}
			if cursor = next; cursor == "" {
				break
			}
		}
		s.wantEqual(fmt.Sprintf("limit %d", limit), want, got)
	}
	s.createFile(s.file("of files", "batch", 1))
	s.must(s.PutKey(s.Context(), store.APIKey{ID: "k", Account: "of keys", Hash: []byte("h"), Created: s.Now()}))
	s.wantEqual("accounts", []string{"a", "a\x01", "b", "of files", "of keys"}, must.Get(s.Accounts(s.Context()))(s))
	s.wantError("a limit of 0 is accepted", errAny)(s.ListAll(s.Context(), 0, ""))
}

// testListUnderInserts lists pages while jobs are created, some of them with earlier times.
func testListUnderInserts(s *suite) {
	round := 0
	rapid.Check(s.T, func(t *rapid.T) {
		round++
		account := fmt.Sprint("account-", round)
		create := func(offset int) string {
			rec := s.newRecord(account)
			rec.Job.Created = s.start.Add(time.Duration(offset) * time.Second)
			if _, _, err := s.Create(s.Context(), rec, nil); err != nil {
				t.Fatal(err)
			}
			return rec.Job.ID
		}
		before := map[string]bool{}
		for _, offset := range rapid.SliceOfN(rapid.IntRange(0, 5), 0, 8).Draw(t, "before") {
			before[create(offset)] = true
		}
		limit := rapid.IntRange(1, 4).Draw(t, "limit")
		seen := map[string]bool{}
		cursor := ""
		var last time.Time
		for {
			jobs, next, err := s.List(s.Context(), account, limit, cursor)
			must.Succeed(t, err)
			for _, j := range jobs {
				if seen[j.ID] {
					t.Fatalf("%s is listed twice", j.ID)
				}
				seen[j.ID] = true
				if !last.IsZero() && j.Created.After(last) {
					t.Fatalf("job %s, created at %v, is listed after a job that was created at %v", j.ID, j.Created, last)
				}
				last = j.Created
			}
			if next == "" {
				break
			}
			cursor = next
			for _, offset := range rapid.SliceOfN(rapid.IntRange(0, 9), 0, 2).Draw(t, "meanwhile") {
				create(offset)
			}
		}
		for id := range before {
			if !seen[id] {
				t.Fatalf("%s was skipped", id)
			}
		}
	})
}

func testListCursor(s *suite) {
	for range 3 {
		s.create("a")
	}
	_, next, err := s.List(s.Context(), "a", 1, "")
	if err != nil || next == "" {
		s.Fatalf("next %q, %v", next, err)
	}
	s.reopen()
	if jobs, _, err := s.List(s.Context(), "a", 1, next); err != nil || len(jobs) != 1 {
		s.Errorf("a cursor after reopening: %v, %v", ids(jobs), err)
	}
	for _, cursor := range []string{"x", "!!!", "AAAA", next[:len(next)/2], next + "=", "Az" + next, strings.Repeat("A", 5000)} {
		_, _, err := s.List(s.Context(), "a", 1, cursor)
		s.wantInvalidCursor(cursor, err)
	}
}

func (s *suite) wantInvalidCursor(cursor string, err error) {
	s.Helper()
	invalid, ok := errors.AsType[*rowmill.InvalidError](err)
	if !ok || len(invalid.Fields) == 0 || invalid.Fields[0].Field != "cursor" {
		s.Errorf("cursor %.20q: %v, want an InvalidError on field cursor", cursor, err)
	}
}
