package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
)

func testKeys(s *suite) {
	listed := func() []store.APIKey {
		s.Helper()
		return must.Get(s.ListKeys(s.Context()))(s)
	}
	if keys := listed(); len(keys) != 0 {
		s.Errorf("a new store has the keys %v, want none", keys)
	}
	at := func(hour int) time.Time { return time.Date(2026, 1, 1, hour, 0, 0, 0, time.UTC) }
	a := store.APIKey{ID: "z", Hash: []byte{1, 2, 0}, Account: "a", Role: "admin", Name: "n", Created: at(1)}
	b := store.APIKey{ID: "a", Hash: []byte{3}, Account: "b", Role: "user", Created: at(2), Expires: new(at(5)), LastUsed: new(at(3)), Rotated: new(at(4)), Dialect: "sdk", RequestsPerMinute: new(7)}
	for _, k := range []store.APIKey{b, a, a} {
		s.must(s.PutKey(s.Context(), k))
	}
	s.wantEqual("keys", []store.APIKey{a, b}, listed())
	a.Name, a.Hash = "renamed", []byte{9}
	s.must(s.PutKey(s.Context(), a))
	s.reopen()
	s.wantEqual("keys after a change", []store.APIKey{a, b}, listed())
	s.must(s.DeleteKey(s.Context(), "z"))
	s.wantError("delete an unknown key", rowmill.ErrNotFound)(s.DeleteKey(s.Context(), "z"))
	s.wantEqual("keys after a delete", []store.APIKey{b}, listed())
}

func testValues(s *suite) {
	ctx := s.Context()
	s.wantError("get of an unknown value", rowmill.ErrNotFound)(s.GetValue(ctx, "v"))
	s.wantError("put of an unknown value at version 5", rowmill.ErrConflict)(s.PutValue(ctx, "v", json.RawMessage(`1`), 5))
	s.wantError("a document that is not JSON is accepted", errAny)(s.PutValue(ctx, "v", json.RawMessage(`{"broken"`), 0))
	first, err := s.PutValue(ctx, "v", json.RawMessage(`{"n":12345678901234567890}`), 0)
	if err != nil || first <= 0 {
		s.Fatalf("put: version %d, %v", first, err)
	}
	s.wantError("put of a value that exists at version 0", rowmill.ErrConflict)(s.PutValue(ctx, "v", json.RawMessage(`2`), 0))
	second, err := s.PutValue(ctx, "v", json.RawMessage(`{"n":2}`), first)
	if err != nil || second <= first {
		s.Fatalf("put again: version %d, %v", second, err)
	}
	s.wantError("put at an old version", rowmill.ErrConflict)(s.PutValue(ctx, "v", json.RawMessage(`3`), first))
	s.reopen()
	doc, version, err := s.GetValue(ctx, "v")
	if err != nil || string(doc) != `{"n":2}` || version != second {
		s.Errorf("GetValue returns %s, version %d, %v; want the last document", doc, version, err)
	}
}

func testValuesRace(s *suite) {
	s.must(s.PutValue(s.Context(), "n", json.RawMessage(`0`), 0))
	var wg sync.WaitGroup
	var added atomic.Int64
	for range 8 {
		wg.Go(func() {
			for range 5 {
				doc, version, err := s.GetValue(s.Context(), "n")
				if err != nil {
					s.Errorf("get: %v", err)
					return
				}
				var n int64
				if err := json.Unmarshal(doc, &n); err != nil {
					s.Errorf("decode: %v", err)
					return
				}
				_, err = s.PutValue(s.Context(), "n", json.RawMessage(fmt.Sprint(n+1)), version)
				switch {
				case err == nil:
					added.Add(1)
				case !errors.Is(err, rowmill.ErrConflict):
					s.Errorf("put: %v", err)
				}
			}
		})
	}
	wg.Wait()
	if doc, _, err := s.GetValue(s.Context(), "n"); err != nil || string(doc) != fmt.Sprint(added.Load()) {
		s.Errorf("the counter is %s after %d increments, %v", doc, added.Load(), err)
	}
}

