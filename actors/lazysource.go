package actors

import (
	"context"
	"sync"

	"github.com/rowmill/rowmill/blob"
)

// A lazySource opens an object when it is first read, so that a list of
// thousands holds only those that are in use.
type lazySource struct {
	ctx    context.Context
	bucket blob.Bucket
	key    string
	size   int64

	mu   sync.Mutex
	open blob.Object
}

// Size returns the size that the part's record gives.
func (s *lazySource) Size() int64 { return s.size }

// ReadAt opens the object if need be and reads from it.
func (s *lazySource) ReadAt(p []byte, off int64) (int, error) {
	s.mu.Lock()
	if s.open == nil {
		o, err := s.bucket.Open(s.ctx, s.key)
		if err != nil {
			s.mu.Unlock()
			return 0, err
		}
		s.open = o
	}
	o := s.open
	s.mu.Unlock()
	return o.ReadAt(p, off)
}

// close lets go of the object.
func (s *lazySource) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open != nil {
		_ = s.open.Close() // it was only read
		s.open = nil
	}
}
