package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
)

// RunMove tests that records can be moved from one kind of store to another kind. The
// clocks of both stores must agree.
func RunMove(t *testing.T, from, to func(t *testing.T) Harness) {
	open := func(t *testing.T, fresh func(t *testing.T) Harness) *suite {
		h := fresh(t)
		s := &suite{T: t, Harness: h, start: h.Now().Add(-time.Hour).Truncate(time.Millisecond).UTC(), Store: h.Open(t)}
		t.Cleanup(func() {
			if err := s.Store.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		})
		return s
	}
	for name, run := range map[string]func(a, b *suite){
		"Whole": testMoveWhole, "GoesOn": testMoveGoesOn, "Repeated": testMoveRepeated, "Refused": testMoveRefused, "Cleared": testMoveCleared,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b := open(t, from), open(t, to)
			run(a, b)
		})
	}
}

// FillStore fills a store with records of every kind, in every state that is stored
// differently, and leaves no session.
func FillStore(t *testing.T, s store.Store, now time.Time) {
	t.Helper()
	(&suite{T: t, Store: s, start: now.Add(-time.Hour).Truncate(time.Millisecond).UTC()}).fillStore()
}

// These are the ids of jobs that the method fillStore creates and that tests use.
const (
	movedOpen   = "job-0001" // running: parts of shard 0 were merged, shard 1 has one part
	movedIdem   = "job-0002" // waiting; an idempotency key belongs to it
	movedLosing = "job-0007" // running: one part is lost, one is not
)

// fillStore fills the store of a suite, as FillStore does.
func (s *suite) fillStore() {
	s.Helper()
	rec := s.newRecord("a")
	rec.Spec.Model, rec.Job.KeyID = pricedModel("m"), new("key-1")
	rec.Spec.System, rec.Job.System, rec.Job.Prompt, rec.Job.Schema = "be <brief>", new(""), new("{{a}}"), json.RawMessage(`{"type":"object"}`)
	rec.Spec.Sampling = map[string]any{"seed": json.Number("9007199254740993")}
	f := s.startJob(rec)
	s.update(f, func(r *store.Record) error {
		r.Job.NumRows, r.Shards = new(int64(6)), 2
		return nil
	})
	s.spend(f, "p1", store.RowTotals{Rows: 2, InputTokens: 333, OutputTokens: 77, Failed: 1})
	s.spend(f, "p2", store.RowTotals{Rows: 1, InputTokens: 1})
	s.must(s.ReplaceParts(s.Context(), f, store.Part{Key: "p3", Rows: 3, Complete: true, Size: 9}))
	second := store.Part{Key: "p4", Shard: 1, Rows: 1, Accepted: []byte{1, 2, 0xff}, Totals: store.RowTotals{Rows: 1, OutputTokens: 5, Deduplicated: 1}}
	s.must(s.CommitParts(s.Context(), f, []store.Part{second}))
	s.reserve(f, 0.5, 100)

	waits := s.newRecord("a")
	waits.Spec.Inline = []string{"one", "", "<&>\x00"}
	s.must(s.Create(s.Context(), waits, &store.Idempotency{Key: "k:1", BodyHash: "h", TTL: long}))
	s.batch("a:b", rowmill.DialectOpenAI)
	s.claim(s.create("b"), s.session())

	ended := s.createSpendingJob("b", "m2") // a job without an API key
	s.update(ended, func(r *store.Record) error { r.Job.NumRows = new(int64(2)); return nil })
	s.spend(ended, "all", store.RowTotals{Rows: 2, InputTokens: 10, OutputTokens: 10})
	must.Get(s.Finish(s.Context(), ended, func(r *store.Record) error {
		r.Artifacts = map[string]store.Artifact{"full": {Key: "jobs/x/results/full", Size: 7}}
		return moveThrough(r, rowmill.StatusSucceeded)
	}))(s)
	kept := s.createCancelled("b", s.time())
	s.must(s.KeepInput(s.Context(), kept, s.start.Add(time.Hour)))
	losing := s.createSpendingJob("c", "m3")
	s.spend(losing, "lost", store.RowTotals{Rows: 2, InputTokens: 20})
	s.spend(losing, "kept", store.RowTotals{Rows: 1, InputTokens: 5})
	s.must(s.MarkPartsLost(s.Context(), losing, []string{"lost"}, nil))
	gone := s.createCancelled("c", s.time())
	s.must(s.RemoveData(s.Context(), gone, s.start))
	s.must(s.MarkDataDeleted(s.Context(), gone))

	s.createFile(s.file("a", "batch", 0))
	s.createFile(s.file("a", "results", 1))
	s.createDelivery(s.delivery("one", 1, 5))
	s.createDelivery(s.delivery("one", 2, 3))
	s.createDelivery(s.delivery("two", 3, 4))
	sent := s.getDelivery("msg-0003")
	s.putDelivery(s.endDelivery(sent, store.DeliveryDelivered, 60))
	s.appendAudit(s.entry("a", 1))
	s.appendAudit(s.entry("b", 2))
	for i, key := range []store.APIKey{
		{ID: "key-1", Hash: []byte{0, 255}, Account: "a", Role: "admin", Name: "ops", Created: s.start, Expires: s.timeAt(9), RequestsPerMinute: new(0)},
		{ID: "key-2", Hash: []byte("x"), Account: "b", Role: "reader", Created: s.start, Dialect: "sdk"},
	} {
		if err := s.PutKey(s.Context(), key); err != nil {
			s.Fatal(i, err)
		}
	}
	for version := range int64(3) {
		s.must(s.PutValue(s.Context(), "settings/a", json.RawMessage(`{"n": 1, "text": "a  b"}`), version))
	}
	s.must(s.PutValue(s.Context(), "functions/a:x", json.RawMessage(`[]`), 0))
	for _, id := range s.sessions {
		s.must(s.CloseSession(s.Context(), id))
	}
	s.sessions = nil
}

