package blob

import (
	"context"
	"sync"
)

// LazyObjects limits how many objects of a bucket are open at a time. The first read of
// an object opens it; if too many objects are open then, the object that was opened
// first is closed. LazyObjects is safe for concurrent use.
type LazyObjects struct {
	ctx    context.Context
	bucket Bucket
	limit  int

	mu   sync.Mutex
	open []*LazyObject // oldest first; some may be closed already
}

// NewLazyObjects returns a LazyObjects that keeps at most limit (> 0) objects open.
// Objects are opened with ctx.
func NewLazyObjects(ctx context.Context, bucket Bucket, limit int) *LazyObjects {
	return &LazyObjects{ctx: ctx, bucket: bucket, limit: limit}
}

// Object returns the object with this key and size. It does not open the object.
func (s *LazyObjects) Object(key string, size int64) *LazyObject {
	return &LazyObject{all: s, key: key, size: size}
}

// addOpen adds an object that was just opened. If too many are open now, it returns
// the oldest, which the caller must close.
func (s *LazyObjects) addOpen(l *LazyObject) (oldest *LazyObject) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open = append(s.open, l); len(s.open) > s.limit {
		oldest, s.open = s.open[0], s.open[1:]
	}
	return oldest
}

// LazyObject is one object of a LazyObjects. The first read opens it.
type LazyObject struct {
	all  *LazyObjects
	key  string
	size int64

	mu   sync.RWMutex // read-locked during a read, so that Close waits for it
	open Object
}

// Size returns the size that was passed to Object.
func (l *LazyObject) Size() int64 { return l.size }

// ReadAt opens the object if necessary and reads from it.
func (l *LazyObject) ReadAt(p []byte, off int64) (n int, err error) {
	err = l.withOpen(func(o Object) (err error) {
		n, err = o.ReadAt(p, off)
		return err
	})
	return n, err
}

// AppendTo opens the object if necessary and appends a range of the object to a writer.
func (l *LazyObject) AppendTo(w Appender, off, size int64) error {
	return l.withOpen(func(o Object) error { return w.Append(o, off, size) })
}

// withOpen opens the object if necessary and calls use. Close waits for use.
func (l *LazyObject) withOpen(use func(Object) error) error {
	for {
		l.mu.RLock()
		if l.open != nil {
			defer l.mu.RUnlock()
			return use(l.open)
		}
		l.mu.RUnlock()
		if err := l.ensureOpen(); err != nil {
			return err
		}
	}
}

// ensureOpen opens the object if it is closed, and closes another object if too many
// are open.
func (l *LazyObject) ensureOpen() error {
	l.mu.Lock()
	if l.open != nil {
		l.mu.Unlock()
		return nil
	}
	o, err := l.all.bucket.Open(l.all.ctx, l.key)
	if err == nil {
		l.open = o
	}
	l.mu.Unlock()
	if err != nil {
		return err
	}
	if oldest := l.all.addOpen(l); oldest != nil && oldest != l {
		oldest.Close()
	}
	return nil
}

// Close closes the object. A later read opens it again.
func (l *LazyObject) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open != nil {
		_ = l.open.Close() // the object was only read, so a failed Close loses no data
		l.open = nil
	}
}
