package bolt_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.etcd.io/bbolt"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/bolt"
	"github.com/rowmill/rowmill/store/kv"
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

func TestOpenRefusesOtherFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	garbage := filepath.Join(dir, "garbage")
	must.Succeed(t, os.WriteFile(garbage, bytes.Repeat([]byte("no record file\n"), 4096), 0o600))
	number := func(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }
	form := file(t, dir, "form", func(tx *bbolt.Tx) error { return tx.Bucket([]byte("engine")).Put([]byte("form"), number(99)) })
	before := file(t, dir, "before", func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte("engine")) })
	layout := file(t, dir, "layout", func(tx *bbolt.Tx) error {
		key := []byte("layout")
		return tx.Bucket([]byte("meta")).Put(key, kv.Seal("meta", key, 1, number(99)))
	})
	for path, want := range map[string]string{
		garbage:                        "not a record file",
		form:                           "it has format 99",
		before:                         "move the file away to start without records",
		layout:                         "have layout 99",
		dir:                            "is a directory",
		filepath.Join(garbage, "file"): "is not a folder",
	} {
		_, err := bolt.Open(t.Context(), bolt.Config{Path: path})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

// file creates a record file and changes it.
func file(t *testing.T, dir, name string, change func(*bbolt.Tx) error) (path string) {
	t.Helper()
	path = filepath.Join(dir, name)
	s := must.Get(bolt.Open(t.Context(), bolt.Config{Path: path}))(t)
	must.Succeed(t, s.Close())
	db := must.Get(bbolt.Open(path, 0o600, nil))(t)
	must.Succeed(t, errors.Join(db.Update(change), db.Close()))
	return path
}

// TestUsageOfAnOlderFile opens a file of a version that did not count usage by key. The
// old usage must stay without a key.
func TestUsageOfAnOlderFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "records.db")
	s := open(t, bolt.Config{Path: path})
	if _, _, err := s.Create(t.Context(), storetest.NewRecord("job-1", "a", "row"), nil); err != nil {
		t.Fatal(err)
	}
	of := func(n int64) store.RowTotals { return store.RowTotals{Rows: n, InputTokens: 20 * n, OutputTokens: n} }
	var done int64
	commit := func(key string, n int64) {
		t.Helper()
		session := must.Get(s.OpenSession(t.Context(), "n", time.Hour))(t)
		claimed := must.Get(s.Claim(t.Context(), "job-1", session, store.Claim{}))(t)
		done += n
		f := store.Fence{JobID: "job-1", Session: session, Epoch: claimed.Epoch}
		must.Succeed(t, s.CommitParts(t.Context(), f, []store.Part{{Key: key, Rows: n, Totals: of(n)}}))
	}
	commit("before", 2)
	must.Succeed(t, s.Close())
	db, err := bbolt.Open(path, 0o600, nil)
	must.Succeed(t, err)
	err = db.Update(func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte("keyusage")) })
	must.Succeed(t, errors.Join(err, db.Close()))
	s = open(t, bolt.Config{Path: path})
	commit("after", 3)
	storetest.WantKeys(t, s, "a", map[string]store.RowTotals{"": of(2), storetest.KeyID: of(3)})
}

