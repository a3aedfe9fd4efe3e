package bolt_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.etcd.io/bbolt"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/bolt"
	"github.com/rowmill/rowmill/store/storetest"
)

func TestConfigRefuses(t *testing.T) {
	t.Parallel()
	for field, config := range map[string]bolt.Config{
		"Path":        {},
		"LockTimeout": {Path: "x", LockTimeout: -1},
		"MaxBatch":    {Path: "x", MaxBatch: -1},
		"MaxBytes":    {Path: "x", MaxBytes: -1},
		"MapBytes":    {Path: "x", MapBytes: -1},
		"PingFresh":   {Path: "x", PingFresh: -1},
	} {
		if _, err := bolt.Open(t.Context(), config); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func TestOpenRefusesWhatIsNoRecordFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	garbage := filepath.Join(dir, "garbage")
	if err := os.WriteFile(garbage, bytes.Repeat([]byte("no record file\n"), 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	future := filepath.Join(dir, "future")
	if s, err := bolt.Open(t.Context(), bolt.Config{Path: future}); err != nil {
		t.Fatal(err)
	} else if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := bbolt.Open(future, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("meta")).Put([]byte("schema"), binary.BigEndian.AppendUint64(nil, 99))
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		garbage:                        "not a record file",
		future:                         "schema version 99",
		dir:                            "is a directory",
		filepath.Join(garbage, "file"): "is not a folder",
	} {
		_, err := bolt.Open(t.Context(), bolt.Config{Path: path})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

// TestOpenMakesWhatAnOlderFileLacks opens a file from before the ledger.
func TestOpenMakesWhatAnOlderFileLacks(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "records.db")
	s := open(t, bolt.Config{Path: path})
	if _, _, err := s.Create(t.Context(), storetest.Record("job-old", "a", "row"), nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		return errors.Join(tx.DeleteBucket([]byte("usage")), tx.DeleteBucket([]byte("reserved")))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	s = open(t, bolt.Config{Path: path})
	session, err := s.OpenSession(t.Context(), "n", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	claimed, err := s.Claim(t.Context(), "job-old", session, store.Adopter{})
	if err != nil {
		t.Fatal(err)
	}
	f := store.Fence{JobID: "job-old", Session: session, Epoch: claimed.Epoch}
	if _, err := s.Reserve(t.Context(), f, 1, nil); err != nil {
		t.Errorf("reserve: %v", err)
	}
	totals := store.Totals{Rows: 1, InputTokens: 20}
	if err := s.CommitParts(t.Context(), f, []store.Part{{Key: "p", Rows: 1, Totals: totals}}, totals); err != nil {
		t.Errorf("commit parts: %v", err)
	}
	usage, err := s.Usage(t.Context(), "a", time.Now().AddDate(0, 0, -1), time.Now())
	if err != nil || len(usage) != 1 || usage[0].Cost != rowmill.MoneyOf(1e-6) {
		t.Errorf("usage %+v, %v", usage, err)
	}
}

// TestUsageOfAnOlderFile opens a file in which a version has counted that knew no
// keys, and leaves what that counted under none.
func TestUsageOfAnOlderFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "records.db")
	s := open(t, bolt.Config{Path: path})
	if _, _, err := s.Create(t.Context(), storetest.Record("job-1", "a", "row"), nil); err != nil {
		t.Fatal(err)
	}
	of := func(n int64) store.Totals { return store.Totals{Rows: n, InputTokens: 20 * n, OutputTokens: n} }
	var done int64
	commit := func(key string, n int64) {
		t.Helper()
		session, err := s.OpenSession(t.Context(), "n", time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		claimed, err := s.Claim(t.Context(), "job-1", session, store.Adopter{})
		if err != nil {
			t.Fatal(err)
		}
		done += n
		f := store.Fence{JobID: "job-1", Session: session, Epoch: claimed.Epoch}
		if err := s.CommitParts(t.Context(), f, []store.Part{{Key: key, Rows: n, Totals: of(n)}}, of(done)); err != nil {
			t.Fatal(err)
		}
	}
	commit("before", 2)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte("keyusage")) })
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	s = open(t, bolt.Config{Path: path})
	commit("after", 3)
	storetest.WantKeys(t, s, "a", map[string]store.Totals{"": of(2), storetest.KeyID: of(3)})
}

// TestProgressLeavesSpecAlone measures what a progress commit writes.
func TestProgressLeavesSpecAlone(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "records.db")
	s := open(t, bolt.Config{Path: path})
	system := strings.Repeat("s", 1<<20)
	rec := storetest.Record("job-big", "a", strings.Repeat("x", 64<<10))
	rec.Job.System, rec.Spec.System = &system, system
	if _, _, err := s.Create(t.Context(), rec, nil); err != nil {
		t.Fatal(err)
	}
	session, err := s.OpenSession(t.Context(), "n", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	claimed, err := s.Claim(t.Context(), "job-big", session, store.Adopter{})
	if err != nil {
		t.Fatal(err)
	}
	f := store.Fence{JobID: "job-big", Session: session, Epoch: claimed.Epoch}
	before := s.PagesWritten()
	const commits = 20
	for i := range commits {
		n, one := int64(i+1), store.Totals{Rows: 1, InputTokens: 100}
		if err := s.CommitParts(t.Context(), f, []store.Part{{Key: fmt.Sprint(i), Rows: 1, Totals: one}}, store.Totals{Rows: n}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Update(t.Context(), f, func(r *store.Record) error { r.Job.Message = fmt.Sprint(i); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	// Meta, freelist, root and a leaf for each of the seven buckets: some eleven
	// pages of 4 KiB. The prompt alone would be 256.
	if each := float64(s.PagesWritten()-before) / (2 * commits); each > 20 {
		t.Errorf("a write of progress puts %.1f pages", each)
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	s := open(t, bolt.Config{Path: filepath.Join(t.TempDir(), "records.db"), Metrics: reg})
	if err := s.PutKey(t.Context(), store.Key{ID: "k"}); err != nil {
		t.Fatal(err)
	}
	n, err := testutil.GatherAndCount(reg, "rowmill_store_commit_seconds", "rowmill_store_commit_writes")
	if err != nil || n != 2 {
		t.Errorf("%d metrics, %v", n, err)
	}
}
