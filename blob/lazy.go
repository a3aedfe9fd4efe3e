package blob

import (
	"context"
	"sync"
)

// A Lazy is an object that is opened when it is first read, so that a list of
// thousands holds only those that are in use. It is safe for concurrent use.
type Lazy struct {
	ctx    context.Context
	bucket Bucket
	key    string
	size   int64

	mu   sync.Mutex
	open Object
}

// NewLazy returns the object of a key whose size is known already. ctx is what
// it will be opened with.
func NewLazy(ctx context.Context, bucket Bucket, key string, size int64) *Lazy {
	return &Lazy{ctx: ctx, bucket: bucket, key: key, size: size}
}

// Size returns the size that NewLazy was told.
func (l *Lazy) Size() int64 { return l.size }

// ReadAt opens the object if need be and reads from it.
func (l *Lazy) ReadAt(p []byte, off int64) (int, error) {
	o, err := l.object()
	if err != nil {
		return 0, err
	}
	return o.ReadAt(p, off)
}

func (l *Lazy) object() (Object, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open != nil {
		return l.open, nil
	}
	o, err := l.bucket.Open(l.ctx, l.key)
	if err == nil {
		l.open = o
	}
	return o, err
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
