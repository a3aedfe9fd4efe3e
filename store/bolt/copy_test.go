package bolt_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store/bolt"
	"github.com/rowmill/rowmill/store/storetest"
)

// TestCopy copies a store during writes. Each copy opens and has every record that was
// acknowledged before the copy started; a record implies all earlier records.
func TestCopy(t *testing.T) {
	t.Parallel()
	s := open(t, bolt.Config{Path: filepath.Join(t.TempDir(), "records.db")})
	var mu sync.Mutex
	acknowledged := 0
	stop := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			if _, _, err := s.Create(t.Context(), storetest.NewRecord(storetest.JobID(i), "a", "row"), nil); err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			acknowledged = i + 1
			mu.Unlock()
		}
	})
	for range 20 {
		mu.Lock()
		least := acknowledged
		mu.Unlock()
		path := filepath.Join(t.TempDir(), "copy.db")
		must.Succeed(t, s.Copy(t.Context(), path))
		if err := s.Copy(t.Context(), path); !errors.Is(err, os.ErrExist) {
			t.Fatalf("a copy over another: %v", err)
		}
		copied := open(t, bolt.Config{Path: path})
		found := 0
		for i := 0; ; i++ {
			if _, err := copied.Get(t.Context(), storetest.JobID(i)); errors.Is(err, rowmill.ErrNotFound) {
				found = i
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if _, err := copied.Get(t.Context(), storetest.JobID(found+1)); !errors.Is(err, rowmill.ErrNotFound) {
			t.Errorf("record %d is not in the copy, and the next one is: %v", found, err)
		}
		if found < least {
			t.Errorf("the copy has %d records, %d were acknowledged", found, least)
		}
	}
	close(stop)
	writer.Wait()

	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	path := filepath.Join(t.TempDir(), "none.db")
	if err := s.Copy(cancelled, path); !errors.Is(err, context.Canceled) {
		t.Errorf("a copy that is broken off: %v", err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("it left a file: %v", err)
	}
}
