package s3

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"testing"

	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/s3test"
)

// TestRequestsOfReaders counts the requests for different ways of reading.
func TestRequestsOfReaders(t *testing.T) {
	t.Parallel()
	const size = 16<<20 + 777
	p, b := through(t, s3test.Start(t), nil)
	content := random(size)
	for key, n := range map[string]int{"big": size, "small": 200_000} {
		must.Succeed(t, put(t.Context(), b, key, content[:n]))
	}
	for name, tt := range map[string]struct {
		key  string
		read func(o blob.Object) error
		most int // requests
	}{
		"a complete small object":     {"small", func(o blob.Object) error { return same(o, content[:200_000], 0, 200_000, 4096) }, 1},
		"a big object from its start": {"big", func(o blob.Object) error { return same(o, content, 0, size, 32<<10) }, 10},
		"a big object in one call":    {"big", func(o blob.Object) error { return same(o, content, 0, size, size) }, 10},
		"its end and one page": {"big", func(o blob.Object) error {
			return errors.Join(same(o, content, size-8, size, 8), same(o, content, size-50_000, size, 50_000), same(o, content, 5<<20, 5<<20+1000, 1000))
		}, 4}, // with Open; the end is in two blocks
		"four columns side by side": {"big", func(o blob.Object) error {
			var err error
			for at := 0; at < 4<<20; at += 64 << 10 {
				for column := range 4 {
					from := column*(4<<20) + at
					err = errors.Join(err, same(o, content, from, from+64<<10, 64<<10))
				}
			}
			return err
		}, 24},
	} {
		o := must.Get(b.Open(t.Context(), tt.key))(t)
		before := p.count("GetObject") - 1 // without the request of Open
		if err := tt.read(o); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if n := p.count("GetObject") - before; n > tt.most {
			t.Errorf("%s took %d requests, want at most %d", name, n, tt.most)
		}
		must.Succeed(t, o.Close())
	}
}

// same reads a range in pieces and compares it.
func same(o blob.Object, content []byte, from, to, piece int) error {
	got := make([]byte, piece)
	for at := from; at < to; at += piece {
		n := min(piece, to-at)
		if _, err := o.ReadAt(got[:n], int64(at)); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if !bytes.Equal(got[:n], content[at:at+n]) {
			return errors.New("other bytes than were written")
		}
	}
	return nil
}

// TestSmallCache reads at random positions of several objects concurrently, with
// a very small cache.
func TestSmallCache(t *testing.T) {
	t.Parallel()
	const size = 8*blockSize + 1
	_, b := through(t, s3test.Start(t), func(c *Config) { c.ReadCache = 2 * blockSize })
	content := random(size)
	must.Succeed(t, put(t.Context(), b, "k", content))
	var readers sync.WaitGroup
	for reader := range 4 {
		readers.Go(func() {
			o, err := b.Open(t.Context(), "k")
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = o.Close() }()
			r := rand.New(rand.NewPCG(1, uint64(reader)))
			for range 50 {
				from := r.IntN(size)
				if err := same(o, content, from, min(size, from+r.IntN(3*blockSize)), 1+r.IntN(blockSize)); err != nil {
					t.Errorf("reader %d at %d: %v", reader, from, err)
					return
				}
			}
		})
	}
	readers.Wait()
	if b.blocks.used.Len() != 0 || len(b.blocks.open) != 0 {
		t.Errorf("%d blocks of %d objects are left of closed objects", b.blocks.used.Len(), len(b.blocks.open))
	}
}

// TestCacheLimit checks that the cache stays within its limit.
func TestCacheLimit(t *testing.T) {
	t.Parallel()
	const limit = 10
	s := newBlockCache(limit*blockSize, 4*blockSize)
	b := &Bucket{blocks: s}
	var objects []*object
	for range 3 {
		o := &object{bucket: b, size: 100 * blockSize}
		objects = append(objects, o)
		s.addObject(o, make([]byte, blockSize))
	}
	for n := range int64(100) {
		for _, o := range objects {
			for _, k := range s.plan(o, s.open[o], n, 0) {
				k.finish(nil, nil)
			}
			s.evict()
			if held := s.used.Len(); held > limit {
				t.Fatalf("%d blocks are held, want at most %d", held, limit)
			}
		}
	}
}

// TestLostWhileRead continues to read objects that were replaced or deleted.
func TestLostWhileRead(t *testing.T) {
	t.Parallel()
	_, b := through(t, s3test.Start(t), nil)
	content := random(8 * blockSize)
	for name, change := range map[string]func() error{
		"replaced": func() error { return put(t.Context(), b, "k", content[1:]) },
		"deleted":  func() error { return b.Delete(t.Context(), "k") },
	} {
		must.Succeed(t, put(t.Context(), b, "k", content))
		o := must.Get(b.Open(t.Context(), "k"))(t)
		must.Succeed(t, change())
		if err := same(o, content, 0, blockSize, blockSize); err != nil {
			t.Errorf("%s: what Open read: %v", name, err)
		}
		if _, err := o.ReadAt(make([]byte, 10), 5*blockSize); !errors.Is(err, blob.ErrLost) {
			t.Errorf("%s: reading on: %v, want ErrLost", name, err)
		}
		must.Succeed(t, o.Close())
		if _, err := o.ReadAt(make([]byte, 10), 0); !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s: reading after Close: %v", name, err)
		}
		if err := o.Close(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s: a second Close: %v", name, err)
		}
	}
}
