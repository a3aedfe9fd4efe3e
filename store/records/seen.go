package records

import (
	"fmt"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/cache"
	"github.com/rowmill/rowmill/internal/jsonpreserve"
	"github.com/rowmill/rowmill/store"
)

const (
	// cachedJobs is the least number of jobs in the cache: several pages of a list that a
	// client polls, and as many single jobs.
	cachedJobs = 512
	// maxCachedBytes limits the header and the long texts of a cached job. Most jobs have 1
	// KB, so that the cache takes a few MB.
	maxCachedBytes = 4 << 10
)

// A headCache holds the heads that clients read last, by job id.
type headCache = cache.LRU[string, cachedHead]

// A cachedHead is a decoded head, with the stored header from which it was decoded. It is
// valid as long as the stored header is the same: every change of a job changes the
// header.
type cachedHead struct {
	header string
	head   *store.JobHead
}

// readHead reads the part of a record that clients see. It decodes a header only when it
// has changed since the last read.
func (s *Store) readHead(t *tx, id string) (*store.JobHead, error) {
	raw, err := t.Get(tableJobs, []byte(id))
	if err != nil {
		return nil, err
	}
	if raw == nil {
		return nil, fmt.Errorf("job %s: %w", id, rowmill.ErrNotFound)
	}
	if last, known := s.cache.Get(id); known && last.header == string(raw) {
		return last.head, nil
	}
	header, head := string(raw), new(store.JobHead)
	if err := jsonpreserve.Decode(header, head); err != nil {
		return nil, fmt.Errorf("decode the record of job %s: %w", id, err)
	}
	texts, err := t.Get(tableTexts, []byte(id))
	if err != nil {
		return nil, err
	}
	if err := decodeTexts(texts, &head.Job); err != nil {
		return nil, fmt.Errorf("decode the texts of job %s: %w", id, err)
	}
	if len(header)+len(texts) <= maxCachedBytes {
		s.cache.Put(id, cachedHead{header, head})
	}
	return head, nil
}
