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
	"github.com/rowmill/rowmill/store"
)

// RunMove tests that records can be moved from one kind of store to another. The clocks
// of both must agree.
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

// Everything fills a store with records of every kind, in every state that is stored
// differently, and leaves no session.
func Everything(t *testing.T, s store.Store, now time.Time) {
	t.Helper()
	(&suite{T: t, Store: s, start: now.Add(-time.Hour).Truncate(time.Millisecond).UTC()}).everything()
}

// Jobs of everything that the tests use.
const (
	movedOpen = "job-0001" // running: parts of shard 0 were merged, shard 1 has one part
	movedIdem = "job-0002" // waiting; an idempotency key belongs to it
)

func (s *suite) everything() {
	s.Helper()
	rec := s.newRecord("a")
	rec.Spec.Model, rec.Job.KeyID = priced("m"), pointer("key-1")
	rec.Spec.System, rec.Job.System, rec.Job.Schema = "be <brief>", pointer(""), json.RawMessage(`{"type":"object"}`)
	rec.Spec.Sampling = map[string]any{"seed": json.Number("9007199254740993")}
	f := s.started(rec)
	s.update(f, func(r *store.Record) error {
		r.Job.NumRows, r.Shards = pointer(int64(6)), 2
		return nil
	})
	s.spend(f, "p1", store.Totals{Rows: 2, InputTokens: 333, OutputTokens: 77, Failed: 1})
	s.spend(f, "p2", store.Totals{Rows: 1, InputTokens: 1})
	s.must(s.ReplaceParts(s.Context(), f, store.Part{Key: "p3", Rows: 3, Complete: true, Size: 9}))
	second := store.Part{Key: "p4", Shard: 1, Rows: 1, Accepted: []byte{1, 2, 0xff}, Totals: store.Totals{Rows: 1, OutputTokens: 5, Deduplicated: 1}}
	s.must(s.CommitParts(s.Context(), f, []store.Part{second}))
	s.reserve(f, 0.5, 100)

	waits := s.newRecord("a")
	waits.Spec.Inline = []string{"one", "", "<&>\x00"}
	s.must(s.Create(s.Context(), waits, &store.Idempotency{Key: "k:1", BodyHash: "h", TTL: long}))
	s.batch("a:b", rowmill.DialectOpenAI)
	s.claim(s.create("b"), s.session())

	over := s.spending("b", "m2") // no key
	s.update(over, func(r *store.Record) error { r.Job.NumRows = pointer(int64(2)); return nil })
	s.spend(over, "all", store.Totals{Rows: 2, InputTokens: 10, OutputTokens: 10})
	if _, err := s.Finish(s.Context(), over, func(r *store.Record) error {
		r.Artifacts = map[string]store.Artifact{"full": {Key: "jobs/x/results/full", Size: 7}}
		return become(r, rowmill.StatusSucceeded)
	}); err != nil {
		s.Fatal(err)
	}
	kept := s.cancelled("b", s.time())
	s.must(s.KeepInput(s.Context(), kept, s.start.Add(time.Hour)))
	gone := s.cancelled("c", s.time())
	s.must(s.RemoveData(s.Context(), gone, s.start))
	s.must(s.DataGone(s.Context(), gone))

	s.filed(s.file("a", "batch", 0))
	s.filed(s.file("a", "results", 1))
	s.announced(s.delivery("one", 1, 5))
	s.announced(s.delivery("one", 2, 3))
	s.announced(s.delivery("two", 3, 4))
	sent := s.gotDelivery("msg-0003")
	s.putDelivery(s.over(sent, store.DeliveryDelivered, 60))
	s.appended(s.entry("a", 1))
	s.appended(s.entry("b", 2))
	for i, key := range []store.Key{
		{ID: "key-1", Hash: []byte{0, 255}, Account: "a", Role: "admin", Name: "ops", Created: s.start, Expires: s.at(9), RequestsPerMinute: pointer(0)},
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
	now := must(s.Time(s.Context()))(s)
	return now
}

func (s *suite) movable() store.Movable {
	s.Helper()
	m, ok := s.Store.(store.Movable)
	if !ok {
		s.Fatalf("%T is not Movable", s.Store)
	}
	return m
}

// exported returns all entries, also as sorted JSON, and the expiry of the idempotency
// keys.
func (s *suite) exported() (entries []store.Entry, texts []string, expires []time.Time) {
	s.Helper()
	err := s.movable().Export(s.Context(), func(e store.Entry) error {
		entries = append(entries, e)
		if i := e.Idempotency; i != nil {
			expires = append(expires, i.Expires)
			at := *i
			at.Expires = time.Time{} // only as exact as the clocks of the stores
			e = store.Entry{Idempotency: &at}
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

// taken imports entries, three at a time.
func (s *suite) taken(entries []store.Entry) {
	s.Helper()
	for some := range slices.Chunk(entries, 3) {
		s.must(s.movable().Import(s.Context(), some))
	}
}

// looked returns everything that clients and nodes see of the records of everything.
func (s *suite) looked() map[string]any {
	s.Helper()
	seen := map[string]any{}
	note := func(what string, v any, err error) {
		s.Helper()
		if err != nil {
			s.Errorf("%s: %v", what, err)
		}
		seen[what] = v
	}
	far, ctx := s.start.AddDate(1, 0, 0), s.Context()
	for _, account := range []string{"a", "a:b", "b", "c"} {
		jobs, _, err := s.List(ctx, account, 100, "")
		note("jobs of "+account, jobs, err)
		for _, j := range jobs {
			rec, err := s.Get(ctx, j.ID)
			rec.Session = ""
			note("record "+j.ID, rec, err)
			parts, err := s.ListParts(ctx, j.ID)
			note("parts "+j.ID, parts, err)
		}
		held, err := s.Held(ctx, account, far, 100)
		note("held of "+account, held, err)
		usage, err := s.Usage(ctx, account, s.start.AddDate(0, 0, -2), far)
		note("usage of "+account, usage, err)
		keyed, err := s.UsageByKey(ctx, account, s.start.AddDate(0, 0, -2), far)
		note("usage by key of "+account, keyed, err)
		files, _, err := s.ListFiles(ctx, account, "batch", store.Page{Limit: 100})
		note("files of "+account, files, err)
		batches, _, err := s.Batches(ctx, account, rowmill.DialectOpenAI, store.Page{Limit: 100})
		for i := range batches {
			batches[i].Session = ""
		}
		note("batches of "+account, batches, err)
		audit, _, err := s.ListAudit(ctx, account, 100, "")
		note("audit of "+account, audit, err)
	}
	audit, _, err := s.ListAudit(ctx, "", 100, "")
	note("audit", audit, err)
	holders, err := s.Holders(ctx)
	note("holders", holders, err)
	due, err := s.Due(ctx, far, 100)
	note("due", due, err)
	expired, err := s.ExpiredFiles(ctx, far, 100)
	note("expired", expired, err)
	for _, endpoint := range []string{"one", "two"} {
		deliveries, _, err := s.ListDeliveries(ctx, endpoint, store.Page{Limit: 100})
		note("deliveries to "+endpoint, deliveries, err)
	}
	for _, seconds := range []int{3, 100} {
		deliveries, err := s.DueDeliveries(ctx, *s.at(seconds), 100)
		note(fmt.Sprintf("deliveries due at %d", seconds), deliveries, err)
	}
	keys, err := s.ListKeys(ctx)
	note("keys", keys, err)
	names, err := s.ListValues(ctx, "")
	note("names of values", names, err)
	orphans, err := s.Orphans(ctx, 100)
	var waiting []string
	for _, o := range orphans {
		waiting = append(waiting, fmt.Sprint(o.Account, o.JobID, o.Status, o.Priority))
	}
	slices.Sort(waiting)
	note("orphans", waiting, err)
	return seen
}

// Every kind of entry is moved, and every read and list finds it.
func testMoveWhole(a, b *suite) {
	a.everything()
	entries, texts, expires := a.exported()
	kinds := map[string]bool{}
	for _, e := range entries {
		v := reflect.ValueOf(e)
		for i := range v.NumField() {
			if !v.Field(i).IsNil() {
				kinds[v.Type().Field(i).Name] = true
			}
		}
	}
	if want := reflect.TypeFor[store.Entry]().NumField(); len(kinds) != want {
		a.Errorf("entries of %d kinds of %d were exported: %v", len(kinds), want, kinds)
	}
	b.taken(entries)
	_, got, later := b.exported()
	if diff := cmp.Diff(texts, got); diff != "" {
		b.Errorf("moved entries (-want +got):\n%s", diff)
	}
	if len(expires) != 1 || len(later) != 1 || expires[0].Sub(later[0]).Abs() > time.Second {
		b.Errorf("after the move idempotency keys expire at %v, want %v as before", later, expires)
	}
	want := a.looked()
	b.start = a.start
	b.same("moved records", want, b.looked())
}

// Moved jobs, values and deliveries continue.
func testMoveGoesOn(a, b *suite) {
	a.everything()
	entries, _, _ := a.exported()
	b.taken(entries)
	b.start, b.made = a.start, a.made
	idem := store.Idempotency{Key: "k:1", BodyHash: "h", TTL: long}
	if rec, err := b.Lookup(b.Context(), "a", idem); err != nil || rec.Job.ID != movedIdem {
		b.Errorf("the idempotency key leads to %q: %v", rec.Job.ID, err)
	}
	before := b.get(movedOpen)
	f := b.claim(movedOpen, b.session())
	if f.Epoch <= before.Epoch {
		b.Errorf("epoch %d follows %d", f.Epoch, before.Epoch)
	}
	spent := b.used("a")
	again := []store.Part{{Key: "p1", Rows: 2, Totals: store.Totals{Rows: 2}}, {Key: "p4", Shard: 1, Rows: 1, Totals: store.Totals{Rows: 1}}}
	if err := b.CommitParts(b.Context(), f, again); err != nil {
		b.Fatal(err)
	}
	b.same("usage after parts that were known", spent, b.used("a"))
	last := store.Part{Key: "p5", Shard: 1, Rows: 2, Totals: store.Totals{Rows: 2, InputTokens: 2}}
	if err := b.CommitParts(b.Context(), f, []store.Part{last}); err != nil {
		b.Fatal(err)
	}
	b.holds(movedOpen, "p3", "p4", "p5")
	var charged rowmill.Money
	for _, u := range b.used("a") {
		charged = charged.Plus(u.Cost)
	}
	if want := priced("m").Charge(336, 82); charged != want {
		b.Errorf("the account was charged %v, want %v", charged, want)
	}
	limit := 0.5
	other := b.spending("a", "m")
	var refused *store.LimitError
	if _, err := b.Reserve(b.Context(), other, 0.1, &limit); !errors.As(err, &refused) {
		b.Errorf("an earlier reservation does not count: %v", err)
	}
	if rec, err := b.Finish(b.Context(), f, func(r *store.Record) error { return become(r, rowmill.StatusSucceeded) }); err != nil || rec.Reserved != 0 {
		b.Errorf("the job does not end: %v, with %v set aside", err, rec.Reserved)
	}
	if _, err := b.Reserve(b.Context(), other, 0.1, &limit); err != nil {
		b.Errorf("reserve after a release: %v, want no error", err)
	}
	if _, err := b.PutValue(b.Context(), "settings/a", json.RawMessage(`1`), 2); !errors.Is(err, rowmill.ErrConflict) {
		b.Errorf("a value at a version that is past: %v", err)
	}
	if version, err := b.PutValue(b.Context(), "settings/a", json.RawMessage(`1`), 3); err != nil || version != 4 {
		b.Errorf("the value has version %d then: %v", version, err)
	}
	d := b.gotDelivery("msg-0002")
	b.putDelivery(b.over(d, store.DeliveryFailed, 60))
	if got := b.dueDeliveries(4, 10); len(got) != 0 {
		b.Errorf("due before the next is: %v", got)
	}
	if got := b.dueDeliveries(5, 10); !slices.Equal(got, []string{"msg-0001"}) {
		b.Errorf("due: %v", got)
	}
	if n, err := b.DropDeliveries(b.Context(), *b.at(60), 10); n != 2 || err != nil {
		b.Errorf("%d deliveries have expired: %v", n, err)
	}
	if err := b.DeleteFile(b.Context(), b.file("a", "results", 1).ID); err != nil {
		b.Error(err)
	}
	if files, err := b.ExpiredFiles(b.Context(), b.start.AddDate(1, 0, 0), 10); len(files) != 0 || err != nil {
		b.Errorf("expired: %v, %v", files, err)
	}
}

// A repeated import changes nothing.
func testMoveRepeated(a, b *suite) {
	a.everything()
	entries, texts, _ := a.exported()
	b.taken(entries)
	b.taken(entries)
	if _, got, _ := b.exported(); !slices.Equal(texts, got) {
		b.Errorf("moved twice (-want +got):\n%s", cmp.Diff(texts, got))
	}
}

// A store that a node uses is not moved.
func testMoveRefused(a, _ *suite) {
	a.everything()
	session := a.session()
	err := a.movable().Export(a.Context(), func(store.Entry) error { return nil })
	if !errors.Is(err, rowmill.ErrConflict) {
		a.Errorf("export while a session is open: %v, want ErrConflict", err)
	}
	if err := a.CloseSession(a.Context(), session); err != nil {
		a.Fatal(err)
	}
	stop := errors.New("stop")
	if err := a.movable().Export(a.Context(), func(store.Entry) error { return stop }); !errors.Is(err, stop) {
		a.Errorf("export with a visit that fails: %v, want the error of visit", err)
	}
	if err := a.movable().Import(a.Context(), []store.Entry{{}}); err == nil {
		a.Error("Import accepted an entry without a kind, want an error")
	}
}

// A cleared store is like a new one.
func testMoveCleared(a, _ *suite) {
	nothing := a.looked()
	a.everything()
	entries, texts, _ := a.exported()
	if err := a.movable().Clear(a.Context()); err != nil {
		a.Fatal(err)
	}
	if left, _, _ := a.exported(); len(left) > 0 {
		a.Errorf("a cleared store has %d entries, want none", len(left))
	}
	a.same("an empty store", nothing, a.looked())
	a.taken(entries)
	if _, got, _ := a.exported(); !slices.Equal(texts, got) {
		a.Errorf("moved back (-want +got):\n%s", cmp.Diff(texts, got))
	}
}