// time returns the time of the store.
func (s *suite) time() time.Time {
	return must.Get(s.Time(s.Context()))(s)
}

func (s *suite) movable() store.MovableStore {
	s.Helper()
	m, ok := s.Store.(store.MovableStore)
	if !ok {
		s.Fatalf("%T is not Movable", s.Store)
	}
	return m
}

// exportAll exports a store. It returns the entries, the entries as sorted JSON texts
// without the expiry of idempotency keys, and these expiry times.
func (s *suite) exportAll() (entries []store.ExportEntry, texts []string, expires []time.Time) {
	s.Helper()
	err := s.movable().Export(s.Context(), func(e store.ExportEntry) error {
		entries = append(entries, e)
		if i := e.Idempotency; i != nil {
			expires = append(expires, i.Expires)
			at := *i
			at.Expires = time.Time{} // compared separately, because the clocks of the stores differ a little
			e = store.ExportEntry{Idempotency: &at}
		}
		texts = append(texts, e.Kind()+" "+asJSON(s, e))
		return nil
	})
	if err != nil {
		s.Fatalf("export: %v", err)
	}
	slices.Sort(texts)
	return entries, texts, expires
}

// importAll imports entries, three at a time.
func (s *suite) importAll(entries []store.ExportEntry) {
	s.Helper()
	for some := range slices.Chunk(entries, 3) {
		s.must(s.movable().Import(s.Context(), some))
	}
}

// readEverything returns the results of all reads and lists of the records that the
// method fillStore creates.
func (s *suite) readEverything() map[string]any {
	s.Helper()
	seen := map[string]any{}
	note := func(what string) func(v any, err error) {
		return func(v any, err error) {
			s.Helper()
			if err != nil {
				s.Errorf("%s: %v", what, err)
			}
			seen[what] = v
		}
	}
	far, ctx := s.start.AddDate(1, 0, 0), s.Context()
	for _, account := range []string{"a", "a:b", "b", "c"} {
		jobs, _, err := s.List(ctx, account, 100, "")
		note("jobs of "+account)(jobs, err)
		for _, j := range jobs {
			rec, err := s.Get(ctx, j.ID)
			rec.Session = ""
			note("record "+j.ID)(rec, err)
			note("parts " + j.ID)(s.ListParts(ctx, j.ID))
			note("lost parts " + j.ID)(s.LostParts(ctx, j.ID))
		}
		note("held of " + account)(s.RetainedJobs(ctx, account, far, 100))
		note("usage of " + account)(s.Usage(ctx, account, s.start.AddDate(0, 0, -2), far))
		note("usage by key of " + account)(s.UsageByKey(ctx, account, s.start.AddDate(0, 0, -2), far))
		files, _, err := s.ListFiles(ctx, account, "batch", store.PageRequest{Limit: 100})
		note("files of "+account)(files, err)
		batches, _, err := s.ListBatches(ctx, account, rowmill.DialectOpenAI, store.PageRequest{Limit: 100})
		for i := range batches {
			batches[i].Session = ""
		}
		note("batches of "+account)(batches, err)
		audit, _, err := s.ListAudit(ctx, account, 100, "")
		note("audit of "+account)(audit, err)
	}
	audit, _, err := s.ListAudit(ctx, "", 100, "")
	note("audit")(audit, err)
	note("holders")(s.AccountsWithData(ctx))
	note("due")(s.ListDueRemovals(ctx, far, 100))
	note("expired")(s.ExpiredFiles(ctx, far, 100))
	for _, endpoint := range []string{"one", "two"} {
		deliveries, _, err := s.ListDeliveries(ctx, endpoint, store.PageRequest{Limit: 100})
		note("deliveries to "+endpoint)(deliveries, err)
	}
	for _, seconds := range []int{3, 100} {
		note(fmt.Sprintf("deliveries due at %d", seconds))(s.DueDeliveries(ctx, *s.timeAt(seconds), 100))
	}
	note("keys")(s.ListKeys(ctx))
	note("names of values")(s.ListValues(ctx, ""))
	orphans, err := s.Orphans(ctx, 100)
	var waiting []string
	for _, o := range orphans {
		waiting = append(waiting, fmt.Sprint(o.Account, o.JobID, o.Status, o.Priority))
	}
	slices.Sort(waiting)
	note("orphans")(waiting, err)
	return seen
}