// TestFlippedBitIsDetected flips one bit of a stored prompt. No read may return the
// wrong text.
func TestFlippedBitIsDetected(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "records.db")
	s := open(t, bolt.Config{Path: path})
	for _, id := range []string{"job-1", "job-2"} {
		if _, _, err := s.Create(t.Context(), storetest.NewRecord(id, "a", "Pay 1000 dollars for "+id), nil); err != nil {
			t.Fatal(err)
		}
	}
	must.Succeed(t, s.Close())
	text := must.Get(os.ReadFile(path))(t)
	wrong := bytes.ReplaceAll(text, []byte("Pay 1000 dollars for job-1"), []byte("Pay 9000 dollars for job-1"))
	if bytes.Equal(text, wrong) {
		t.Fatal("the prompt is not in the file")
	}
	must.Succeed(t, os.WriteFile(path, wrong, 0o600))
	s = open(t, bolt.Config{Path: path})
	session := must.Get(s.OpenSession(t.Context(), "n", time.Hour))(t)
	if rec, err := s.Get(t.Context(), "job-1"); !errors.Is(err, store.ErrDamaged) {
		t.Errorf("get: %v, %v, want ErrDamaged", rec.Spec.Inline, err)
	}
	if _, err := s.Claim(t.Context(), "job-1", session, store.Claim{}); !errors.Is(err, store.ErrDamaged) {
		t.Errorf("claim: %v, want ErrDamaged", err)
	}
	if rec, err := s.Get(t.Context(), "job-1"); err != nil || rec.Job.Status != rowmill.StatusFailed || rec.Spec.Inline != nil {
		t.Errorf("after the claim: %s with %v, %v; want a failed job without its prompt", rec.Job.Status, rec.Spec.Inline, err)
	}
	if rec, err := s.Claim(t.Context(), "job-2", session, store.Claim{}); err != nil || rec.Spec.Inline[0] != "Pay 1000 dollars for job-2" {
		t.Errorf("the other job: %v, %v", rec.Spec.Inline, err)
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	s := open(t, bolt.Config{Path: filepath.Join(t.TempDir(), "records.db"), Metrics: reg})
	must.Succeed(t, s.PutKey(t.Context(), store.APIKey{ID: "k"}))
	n, err := testutil.GatherAndCount(reg, "rowmill_store_commit_seconds", "rowmill_store_commit_writes")
	if err != nil || n != 2 {
		t.Errorf("%d metrics, %v", n, err)
	}
}

// TestSalvage salvages a file with a damaged page, also after a salvage that was killed
// before its last step. It does not change a file that can be opened.
func TestSalvage(t *testing.T) {
	t.Parallel()
	config := bolt.Config{Path: filepath.Join(t.TempDir(), "records.db")}
	s := open(t, config)
	for i := range 50 {
		if _, _, err := s.Create(t.Context(), storetest.NewRecord(storetest.JobID(i), "a", "row"), nil); err != nil {
			t.Fatal(err)
		}
	}
	must.Succeed(t, s.Close())
	if _, _, err := bolt.Salvage(t.Context(), config); !errors.Is(err, bolt.ErrNotDamaged) {
		t.Fatalf("a whole file: %v", err)
	}
	whole, err := os.ReadFile(config.Path)
	must.Succeed(t, err)
	broken := bytes.Clone(whole)
	for page := 2 * 4096; page < len(broken); page += 4096 { // free pages too: it is not known which are in use
		if content := broken[page : page+4096]; bytes.Contains(content, []byte(storetest.JobID(25))) {
			clear(content)
		}
	}
	for _, step := range []func() error{
		func() error { return os.WriteFile(config.Path, broken, 0o600) },
		func() error { return os.WriteFile(config.Path+".salvaged", whole[:5000], 0o600) },
		func() error { return os.Link(config.Path, config.Path+".damaged") },
	} {
		must.Succeed(t, step())
	}
	losses, _, err := bolt.Salvage(t.Context(), config)
	if err != nil || len(losses) == 0 {
		t.Fatalf("losses %v, %v", losses, err)
	}
	if kept, err := os.ReadFile(config.Path + ".damaged"); err != nil || !bytes.Equal(kept, broken) {
		t.Errorf("the damaged file was not kept: %v", err)
	}
	s = open(t, config)
	if jobs, _, err := s.List(t.Context(), "a", 100, ""); err != nil || len(jobs) == 0 {
		t.Errorf("%d jobs, %v", len(jobs), err)
	}
	must.Succeed(t, errors.Join(s.Close(), os.WriteFile(config.Path, broken, 0o600)))
	if _, _, err := bolt.Salvage(t.Context(), config); err == nil || !strings.Contains(err.Error(), "move it away") {
		t.Errorf("a second damaged file: %v", err)
	}
}
