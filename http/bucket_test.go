package http

import (
	"context"
	"sync"
	"testing"

	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/dir"
	"github.com/rowmill/rowmill/internal/must"
)

// testBucket is the embedded bucket. It counts open writers, and a test can make it fail.
type testBucket struct {
	*dir.Bucket
	mu      sync.Mutex
	writing int   // writers that are neither committed nor aborted
	created int   // number of created objects
	fail    error // error of Create and of every Write
}

// oneKey signs URLs.
type oneKey struct{}

func (oneKey) Current() (string, []byte) { return "k", []byte("a secret that signs URLs in tests") }
func (oneKey) Find(id string) ([]byte, bool) {
	return []byte("a secret that signs URLs in tests"), id == "k"
}

func newTestBucket(t testing.TB) *testBucket {
	t.Helper()
	opened, err := dir.Open(dir.Config{Root: t.TempDir(), Keys: oneKey{}, NoSync: true})
	must.Succeed(t, err)
	t.Cleanup(func() {
		if err := opened.Close(); err != nil {
			t.Error(err)
		}
	})
	return &testBucket{Bucket: opened}
}

type testWriter struct {
	blob.Writer
	b    *testBucket
	over sync.Once
}

func (b *testBucket) Create(ctx context.Context, key, contentType string) (blob.Writer, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fail != nil {
		return nil, b.fail
	}
	writer, err := b.Bucket.Create(ctx, key, contentType)
	if err != nil {
		return nil, err
	}
	b.created++
	b.writing++
	return &testWriter{Writer: writer, b: b}, nil
}

func (w *testWriter) Write(p []byte) (int, error) {
	w.b.mu.Lock()
	defer w.b.mu.Unlock()
	if w.b.fail != nil {
		return 0, w.b.fail
	}
	return w.Writer.Write(p)
}

func (w *testWriter) end() {
	w.over.Do(func() {
		w.b.mu.Lock()
		defer w.b.mu.Unlock()
		w.b.writing--
	})
}

func (w *testWriter) Commit() (blob.ObjectInfo, error) {
	w.end()
	return w.Writer.Commit()
}

func (w *testWriter) Abort() {
	w.end()
	w.Writer.Abort()
}
