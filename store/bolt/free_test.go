package bolt

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
)

// TestFreePagesAreNotWritten checks that a commit does not grow with what was
// removed from the file, and that versions which write the list of free pages read
// a file without.
func TestFreePagesAreNotWritten(t *testing.T) {
	t.Parallel()
	config := Config{Path: filepath.Join(t.TempDir(), "records.db"), Volatile: new(Volatile)}
	s, err := Open(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	const jobs = 400
	for i := range jobs {
		if err := create(t.Context(), s, i); err != nil {
			t.Fatal(err)
		}
	}
	before := commitBytes(t, s, "before")
	var removals sync.WaitGroup
	for i := range jobs {
		removals.Go(func() {
			if _, err := s.Cancel(t.Context(), fmt.Sprint("job-", i), time.Now(), nil); err != nil {
				t.Error(err)
			}
			if _, err := s.RemoveData(t.Context(), fmt.Sprint("job-", i), time.Now()); err != nil {
				t.Error(err)
			}
		})
	}
	removals.Wait()
	after := commitBytes(t, s, "after")
	const perPage = 8 // bytes of the list
	if list := int64(s.db.Stats().FreePageN * perPage); list < 20_000 || after-before > list/2 {
		t.Errorf("a commit takes %d bytes, before the removals %d; the list of free pages has %d", after, before, list)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	earlier, err := bbolt.Open(config.Path, 0o600, &bbolt.Options{FreelistType: bbolt.FreelistMapType})
	if err != nil {
		t.Fatal(err)
	}
	err = earlier.Update(func(tx *bbolt.Tx) error { return tx.Bucket(bucketValues).Put(present, present) })
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range inconsistencies(earlier) {
		t.Error(err)
	}
	if err := earlier.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Open(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := again.Get(t.Context(), fmt.Sprint("job-", jobs-1)); err != nil {
		t.Error(err)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
}

// commitBytes are the bytes of pages that a small write takes.
func commitBytes(t *testing.T, s *Store, name string) int64 {
	t.Helper()
	before := s.db.Stats()
	if _, err := s.PutValue(t.Context(), name, []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	stats := s.db.Stats()
	took := stats.Sub(&before)
	return took.TxStats.GetPageAlloc()
}

// create stores a job of 60 KB.
func create(ctx context.Context, s *Store, i int) error {
	_, _, err := s.Create(ctx, store.Record{
		Job: rowmill.Job{
			ID: fmt.Sprint("job-", i), Status: rowmill.StatusPending, RunType: rowmill.RunFull,
			Created: time.Now(), Sampling: map[string]any{},
		},
		Spec: rowmill.Spec{Account: "a", Inline: []string{strings.Repeat("x", 60<<10)}, Model: rowmill.Model{ID: "m"}},
	}, nil)
	return err
}

// inconsistencies are the inconsistencies of a file.
func inconsistencies(db *bbolt.DB) (found []error) {
	_ = db.View(func(tx *bbolt.Tx) error {
		for err := range tx.Check() {
			found = append(found, err)
		}
		return nil
	})
	return found
}
