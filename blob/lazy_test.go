package blob_test

import (
	"context"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/internal/must"
)

// countingBucket has one object, "k", and counts opens and closes.
type countingBucket struct {
	blob.Bucket
	opened, closed atomic.Int64
}

type countedObject struct {
	*strings.Reader
	countingBucket *countingBucket
}

func (s *countingBucket) Open(_ context.Context, key string) (blob.Object, error) {
	if key != "k" {
		return nil, rowmill.ErrNotFound
	}
	s.opened.Add(1)
	return countedObject{strings.NewReader("content"), s}, nil
}

func (b countedObject) Info() blob.ObjectInfo { return blob.ObjectInfo{Key: "k", Size: b.Size()} }
func (b countedObject) Close() error          { b.countingBucket.closed.Add(1); return nil }

func TestLazy(t *testing.T) {
	t.Parallel()
	s := &countingBucket{}
	l := blob.NewLazyObjects(t.Context(), s, 1).Object("k", 7)
	if l.Close(); l.Size() != 7 || s.opened.Load() != 0 {
		t.Fatalf("size %d, opened %d times before it is read", l.Size(), s.opened.Load())
	}
	for round := range int64(2) {
		var readers sync.WaitGroup
		for range 10 {
			readers.Go(func() {
				if text, err := io.ReadAll(io.NewSectionReader(l, 3, 4)); err != nil || string(text) != "tent" {
					t.Errorf("read %q, %v", text, err)
				}
			})
		}
		readers.Wait()
		if l.Close(); s.opened.Load() != round+1 || s.closed.Load() != round+1 {
			t.Errorf("round %d: opened %d times and closed %d times", round, s.opened.Load(), s.closed.Load())
		}
	}
	if _, err := blob.NewLazyObjects(t.Context(), s, 1).Object("none", 7).ReadAt(nil, 0); err == nil {
		t.Error("an object that is not there can be read")
	}
}

// If many objects are read, also concurrently, only a few may be open.
func TestLazyObjectsOpenFew(t *testing.T) {
	t.Parallel()
	const limit = 3
	s := &countingBucket{}
	all := blob.NewLazyObjects(t.Context(), s, limit)
	objects := make([]*blob.LazyObject, 50)
	for i := range objects {
		objects[i] = all.Object("k", 7)
	}
	for _, l := range objects {
		must.Get(l.ReadAt(make([]byte, 7), 0))(t)
		if open := s.opened.Load() - s.closed.Load(); open > limit {
			t.Fatalf("%d are open, want %d at most", open, limit)
		}
	}
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for _, l := range objects {
				text := make([]byte, 7)
				if _, err := l.ReadAt(text, 0); err != nil || string(text) != "content" {
					t.Errorf("read %q, %v", text, err)
				}
			}
		})
	}
	readers.Wait()
	if open := s.opened.Load() - s.closed.Load(); open > limit {
		t.Errorf("%d are open after all were read, want %d at most", open, limit)
	}
	for _, l := range objects {
		l.Close()
	}
	if s.opened.Load() != s.closed.Load() {
		t.Errorf("%d were opened and %d closed", s.opened.Load(), s.closed.Load())
	}
}