func testListValues(s *suite) {
	for _, name := range []string{"b/2", "a", "b/10", "b", "b/1", "c"} {
		s.must(s.PutValue(s.Context(), name, json.RawMessage(`null`), 0))
	}
	for prefix, want := range map[string][]string{
		"":   {"a", "b", "b/1", "b/10", "b/2", "c"},
		"b/": {"b/1", "b/10", "b/2"},
		"b":  {"b", "b/1", "b/10", "b/2"},
		"d":  nil,
	} {
		got := must.Get(s.ListValues(s.Context(), prefix))(s)
		s.wantEqual(fmt.Sprintf("prefix %q", prefix), want, append([]string(nil), got...))
	}
}

// testReopen checks that all acknowledged data is still there after the store was closed
// and opened again.
func testReopen(s *suite) {
	f := s.createRunning(4)
	s.commit(f, store.Part{Key: "a", Rows: 1}, store.Part{Key: "b", Rows: 2})
	done := s.createRunning(1)
	s.finish(done, rowmill.StatusSucceeded)
	waiting := s.create("b")
	var before []store.Record
	for _, id := range []string{f.JobID, done.JobID, waiting} {
		before = append(before, s.get(id))
	}
	for range 2 {
		s.reopen()
		for _, rec := range before {
			s.wantUnchanged(rec)
		}
		s.wantParts(f.JobID, "a", "b")
		if jobs, _, err := s.List(s.Context(), "a", 10, ""); err != nil || len(jobs) != 2 {
			s.Errorf("account a has the jobs %v, %v; want 2", ids(jobs), err)
		}
	}
	// Some stores keep sessions when they are opened again. An ended session stays ended.
	s.must(s.CloseSession(s.Context(), f.Session))
	again := s.claim(f.JobID, s.session())
	if again.Epoch <= f.Epoch || again.Session == f.Session {
		s.Errorf("the claim after reopening has epoch %d after epoch %d, want a larger epoch and a new session", again.Epoch, f.Epoch)
	}
	s.wantLeaseLost("of the owner before the restart", f)
	s.commit(again, store.Part{Key: "a", Rows: 1}, store.Part{Key: "c", Rows: 1})
	s.wantParts(f.JobID, "a", "b", "c")
	s.must(s.Finish(s.Context(), again, func(r *store.Record) error { return moveThrough(r, rowmill.StatusSucceeded) }))
}

// testContext checks that a cancelled context stops every call without an effect.
func testContext(s *suite) {
	f := s.createRunning(5)
	s.commit(f, store.Part{Key: "a", Rows: 1})
	before := s.get(f.JobID)
	ctx := endedContext()
	for _, o := range slices.Concat(Operations("Finish"), Operations("Cancel")) {
		c := &Caller{Store: s.Store, Fence: f, Ctx: ctx}
		if o.Kind == CreatesJob {
			c.JobID = "ended"
		}
		s.wantError(o.Method, ctx.Err())(o.Call(c))
	}
	s.wantUnchanged(before)
	s.wantParts(f.JobID, "a")
	s.update(f, func(*store.Record) error { return nil }) // the update succeeds, because the session is alive
	if jobs, _, err := s.List(s.Context(), "ended", 1, ""); err != nil || len(jobs) != 0 {
		s.Errorf("a create with an ended context stored the jobs %v, %v; want none", ids(jobs), err)
	}
}

func testPingAndClose(s *suite) {
	for range 3 {
		s.must(s.Ping(s.Context()))
	}
	for range 2 {
		s.must(s.Close())
	}
	s.wantError("a closed store can be written to", errAny)(s.Ping(s.Context()))
	if _, err := s.Get(s.Context(), "job"); err == nil || errors.Is(err, rowmill.ErrNotFound) {
		s.Errorf("get from a closed store: %v", err)
	}
	s.wantError("a closed store creates jobs", errAny)(s.Create(s.Context(), s.newRecord("a"), nil))
}
