package storetest

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
)

// entry returns an audit entry of an account with a time n seconds after the start.
func (s *suite) entry(account string, n int) store.AuditEntry {
	return store.AuditEntry{
		ID: fmt.Sprintf("entry-%04d", n), At: s.start.Add(time.Duration(n) * time.Second), Account: account,
		Action: "key.create", Target: "t\x00:", ByAccount: "default", ByKey: "k", ByName: "ops \"laptop\"", Request: "r",
		Details: json.RawMessage(`{"role":"user","n":12345678901234567890}`),
	}
}

func (s *suite) appendAudit(e store.AuditEntry) {
	s.Helper()
	s.must(s.AppendAudit(s.Context(), e))
}

// listAudit returns all entries of an account, read in pages of limit.
func (s *suite) listAudit(account string, limit int) []store.AuditEntry {
	s.Helper()
	var all []store.AuditEntry
	for cursor := ""; ; {
		page, next, err := s.ListAudit(s.Context(), account, limit, cursor)
		if err != nil || len(page) > limit || next != "" && len(page) < limit {
			s.Fatalf("ListAudit returns %d entries for a limit of %d: %v", len(page), limit, err)
		}
		all = append(all, page...)
		if cursor = next; next == "" {
			return all
		}
	}
}

func testAudit(s *suite) {
	if found := s.listAudit("", 5); len(found) != 0 {
		s.Errorf("a new store has the entries %v, want none", found)
	}
	accounts := []string{"a", "a:b", "a\nb", "audit", "\x01"}
	byAccount := map[string][]store.AuditEntry{}
	var all []store.AuditEntry
	for n := range 20 {
		e := s.entry(accounts[n%len(accounts)], n)
		if n == 19 {
			e.Failed = "unavailable"
		}
		s.appendAudit(e)
		byAccount[e.Account] = append([]store.AuditEntry{e}, byAccount[e.Account]...)
		all = append([]store.AuditEntry{e}, all...)
	}
	s.appendAudit(all[7]) // a repeated call must change nothing
	s.reopen()
	for _, limit := range []int{1, 3, 20, 100} {
		s.wantEqual(fmt.Sprintf("all, %d at a time", limit), all, s.listAudit("", limit))
		for _, account := range accounts {
			s.wantEqual(fmt.Sprintf("account %q, %d at a time", account, limit), byAccount[account], s.listAudit(account, limit))
		}
	}
	if found := s.listAudit("b", 5); len(found) != 0 {
		s.Errorf("an account without actions has the entries %v, want none", found)
	}
}

func testAuditUnderInserts(s *suite) {
	var want []string
	for n := 9; n >= 0; n-- {
		s.appendAudit(s.entry("a", n))
		want = append(want, s.entry("a", n).ID)
	}
	var got []string
	for cursor, made := "", 10; ; made++ {
		page, next, err := s.ListAudit(s.Context(), "a", 3, cursor)
		must.Succeed(s, err)
		for _, e := range page {
			got = append(got, e.ID)
		}
		s.appendAudit(s.entry("a", made))
		if cursor = next; next == "" {
			break
		}
	}
	s.wantEqual("entries", want, got)
}

// listAuditAfter returns the ids of all entries after a position, except known ids, read in
// pages of limit.
func (s *suite) listAuditAfter(at time.Time, id string, limit int, known ...string) (ids []string) {
	s.Helper()
	without := map[string]bool{}
	for _, id := range known {
		without[id] = true
	}
	for {
		page, err := s.AuditAfter(s.Context(), at, id, limit, without)
		if err != nil || len(page) > limit {
			s.Fatalf("AuditAfter returns %d entries after (%v, %q) for a limit of %d: %v", len(page), at, id, limit, err)
		}
		for _, e := range page {
			ids, at, id = append(ids, e.ID), e.At, e.ID
		}
		if len(page) < limit {
			return ids
		}
	}
}

