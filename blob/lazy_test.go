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
)

// A shelf has one object, "k", and counts what is done with it.
type shelf struct {
	blob.Bucket
	opened, closed atomic.Int64
}

type book struct {
	*strings.Reader
	shelf *shelf
}

func (s *shelf) Open(_ context.Context, key string) (blob.Object, error) {
	if key != "k" {
		return nil, rowmill.ErrNotFound
	}
	s.opened.Add(1)
	return book{strings.NewReader("content"), s}, nil
}

func (b book) Info() blob.Info { return blob.Info{Key: "k", Size: b.Size()} }
func (b book) Close() error    { b.shelf.closed.Add(1); return nil }

func TestLazy(t *testing.T) {
	t.Parallel()
	s := &shelf{}
	l := blob.NewLazy(t.Context(), s, "k", 7)
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
	if _, err := blob.NewLazy(t.Context(), s, "none", 7).ReadAt(nil, 0); err == nil {
		t.Error("an object that is not there can be read")
	}
}
