package dir

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/rowmill/rowmill/internal/must"
)

// inSnapshot reads an object of a snapshot.
func inSnapshot(t testing.TB, s *Snapshot, key string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(s.Folder, "objects", key))
	if err != nil {
		t.Error(err)
	}
	return string(text)
}

// An object that is deleted after a snapshot began, but before the walk reaches
// it, must be in the snapshot and must disappear from the bucket at once.
func TestSnapshot_KeepsObjectsDeletedMeanwhile(t *testing.T) {
	t.Parallel()
	b := openBucket(t, Config{Root: t.TempDir(), NoSync: true})
	for _, key := range []string{"a", "b/c", "b/d/e", "f/g", "h", "i/typed"} {
		mustPut(t, b, key, []byte("old "+key))
	}
	mustPut(t, b, "source", []byte("new i/typed"))
	s := must.Get(b.Snapshot(t.Context(), func(string) error {
		err := errors.Join(b.Delete(t.Context(), "a"), b.DeletePrefix(t.Context(), "b/"), b.Copy(t.Context(), "source", "i/typed"))
		mustPut(t, b, "f/g", []byte("new f/g"))
		mustPut(t, b, "later", []byte("later"))
		for _, key := range []string{"a", "b/c", "b/d/e"} {
			if _, statErr := b.Stat(t.Context(), key); statErr == nil {
				t.Errorf("%s still exists", key)
			}
		}
		return err
	}))(t)
	for _, key := range []string{"a", "b/c", "b/d/e", "h"} {
		if got := inSnapshot(t, s, key); got != "old "+key {
			t.Errorf("%s is %q", key, got)
		}
	}
	for _, key := range []string{"f/g", "i/typed"} {
		if got := inSnapshot(t, s, key); got != "new "+key {
			t.Errorf("%s is %q", key, got)
		}
	}
	must.Succeed(t, b.DeletePrefix(t.Context(), "f/"))
	if got := inSnapshot(t, s, "f/g"); got != "new f/g" {
		t.Errorf("after the snapshot was made f/g in it is %q", got)
	}
	must.Succeed(t, s.Close())
	if _, err := os.Stat(s.Folder); !os.IsNotExist(err) {
		t.Errorf("the snapshot still exists: %v", err)
	}
}

// TestSnapshot_AmongWriters makes snapshots while objects are added, changed
// and deleted. Each snapshot must have every object that existed at its moment,
// with the text of that moment or a later text.
func TestSnapshot_AmongWriters(t *testing.T) {
	t.Parallel()
	b := openBucket(t, Config{Root: t.TempDir(), NoSync: true})
	stop := make(chan struct{})
	var mu sync.Mutex // held while an object and its entry in book change
	book := map[string]int{}
	written := 0
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(w)))
			for {
				select {
				case <-stop:
					return
				default:
				}
				folder := fmt.Sprintf("jobs/%d/", rng.IntN(20))
				key := fmt.Sprintf("%sparts/%d", folder, rng.IntN(5))
				mu.Lock()
				switch rng.IntN(4) {
				case 0:
					if err := b.DeletePrefix(t.Context(), folder); err != nil {
						t.Error(err)
					}
					for key := range book {
						if strings.HasPrefix(key, folder) {
							delete(book, key)
						}
					}
				case 1:
					if err := b.Delete(t.Context(), key); err != nil {
						t.Error(err)
					}
					delete(book, key)
				default:
					written++
					mustPut(t, b, key, []byte(strconv.Itoa(written)))
					book[key] = written
				}
				mu.Unlock()
			}
		})
	}
	for range 100 {
		then := map[string]int{}
		s := must.Get(b.Snapshot(t.Context(), func(string) error {
			mu.Lock()
			defer mu.Unlock()
			maps.Copy(then, book)
			return nil
		}))(t)
		for key, want := range then {
			if got, err := strconv.Atoi(inSnapshot(t, s, key)); err != nil || got < want {
				t.Errorf("%s is %d, was %d: %v", key, got, want, err)
			}
		}
		must.Succeed(t, s.Close())
	}
	close(stop)
	writers.Wait()
}

// The snapshot of a killed process must be removed by the next process.
func TestSnapshot_OfADeadProcess(t *testing.T) {
	t.Parallel()
	b := openBucket(t, Config{Root: t.TempDir(), NoSync: true})
	mustPut(t, b, "a", []byte("text"))
	s := must.Get(b.Snapshot(t.Context(), func(folder string) error {
		return os.WriteFile(filepath.Join(folder, "beside"), bytes.Repeat([]byte{1}, 10), 0o600)
	}))(t)
	kill(t, b)
	next := must.Get(Open(b.config))(t)
	defer next.Close()
	if _, err := os.Stat(s.Folder); !os.IsNotExist(err) {
		t.Errorf("the snapshot of a dead process still exists: %v", err)
	}
	if _, err := next.Stat(t.Context(), "a"); err != nil {
		t.Error(err)
	}
}
