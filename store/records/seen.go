package records

import (
	"fmt"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/document"
	"github.com/rowmill/rowmill/internal/memo"
	"github.com/rowmill/rowmill/store"
)

const (
	// seenJobs is how many jobs are remembered at least: some pages of those who look
	// at a list again and again, and as many jobs that are asked for alone.
	seenJobs = 512
	// seenBytes bounds the header and the long texts of a job that is remembered. Most
	// have 1 KB, so that all of them take a few MB.
	seenBytes = 4 << 10
)

// seen are the heads that clients asked for last, by the ids of their jobs.
type seen = memo.Recent[string, seenHead]

// A seenHead is good for as long as the header is the same, which changes with every
// change of its job.
type seenHead struct {
	header string
	head   *store.Head
}

// head reads what clients see of a record. Nothing is decoded of a header that has
// not changed since it was last.
func (s *Store) head(t *tx, id string) (*store.Head, error) {
	raw, err := t.Get(tableJobs, []byte(id))
	if err != nil {
		return nil, err
	}
	if raw == nil {
		return nil, fmt.Errorf("job %s: %w", id, rowmill.ErrNotFound)
	}
	if last, known := s.seen.Get(id); known && last.header == string(raw) {
		return last.head, nil
	}
	header, head := string(raw), new(store.Head)
	if err := document.Decode(header, head); err != nil {
		return nil, fmt.Errorf("decode the record of job %s: %w", id, err)
	}
	texts, err := t.Get(tableTexts, []byte(id))
	if err != nil {
		return nil, err
	}
	if err := readTexts(texts, &head.Job); err != nil {
		return nil, fmt.Errorf("decode the texts of job %s: %w", id, err)
	}
	if len(header)+len(texts) <= seenBytes {
		s.seen.Put(id, seenHead{header, head})
	}
	return head, nil
}