func testAuditAfter(s *suite) {
	if found := s.listAuditAfter(s.start, "", 3); len(found) != 0 {
		s.Errorf("a new store has the entries %v, want none", found)
	}
	same := s.start.Add(time.Minute)
	var want []string
	for n, id := range []string{"a", "a\x01", "a.", "ab", "b"} { // entries with the same time are ordered by id
		e := s.entry(fmt.Sprint("account", n), n)
		e.ID, e.At = id, same
		want = append(want, id)
		s.appendAudit(e)
	}
	early, late := s.entry("c", 1), s.entry("c", 61)
	s.appendAudit(late)
	s.appendAudit(early) // added later, with an earlier time
	s.reopen()
	all := append(append([]string{early.ID}, want...), late.ID)
	for _, limit := range []int{1, 2, 7, 100} {
		s.wantEqual(fmt.Sprintf("all, %d at a time", limit), all, s.listAuditAfter(s.start, "", limit))
		s.wantEqual(fmt.Sprintf("without the first, two others and an unknown id, %d at a time", limit), []string{"a\x01", "ab", "b", late.ID}, s.listAuditAfter(s.start, "", limit, early.ID, "a", "a.", "none"))
	}
	for place, from := range map[string]int{"": 1, "a": 2, "aa": 4, "b": 6} {
		s.wantEqual(fmt.Sprintf("after the id %q of the same time", place), all[from:], s.listAuditAfter(same, place, 2))
	}
	if found := s.listAuditAfter(late.At, late.ID, 2); len(found) != 0 {
		s.Errorf("after the last entry the list has %v, want none", found)
	}
	s.wantError("a limit of 0 is accepted", errAny)(s.AuditAfter(s.Context(), s.start, "", 0, nil))
}

func testAuditRefuses(s *suite) {
	for name, change := range map[string]func(*store.AuditEntry){
		"no id":      func(e *store.AuditEntry) { e.ID = "" },
		"NUL in id":  func(e *store.AuditEntry) { e.ID = "a\x00b" },
		"no account": func(e *store.AuditEntry) { e.Account = "" },
		"no time":    func(e *store.AuditEntry) { e.At = time.Time{} },
		"no action":  func(e *store.AuditEntry) { e.Action = "" },
		"no JSON":    func(e *store.AuditEntry) { e.Details = json.RawMessage(`{`) },
	} {
		e := s.entry("a", 1)
		change(&e)
		s.wantError(fmt.Sprintf("%s: it is accepted", name), errAny)(s.AppendAudit(s.Context(), e))
	}
	if found := s.listAudit("", 5); len(found) != 0 {
		s.Errorf("refused entries are listed, want none: %v", found)
	}
	for _, cursor := range []string{"x", "!!!", "AAAA", strings.Repeat("A", 5000)} {
		_, _, err := s.ListAudit(s.Context(), "a", 1, cursor)
		s.wantInvalidCursor(cursor, err)
	}
	s.wantError("a limit of 0 is accepted", errAny)(s.ListAudit(s.Context(), "a", 0, ""))
}

func testReplaceKey(s *suite) {
	k := store.APIKey{ID: "k", Hash: []byte{1}, Account: "a", Role: "user", Created: s.start}
	next := k
	next.Hash = []byte{2}
	s.wantError("replace a key that never was", rowmill.ErrNotFound)(s.ReplaceKey(s.Context(), next, k.Hash))
	s.must(s.PutKey(s.Context(), k))
	for range 2 { // the second call is a repeat
		s.must(s.ReplaceKey(s.Context(), next, k.Hash))
	}
	late := k
	late.Hash = []byte{3}
	s.wantError("replace a key that was replaced", rowmill.ErrConflict)(s.ReplaceKey(s.Context(), late, k.Hash))
	keys, err := s.ListKeys(s.Context())
	if diff := cmp.Diff([]store.APIKey{next}, keys); diff != "" || err != nil {
		s.Errorf("keys (-want +got):\n%s%v", diff, err)
	}
	s.must(s.DeleteKey(s.Context(), "k"))
	s.wantError("replace a key that was deleted", rowmill.ErrNotFound)(s.ReplaceKey(s.Context(), late, next.Hash))
	if keys, err := s.ListKeys(s.Context()); err != nil || len(keys) != 0 {
		s.Errorf("a deleted key exists again, want none: %v, %v", keys, err)
	}
}

func testReplaceKeyRace(s *suite) {
	first := store.APIKey{ID: "k", Hash: []byte{0}, Created: s.start}
	s.must(s.PutKey(s.Context(), first))
	var winner atomic.Int32
	won := s.countWinners(8, rowmill.ErrConflict, func(i int) error {
		k := first
		k.Hash = []byte{1, byte(i)}
		err := s.ReplaceKey(s.Context(), k, first.Hash)
		if err == nil {
			winner.Store(int32(i))
		}
		return err
	})
	if won != 1 {
		s.Errorf("%d calls replaced the key, want 1", won)
	}
	keys, err := s.ListKeys(s.Context())
	if err != nil || len(keys) != 1 || keys[0].Hash[1] != byte(winner.Load()) {
		s.Errorf("call %d replaced the key, but the keys are %v, %v", winner.Load(), keys, err)
	}
}
