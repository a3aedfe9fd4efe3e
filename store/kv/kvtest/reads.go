package kvtest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/kv"
)

// testOwnWrites checks that a transaction sees its own writes in Get and not in Scan.
func testOwnWrites(s *suite) {
	s.put("a", "1", "b", "2")
	s.update(func(t kv.Tx) error {
		t.Put(table, []byte("a"), []byte("3"))
		t.Put(table, []byte("c"), []byte("4"))
		t.Delete(table, []byte("b"))
		for key, want := range map[string]string{"a": "3", "b": "", "c": "4"} {
			if got, err := t.Get(table, []byte(key)); err != nil || string(got) != want || (got == nil) != (want == "") {
				s.Errorf("%s is %q, %v; want %q", key, got, err, want)
			}
		}
		var scanned []string
		for e, err := range t.Scan(kv.Range{Table: table}) {
			if err != nil {
				return err
			}
			scanned = append(scanned, string(e.Key)+string(e.Value))
		}
		if want := []string{"a1", "b2"}; !slices.Equal(scanned, want) {
			s.Errorf("the scan has %v, want %v", scanned, want)
		}
		t.Put(table, []byte("c"), []byte("5"))
		return nil
	})
	s.wantValue("a", "3")
	s.wantValue("c", "5")
	if got := s.scanKeys(kv.Range{Table: table}); !slices.Equal(got, []string{"a", "c"}) {
		s.Errorf("the keys are %v, want a and c", got)
	}
}

func testEmptyIsNotNone(s *suite) {
	s.update(func(t kv.Tx) error {
		t.Put(table, []byte("nil"), nil)
		t.Put(table, []byte("empty"), []byte{})
		return nil
	})
	s.wantValue("nil", "")
	s.wantValue("empty", "")
	if _, found := s.get("none"); found {
		s.Error("the key \"none\", which has no value, is found, want it absent")
	}
	s.update(func(t kv.Tx) error {
		t.Delete(table, []byte("nil"))
		t.Delete(table, []byte("none"))
		t.Delete(other, []byte("none"))
		return nil
	})
	if _, found := s.get("nil"); found {
		s.Error("the key \"nil\" is found after its removal, want it absent")
	}
}

// testScan scans one of several tables in both directions: keys come in byte order,
// from the lower bound, included, to the upper bound, excluded.
func testScan(s *suite) {
	keys := []string{"\x00", "a", "a\x00", "a\x00b", "a\xff", "b", "\xff", "\xff\xff"}
	s.update(func(t kv.Tx) error {
		for _, key := range keys {
			t.Put(table, []byte(key), []byte(key))
		}
		t.Put(other, []byte("a\x00a"), nil)
		t.Put("tabl", []byte("e"), nil)
		t.Put("tablea", []byte("a"), nil)
		return nil
	})
	bounds := append([]string{"", "0", "a\x00a", "zz", "\xff\xff\xff"}, keys...)
	for _, from := range bounds {
		for _, to := range append(bounds, "END") {
			r := kv.Range{Table: table, From: []byte(from), To: []byte(to)}
			if to == "END" {
				r.To = nil
			}
			want := []string{}
			for _, key := range keys {
				if key >= from && (r.To == nil || key < to) {
					want = append(want, key)
				}
			}
			if diff := cmp.Diff(want, s.scanKeys(r)); diff != "" {
				s.Errorf("from %q to %q (-want +got):\n%s", from, to, diff)
			}
			slices.Reverse(want)
			r.Reverse = true
			if diff := cmp.Diff(want, s.scanKeys(r)); diff != "" {
				s.Errorf("from %q to %q, reverse (-want +got):\n%s", from, to, diff)
			}
			if r.Limit = 2; len(want) > r.Limit {
				want = want[:r.Limit]
			}
			if diff := cmp.Diff(want, s.scanKeys(r)); diff != "" {
				s.Errorf("two from %q to %q, reverse (-want +got):\n%s", from, to, diff)
			}
		}
	}
	for _, prefix := range bounds {
		want := slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return !strings.HasPrefix(key, prefix) })
		if diff := cmp.Diff(want, s.scanKeys(kv.PrefixRange(table, []byte(prefix)))); diff != "" {
			s.Errorf("prefix %q (-want +got):\n%s", prefix, diff)
		}
	}
}

// testScanMany scans more keys than a backend reads in one request: in one scan, and in
// pages.
func testScanMany(s *suite) {
	const many, page = 700, 130
	var want []string
	for i := range many {
		want = append(want, fmt.Sprintf("k%03d", i))
	}
	s.update(func(t kv.Tx) error {
		for _, key := range want {
			t.Put(table, []byte(key), nil)
		}
		return nil
	})
	for _, reverse := range []bool{false, true} {
		r := kv.Range{Table: table, Reverse: reverse}
		if diff := cmp.Diff(want, s.scanKeys(r)); diff != "" {
			s.Errorf("reverse %v (-want +got):\n%s", reverse, diff)
		}
		var got []string
		for r.Limit = page; len(got) < many; r = r.RestAfter([]byte(got[len(got)-1])) {
			keys := s.scanKeys(r)
			if len(keys) != min(page, many-len(got)) {
				s.Fatalf("reverse %v: a page of %d keys after %d of %d keys, want a full page or the rest", reverse, len(keys), len(got), many)
			}
			got = append(got, keys...)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			s.Errorf("pages, reverse %v (-want +got):\n%s", reverse, diff)
		}
		slices.Reverse(want)
	}
}

