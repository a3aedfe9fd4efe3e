package mem_test

import (
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store/kv"
	"github.com/rowmill/rowmill/store/kv/kvtest"
	"github.com/rowmill/rowmill/store/kv/mem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	t.Parallel()
	kvtest.Run(t, func(*testing.T) kvtest.Harness {
		var passed atomic.Int64
		begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		e := mem.New(func() time.Time { return begin.Add(time.Duration(passed.Load())) })
		return kvtest.Harness{
			Open:    func(testing.TB) kv.Backend { e = e.Reopen(); return e },
			Advance: func(d time.Duration) { passed.Add(int64(d)) },
			Damage:  func(_ testing.TB, table kv.Table, key []byte, at int) { e.DamageValue(table, key, at) },
		}
	})
}

// TestStates goes back to an earlier state, and again to a later one. A fork has tables and
// sessions of its own.
func TestStates(t *testing.T) {
	t.Parallel()
	e := mem.New(time.Now)
	put := func(e *mem.Backend, value string) {
		t.Helper()
		must.Succeed(t, e.Update(t.Context(), func(tx kv.Tx) error { tx.Put("table", []byte("key"), []byte(value)); return nil }))
	}
	want := func(e *mem.Backend, value string) {
		t.Helper()
		must.Succeed(t, e.View(t.Context(), func(tx kv.Tx) error {
			if found, err := tx.Get("table", []byte("key")); err != nil || string(found) != value {
				t.Errorf("the value is %q, %v, want %q", found, err, value)
			}
			return nil
		}))
	}
	session := must.Get(e.OpenSession(t.Context(), "node", time.Hour))(t)
	put(e, "1")
	one := e.Snapshot()
	put(e, "2")
	two, fork := e.Snapshot(), e.Fork()
	e.Restore(one)
	want(e, "1")
	put(e, "3")
	want(fork, "2")
	put(fork, "4")
	must.Succeed(t, fork.CloseSession(t.Context(), session))
	want(e, "3")
	e.Restore(two)
	want(e, "2")
	if !e.IsAlive(session) || fork.IsAlive(session) {
		t.Error("a fork shares its sessions")
	}
}