// testMoveWhole checks that every kind of entry is moved, and that every read and list finds
// the entry.
func testMoveWhole(a, b *suite) {
	a.fillStore()
	entries, texts, expires := a.exportAll()
	kinds := map[string]bool{}
	for _, e := range entries {
		v := reflect.ValueOf(e)
		for i := range v.NumField() {
			if !v.Field(i).IsNil() {
				kinds[v.Type().Field(i).Name] = true
			}
		}
	}
	if want := reflect.TypeFor[store.ExportEntry]().NumField(); len(kinds) != want {
		a.Errorf("entries of %d kinds were exported, want all %d kinds: %v", len(kinds), want, kinds)
	}
	b.importAll(entries)
	_, got, later := b.exportAll()
	if diff := cmp.Diff(texts, got); diff != "" {
		b.Errorf("moved entries (-want +got):\n%s", diff)
	}
	if len(expires) != 1 || len(later) != 1 || expires[0].Sub(later[0]).Abs() > time.Second {
		b.Errorf("after the move idempotency keys expire at %v, want %v as before", later, expires)
	}
	want := a.readEverything()
	b.start = a.start
	b.wantSame("moved records", want, b.readEverything())
}

// testMoveGoesOn checks that moved jobs, values and deliveries can be used and changed in
// the new store.
func testMoveGoesOn(a, b *suite) {
	a.fillStore()
	entries, _, _ := a.exportAll()
	b.importAll(entries)
	b.start, b.made = a.start, a.made
	idem := store.Idempotency{Key: "k:1", BodyHash: "h", TTL: long}
	if rec, err := b.Lookup(b.Context(), "a", idem); err != nil || rec.Job.ID != movedIdem {
		b.Errorf("the idempotency key leads to %q: %v", rec.Job.ID, err)
	}
	before := b.get(movedOpen)
	f := b.claim(movedOpen, b.session())
	if f.Epoch <= before.Epoch {
		b.Errorf("the epoch is %d after epoch %d, want a larger one", f.Epoch, before.Epoch)
	}
	losing := b.claim(movedLosing, b.session())
	if lost, err := b.MarkPartsLost(b.Context(), losing, []string{"kept"}, nil); err != nil || lost.Rows != 3 || lost.InputTokens != 25 {
		b.Errorf("after the loss of another part %+v are lost, %v; want 3 rows and 25 tokens", lost, err)
	}
	spent := b.usage("a")
	again := []store.Part{{Key: "p1", Rows: 2, Totals: store.RowTotals{Rows: 2}}, {Key: "p4", Shard: 1, Rows: 1, Totals: store.RowTotals{Rows: 1}}}
	must.Succeed(b, b.CommitParts(b.Context(), f, again))
	b.wantSame("usage after parts that were known", spent, b.usage("a"))
	last := store.Part{Key: "p5", Shard: 1, Rows: 2, Totals: store.RowTotals{Rows: 2, InputTokens: 2}}
	must.Succeed(b, b.CommitParts(b.Context(), f, []store.Part{last}))
	b.wantParts(movedOpen, "p3", "p4", "p5")
	var charged rowmill.Money
	for _, u := range b.usage("a") {
		charged = charged.Plus(u.Cost)
	}
	if want := pricedModel("m").TokenCost(336, 82); charged != want {
		b.Errorf("the account was charged %v, want %v", charged, want)
	}
	limit := 0.5
	other := b.createSpendingJob("a", "m")
	var refused *store.CostLimitError
	if _, err := b.Reserve(b.Context(), other, 0.1, &limit); !errors.As(err, &refused) {
		b.Errorf("reserve while a moved reservation uses up the limit: %v, want a LimitError", err)
	}
	if rec, err := b.Finish(b.Context(), f, func(r *store.Record) error { return moveThrough(r, rowmill.StatusSucceeded) }); err != nil || rec.Reserved != 0 {
		b.Errorf("finish the moved job: %v, with %v reserved; want no error and no reservation", err, rec.Reserved)
	}
	if _, err := b.Reserve(b.Context(), other, 0.1, &limit); err != nil {
		b.Errorf("reserve after the end of the moved job: %v, want no error", err)
	}
	if _, err := b.PutValue(b.Context(), "settings/a", json.RawMessage(`1`), 2); !errors.Is(err, rowmill.ErrConflict) {
		b.Errorf("put a value at an old version: %v, want ErrConflict", err)
	}
	if version, err := b.PutValue(b.Context(), "settings/a", json.RawMessage(`1`), 3); err != nil || version != 4 {
		b.Errorf("put a value at its version: version %d, %v; want version 4", version, err)
	}
	d := b.getDelivery("msg-0002")
	b.putDelivery(b.endDelivery(d, store.DeliveryFailed, 60))
	if got := b.dueDeliveries(4, 10); len(got) != 0 {
		b.Errorf("due deliveries after 4 s are %v, want none", got)
	}
	if got := b.dueDeliveries(5, 10); !slices.Equal(got, []string{"msg-0001"}) {
		b.Errorf("due deliveries after 5 s are %v, want msg-0001", got)
	}
	if n, err := b.DropExpiredDeliveries(b.Context(), *b.timeAt(60), 10); n != 2 || err != nil {
		b.Errorf("%d expired deliveries were dropped, %v; want 2", n, err)
	}
	if err := b.DeleteFile(b.Context(), b.file("a", "results", 1).ID); err != nil {
		b.Error(err)
	}
	if files, err := b.ExpiredFiles(b.Context(), b.start.AddDate(1, 0, 0), 10); len(files) != 0 || err != nil {
		b.Errorf("expired files are %v, %v; want none", files, err)
	}
}

