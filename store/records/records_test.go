package records_test

import (
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/kv"
	"github.com/rowmill/rowmill/store/kv/bolt"
	"github.com/rowmill/rowmill/store/kv/mem"
	"github.com/rowmill/rowmill/store/records"
	"github.com/rowmill/rowmill/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open returns a store over a backend.
func open(t testing.TB, backend kv.Backend) *records.Store {
	t.Helper()
	s := must.Get(records.Open(t.Context(), backend, nil))(t)
	return s
}

// backends are the backends on which the conformance suite of the store runs.
var backends = map[string]func(t *testing.T, clock func() time.Time) (open func(t testing.TB) kv.Backend){
	"mem": func(_ *testing.T, clock func() time.Time) func(t testing.TB) kv.Backend {
		e := mem.New(clock)
		return func(testing.TB) kv.Backend { e = e.Reopen(); return e }
	},
	"bolt": func(t *testing.T, clock func() time.Time) func(t testing.TB) kv.Backend {
		config := bolt.Config{Path: filepath.Join(t.TempDir(), "data", "records.db"), Clock: clock}
		return func(t testing.TB) kv.Backend {
			t.Helper()
			e := must.Get(bolt.Open(t.Context(), config))(t)
			return e
		}
	},
}

func TestConformance(t *testing.T) {
	t.Parallel()
	for name, backend := range backends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, func(t *testing.T) storetest.Harness {
				var passed atomic.Int64
				begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
				now := func() time.Time { return begin.Add(time.Duration(passed.Load())) }
				openBackend := backend(t, now)
				return storetest.Harness{
					Open:    func(t testing.TB) store.Store { return open(t, openBackend(t)) },
					Advance: func(d time.Duration) { passed.Add(int64(d)) },
					Now:     now,
					Edit: func(t testing.TB, s store.Store, edit func(kind, id string, doc []byte) []byte) {
						t.Helper()
						must.Succeed(t, s.(*records.Store).EditDocuments(t.Context(), edit))
					},
				}
			})
		})
	}
}

// TestMoveCoversEveryTable checks that every table holds data after storetest.FillStore,
// and the same number of keys after a move. A new table that the fixture or the move
// lacks fails this test.
func TestMoveCoversEveryTable(t *testing.T) {
	t.Parallel()
	from, to := open(t, mem.New(time.Now)), open(t, mem.New(time.Now))
	storetest.FillStore(t, from, time.Now())
	var entries []store.ExportEntry
	must.Succeed(t, from.Export(t.Context(), func(e store.ExportEntry) error { entries = append(entries, e); return nil }))
	must.Succeed(t, to.Import(t.Context(), entries))
	before, after := from.Counts(t), to.Counts(t)
	for name, n := range before {
		if n == 0 {
			t.Errorf("table %s is empty: let storetest.FillStore create an entry in it", name)
		}
	}
	// Jobs that lost their owners wait, and all accounts keep their turn.
	before["waiting"] += before["owned"]
	before["owned"], before["turns"], before["granted"] = 0, 0, 0
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("keys in tables (-before +after):\n%s", diff)
	}
}
