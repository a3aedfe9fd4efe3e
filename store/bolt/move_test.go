package bolt_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/bolt"
	"github.com/rowmill/rowmill/store/storetest"
)

// embedded is a fresh file.
func embedded(t *testing.T) storetest.Harness {
	path := filepath.Join(t.TempDir(), "records.db")
	return storetest.Harness{
		Open: func(t testing.TB) store.Store { return open(t, bolt.Config{Path: path}) },
		Now:  time.Now,
	}
}

func TestMove(t *testing.T) {
	t.Parallel()
	storetest.RunMove(t, embedded, embedded)
}

// Each bucket holds something of what storetest fills a store with, and as much of
// it after a move: a bucket that is new, and that is forgotten here or there, fails.
func TestMoveForgetsNoBucket(t *testing.T) {
	t.Parallel()
	from := open(t, bolt.Config{Path: filepath.Join(t.TempDir(), "a.db")})
	to := open(t, bolt.Config{Path: filepath.Join(t.TempDir(), "b.db")})
	storetest.Everything(t, from, time.Now())
	var entries []store.Entry
	if err := from.Export(t.Context(), func(e store.Entry) error { entries = append(entries, e); return nil }); err != nil {
		t.Fatal(err)
	}
	if err := to.Import(t.Context(), entries); err != nil {
		t.Fatal(err)
	}
	before, after := from.Counts(t), to.Counts(t)
	for name, n := range before {
		if n == 0 {
			t.Errorf("bucket %s is empty: have storetest.Everything make something of it", name)
		}
	}
	// Those that have lost their owners wait, and all accounts have their turn.
	before["waiting"] += before["owned"]
	before["owned"], before["turns"] = 0, 0
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("keys in buckets (-before +after):\n%s", diff)
	}
}
