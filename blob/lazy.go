package blob

import (
	"context"
	"sync"
)

// Lazies are objects of a bucket that are opened when they are first read, so
// many at a time at most: of a list of thousands only those are held that are
// in use. They are safe for concurrent use.
type Lazies struct {
	ctx    context.Context
	bucket Bucket
	limit  int

	mu   sync.Mutex
	open []*Lazy // oldest first; some may have been closed since
}

// NewLazies returns a list of objects of which up to limit (> 0) are open. ctx
// is what they will be opened with.
func NewLazies(ctx context.Context, bucket Bucket, limit int) *Lazies {
	return &Lazies{ctx: ctx, bucket: bucket, limit: limit}
}

// Object returns the object of a key whose size is known already.
func (s *Lazies) Object(key string, size int64) *Lazy { return &Lazy{among: s, key: key, size: size} }

// opened notes that an object was opened, and returns the one to close for it.
func (s *Lazies) opened(l *Lazy) (oldest *Lazy) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open = append(s.open, l); len(s.open) > s.limit {
		oldest, s.open = s.open[0], s.open[1:]
	}
	return oldest
}

// A Lazy is one of Lazies.
type Lazy struct {
	among *Lazies
	key   string
	size  int64

	mu   sync.RWMutex // held for reading while it is read
	open Object
}

// Size returns the size that Object was told.
func (l *Lazy) Size() int64 { return l.size }

// ReadAt opens the object if need be and reads from it.
func (l *Lazy) ReadAt(p []byte, off int64) (int, error) {
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

// AppendTo opens the object if need be and has a writer append some of it.
func (l *Lazy) AppendTo(w Appender, off, size int64) error {
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

// begin opens the object, and closes another where too many are open.
func (l *Lazy) begin() error {
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

// Close lets go of the object; it is opened again should it be read again.
func (l *Lazy) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open != nil {
		_ = l.open.Close() // it was only read
		l.open = nil
	}
}