// testMoveRepeated checks that a repeated import changes nothing.
func testMoveRepeated(a, b *suite) {
	a.fillStore()
	entries, texts, _ := a.exportAll()
	b.importAll(entries)
	b.importAll(entries)
	if _, got, _ := b.exportAll(); !slices.Equal(texts, got) {
		b.Errorf("entries after a second import (-want +got):\n%s", cmp.Diff(texts, got))
	}
}

// testMoveRefused checks that a store that a node uses is not exported.
func testMoveRefused(a, _ *suite) {
	a.fillStore()
	session := a.session()
	err := a.movable().Export(a.Context(), func(store.ExportEntry) error { return nil })
	if !errors.Is(err, rowmill.ErrConflict) {
		a.Errorf("export while a session is open: %v, want ErrConflict", err)
	}
	must.Succeed(a, a.CloseSession(a.Context(), session))
	stop := errors.New("stop")
	if err := a.movable().Export(a.Context(), func(store.ExportEntry) error { return stop }); !errors.Is(err, stop) {
		a.Errorf("export with a visit that fails: %v, want the error of visit", err)
	}
	if err := a.movable().Import(a.Context(), []store.ExportEntry{{}}); err == nil {
		a.Error("Import accepted an entry without a kind, want an error")
	}
}

// testMoveCleared checks that a cleared store is like a new store.
func testMoveCleared(a, _ *suite) {
	nothing := a.readEverything()
	a.fillStore()
	entries, texts, _ := a.exportAll()
	must.Succeed(a, a.movable().Clear(a.Context()))
	if left, _, _ := a.exportAll(); len(left) > 0 {
		a.Errorf("a cleared store has %d entries, want none", len(left))
	}
	a.wantSame("an empty store", nothing, a.readEverything())
	a.importAll(entries)
	if _, got, _ := a.exportAll(); !slices.Equal(texts, got) {
		a.Errorf("entries after they were imported again (-want +got):\n%s", cmp.Diff(texts, got))
	}
}
