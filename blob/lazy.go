package blob

import (
	"context"
	"sync"
)

// LazyObjects is a list of objects of a bucket. An object is opened when it is
// first read, and only a limited number is open at a time. It is safe for
// concurrent use.
type LazyObjects struct {
	ctx    context.Context
	bucket Bucket
	limit  int

	mu   sync.Mutex
	open []*LazyObject // oldest first; some may be closed already
}

// NewLazyObjects returns a list with at most limit (> 0) open objects. Objects
// are opened with ctx.
func NewLazyObjects(ctx context.Context, bucket Bucket, limit int) *LazyObjects {
	return &LazyObjects{ctx: ctx, bucket: bucket, limit: limit}
}

// Object returns the object of a key. The caller knows its size.
func (s *LazyObjects) Object(key string, size int64) *LazyObject {
	return &LazyObject{among: s, key: key, size: size}
}

// opened adds an object that was opened, and returns the object to close
// instead.
func (s *LazyObjects) opened(l *LazyObject) (oldest *LazyObject) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open = append(s.open, l); len(s.open) > s.limit {
		oldest, s.open = s.open[0], s.open[1:]
	}
	return oldest
}

// LazyObject is an object of LazyObjects.
type LazyObject struct {
	among *LazyObjects
	key   string
	size  int64

	mu   sync.RWMutex // held for reading during a read
	open Object
}

// Size returns the size that was passed to Object.
func (l *LazyObject) Size() int64 { return l.size }

// ReadAt opens the object if necessary and reads from it.
func (l *LazyObject) ReadAt(p []byte, off int64) (int, error) {
	for {
		l.mu.RLock()
		if l.open != nil {
			defer l.mu.RUnlock()
			return l.open.ReadAt(p, off)
		}
		l.mu.RUnlock()
		if err := l.begin(); err != nil {
			return 0, err
		}
	}
}

// AppendTo opens the object if necessary and appends a range of the object to a writer.
func (l *LazyObject) AppendTo(w Appender, off, size int64) error {
	for {
		l.mu.RLock()
		if l.open != nil {
			defer l.mu.RUnlock()
			return w.Append(l.open, off, size)
		}
		l.mu.RUnlock()
		if err := l.begin(); err != nil {
			return err
		}
	}
}

// begin opens the object, and closes another one if too many are open.
func (l *LazyObject) begin() error {
	l.mu.Lock()
	if l.open != nil {
		l.mu.Unlock()
		return nil
	}
	o, err := l.among.bucket.Open(l.among.ctx, l.key)
	if err == nil {
		l.open = o
	}
	l.mu.Unlock()
	if err != nil {
		return err
	}
	if oldest := l.among.opened(l); oldest != nil && oldest != l {
		oldest.Close()
	}
	return nil
}

// Close closes the object. A later read opens it again.
func (l *LazyObject) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open != nil {
		_ = l.open.Close() // it was open only for reading
		l.open = nil
	}
}
