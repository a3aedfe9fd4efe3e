package kvtest

import (
	"errors"
	"fmt"
	"time"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store/kv"
)

// testConflicts makes a change between the reads and the commit of a transaction. The
// transaction must run again if the change concerns a key or a session that it has read,
// and only then.
func testConflicts(s *suite) {
	if s.Serial {
		s.Skip("transactions run one after the other")
	}
	session := must.Get(s.OpenSession(s.Context(), "node", time.Hour))(s)
	get := func(key string) func(kv.Tx) error {
		return func(t kv.Tx) error { _, err := t.Get(table, []byte(key)); return err }
	}
	absent := func(t kv.Tx) error { _, err := t.IsAbsent(table, []byte("none")); return err }
	scan := func(t kv.Tx) error {
		for _, err := range t.Scan(kv.Range{Table: table}) {
			if err != nil {
				return err
			}
		}
		return nil
	}
	fails := func(t kv.Tx) error {
		raw, err := t.Get(table, []byte("a"))
		first := string(raw)
		if err == nil {
			raw, err = t.Get(table, []byte("b"))
		}
		if err == nil && first == string(raw) {
			err = errors.New("the transaction's own error")
		}
		return err
	}
	written := false
	wanted := func(t kv.Tx) error {
		t.Prefetch(table, []byte("a"))
		if err := scan(t); err != nil {
			return err
		}
		if !written {
			written = true
			s.put("a", "2")
		}
		return get("a")(t)
	}
	put := func(key string) func() { return func() { s.put(key, "2") } }
	for _, tt := range []struct {
		name      string
		read      func(kv.Tx) error
		meanwhile func()
		runs      int
	}{
		{"nothing happens", get("a"), func() {}, 1},
		{"a key that was read is written", get("a"), put("a"), 2},
		{"it is written with the value that it has", get("a"), func() { s.put("a", "1") }, 2},
		{"it is removed", get("a"), func() {
			s.update(func(t kv.Tx) error { t.Delete(table, []byte("a")); return nil })
		}, 2},
		{"it is removed, and comes back", get("a"), func() {
			s.update(func(t kv.Tx) error { t.Delete(table, []byte("a")); return nil })
			s.put("a", "1")
		}, 2},
		{"a key that had no value gets one", get("none"), put("none"), 2},
		{"a key that should have no value gets one", absent, put("none"), 2},
		{"another key is written", get("a"), put("b"), 1},
		{"a key that was scanned is written", scan, put("a"), 1},
		{"a key of Want before a scan is written after the scan", wanted, func() {}, 2},
		{"a transaction fails because of a value that has changed since", fails, put("b"), 2},
		{"a session that lived is closed", func(t kv.Tx) error { _, err := t.AreAlive(session); return err }, func() {
			must.Succeed(s, s.CloseSession(s.Context(), session))
		}, 2},
	} {
		s.update(func(t kv.Tx) error {
			t.Put(table, []byte("a"), []byte("1"))
			t.Put(table, []byte("b"), []byte("1"))
			t.Delete(table, []byte("none"))
			return nil
		})
		runs := 0
		err := s.Update(s.Context(), func(t kv.Tx) error {
			runs++
			err := tt.read(t)
			if runs == 1 {
				tt.meanwhile()
			}
			t.Put(other, []byte("runs"), fmt.Append(nil, runs))
			return err
		})
		if runs != tt.runs || err != nil {
			s.Errorf("%s: %d runs, %v; want %d", tt.name, runs, err, tt.runs)
		}
	}
}