// testScanRanges scans ranges of two tables and of a table without writes, and stops
// early.
func testScanRanges(s *suite) {
	s.update(func(t kv.Tx) error {
		for _, key := range []string{"a", "b", "c"} {
			t.Put(table, []byte(key), nil)
			t.Put(other, []byte(key), nil)
		}
		return nil
	})
	must.Succeed(s, s.View(s.Context(), func(t kv.Tx) error {
		var got []string
		ranges := []kv.Range{{Table: other, From: []byte("b")}, {Table: "never"}, {Table: table, Reverse: true, Limit: 2}, {Table: other}}
		for e, err := range t.Scan(ranges...) {
			if err != nil {
				return err
			}
			if got = append(got, string(e.Table)+" "+string(e.Key)); len(got) == 5 {
				break
			}
		}
		if want := []string{"other b", "other c", "table c", "table b", "other a"}; !slices.Equal(got, want) {
			s.Errorf("the scan has %v, want %v", got, want)
		}
		return nil
	}))
}

// testIDsGrow checks that each value carries the id of its transaction, and that ids
// grow.
func testIDsGrow(s *suite) {
	s.put("first", "", "with first", "")
	s.put("second", "")
	s.reopen(func() {})
	s.put("third", "")
	s.put("first", "again")
	ids := map[string]uint64{}
	must.Succeed(s, s.View(s.Context(), func(t kv.Tx) error {
		for e, err := range t.Scan(kv.Range{Table: table}) {
			if err != nil {
				return err
			}
			ids[string(e.Key)] = e.Tx
		}
		return nil
	}))
	if order := []uint64{0, ids["with first"], ids["second"], ids["third"], ids["first"]}; !slices.IsSorted(order) || len(slices.Compact(order)) != 5 {
		s.Errorf("the ids of transactions are %v, want them to grow in the order of the commits", ids)
	}
}

func testKeptOverReopen(s *suite) {
	s.put("a", "1")
	s.reopen(func() {})
	s.wantValue("a", "1")
}

func testViewWritesNothing(s *suite) {
	for what, write := range map[string]func(t kv.Tx){
		"put":    func(t kv.Tx) { t.Put(table, []byte("a"), nil) },
		"delete": func(t kv.Tx) { t.Delete(table, []byte("a")) },
		"add":    func(t kv.Tx) { t.AddToCounters(table, []byte("a"), 1) },
	} {
		if err := s.View(s.Context(), func(t kv.Tx) error { write(t); return nil }); !errors.Is(err, kv.ErrViewWrites) {
			s.Errorf("%s in a view: %v, want ErrViewWrites", what, err)
		}
	}
	if _, found := s.get("a"); found {
		s.Error("a write in a view has an effect, want none")
	}
}

// testViewIsOneMoment writes between two reads of a view. Both reads must see the same
// moment, or the view must run again.
func testViewIsOneMoment(s *suite) {
	s.put("a", "1", "b", "1")
	runs := 0
	err := s.View(s.Context(), func(t kv.Tx) error {
		runs++
		a, err := t.Get(table, []byte("a"))
		if err != nil {
			return err
		}
		first := string(a)
		if runs == 1 {
			s.put("a", "2", "b", "2")
		}
		b, err := t.Get(table, []byte("b"))
		if err != nil {
			return err
		}
		if first != string(b) && runs > 1 {
			s.Errorf("a is %s and b is %s, want the same", first, b)
		}
		if first != string(b) {
			return errors.New("the view read values of two different commits, so this run and its error must not count")
		}
		return nil
	})
	if err != nil {
		s.Error(err)
	}
}

// testDamage changes each byte of a value, and checks that only this value is lost.
func testDamage(s *suite) {
	s.put("a", "1", "b", "value", "c", "3")
	s.update(func(t kv.Tx) error { t.AddToCounters(other, []byte("n"), 1); return nil })
	const header = 8 // the checksum does not cover the transaction id
	for at := header; at < header+5+len("value"); at++ {
		s.put("b", "value")
		s.reopen(func() { s.Damage(s, table, []byte("b"), at) })
		var damaged *kv.DamagedError
		err := s.View(s.Context(), func(t kv.Tx) error { _, err := t.Get(table, []byte("b")); return err })
		if !errors.Is(err, store.ErrDamaged) || !errors.As(err, &damaged) || damaged.Table != table || string(damaged.Key) != "b" {
			s.Errorf("byte %d is damaged: get: %v, want a DamagedError for the key b", at, err)
		}
		s.wantValue("a", "1")
		var got []string
		err = s.View(s.Context(), func(t kv.Tx) error {
			got = nil
			for e, err := range t.Scan(kv.Range{Table: table}) {
				if errors.Is(err, store.ErrDamaged) {
					got = append(got, string(e.Key)+" damaged")
					continue
				}
				if err != nil {
					return err
				}
				got = append(got, string(e.Key))
			}
			return nil
		})
		if want := []string{"a", "b damaged", "c"}; err != nil || !slices.Equal(got, want) {
			s.Errorf("byte %d: scan %v, %v; want %v", at, got, err, want)
		}
	}
	s.put("b", "again")
	s.wantValue("b", "again")
	s.reopen(func() { s.Damage(s, table, []byte("b"), header) })
	s.update(func(t kv.Tx) error { t.Delete(table, []byte("b")); return nil })
	if _, found := s.get("b"); found {
		s.Error("a damaged value is found after its removal, want none")
	}
	s.reopen(func() { s.Damage(s, other, []byte("n"), header+7) })
	err := s.Update(s.Context(), func(t kv.Tx) error { t.AddToCounters(other, []byte("n"), 1); return nil })
	if !errors.Is(err, store.ErrDamaged) {
		s.Errorf("add to counters that are damaged: %v, want ErrDamaged", err)
	}
}
