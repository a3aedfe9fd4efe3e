package bolt

import (
	"sync"

	"github.com/rowmill/rowmill"
)

const (
	// seenJobs is how many jobs each half of what was listed last has: some pages of
	// those who look at a list again and again.
	seenJobs = 512
	// seenBytes bounds the header of a job that is remembered. Most have 1 KB.
	seenBytes = 4 << 10
)

// seen are the jobs that were listed last, by their headers as they are stored: one
// that has not changed since is not decoded again. Jobs with long texts are not
// among them, so that it takes a few MB at most. A header changes with every change
// of its job.
type seen struct {
	mu          sync.Mutex
	now, before map[string]rowmill.Job
}

// get returns the job of a header. What it points to is shared with all others who
// got it.
func (s *seen) get(header []byte) (rowmill.Job, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	job, known := s.now[string(header)]
	if !known {
		if job, known = s.before[string(header)]; known {
			s.add(string(header), job)
		}
	}
	return job, known
}

// put remembers the job of a header, which it copies.
func (s *seen) put(header []byte, job rowmill.Job) {
	if len(header) > seenBytes || job.System != nil || job.Schema != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(string(header), job)
}

// add forgets those that were not asked for since the half before was full.
func (s *seen) add(header string, job rowmill.Job) {
	if s.now == nil || len(s.now) >= seenJobs {
		s.now, s.before = make(map[string]rowmill.Job, seenJobs), s.now
	}
	s.now[header] = job
}
