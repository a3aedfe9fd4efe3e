package bolt_test

import (
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	"go.uber.org/goleak"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/wait"
	"github.com/rowmill/rowmill/store/kv"
	"github.com/rowmill/rowmill/store/kv/bolt"
	"github.com/rowmill/rowmill/store/kv/kvtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t testing.TB, config bolt.Config) *bolt.Backend {
	t.Helper()
	e := must.Get(bolt.Open(t.Context(), config))(t)
	return e
}

func TestConformance(t *testing.T) {
	t.Parallel()
	kvtest.Run(t, func(t *testing.T) kvtest.Harness {
		var passed atomic.Int64
		begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		config := bolt.Config{
			Path:  filepath.Join(t.TempDir(), "records.db"),
			Clock: func() time.Time { return begin.Add(time.Duration(passed.Load())) },
		}
		return kvtest.Harness{
			Serial:  true,
			Open:    func(t testing.TB) kv.Backend { return open(t, config) },
			Advance: func(d time.Duration) { passed.Add(int64(d)) },
			Damage: func(t testing.TB, table kv.Table, key []byte, at int) {
				t.Helper()
				edit(t, config.Path, func(btx *bbolt.Tx) error {
					bucket := btx.Bucket([]byte(table))
					stored := append([]byte(nil), bucket.Get(key)...)
					stored[at] ^= 1
					return bucket.Put(key, stored)
				})
			},
		}
	})
}

// A node whose record file was deleted or replaced takes no writes, since they would be gone
// with the process. It takes them again once the file is back.
func TestTheFileMustBePresent(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "records.db")
	e := open(t, bolt.Config{Path: path})
	defer e.Close()
	write := func() error {
		return e.Update(t.Context(), func(tx kv.Tx) error {
			tx.Put("t", []byte("k"), []byte("v"))
			return nil
		})
	}
	refused := func(what string) {
		t.Helper()
		wait.For(t, "writes are refused with the file "+what, func() bool { return errors.Is(write(), rowmill.ErrUnavailable) })
		if err := e.Ping(t.Context()); !errors.Is(err, rowmill.ErrUnavailable) {
			t.Errorf("ping with the file %s: %v", what, err)
		}
	}
	check := func(err error) {
		t.Helper()
		must.Succeed(t, err)
	}
	check(write())
	check(os.Rename(path, path+".away"))
	refused("away")
	check(os.WriteFile(path, nil, 0o600))
	refused("replaced")
	check(os.Rename(path+".away", path))
	check(write())
	check(os.Remove(path))
	refused("deleted")
}

// edit changes the file while no backend has it open.
func edit(t testing.TB, path string, change func(*bbolt.Tx) error) {
	t.Helper()
	db := must.Get(bbolt.Open(path, 0o600, nil))(t)
	must.Succeed(t, db.Update(change))
	must.Succeed(t, db.Close())
}
