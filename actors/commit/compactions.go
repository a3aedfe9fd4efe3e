package commit

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rowmill/rowmill/internal/panics"
)

// CompactionRunner has the compactions that this node runs for owners on other nodes. An
// owner asks repeatedly for the state of its compaction until the compaction is done.
// So the owner learns that the compaction has ended, and the node knows that the owner
// still waits.
type CompactionRunner struct {
	all     *sync.WaitGroup // counts the goroutines of all compactions
	life    context.Context // ends all compactions
	stop    context.CancelFunc
	mu      sync.Mutex
	running map[string]*runningCompaction // by the key of the object that the compaction makes
}

// ownerSilenceLimit is the time after the owner's last request at which a compaction is
// dropped. It is longer than a lease: by then the job has another owner.
const ownerSilenceLimit = 10 * time.Second

// A runningCompaction is a compaction that the runner still knows: it runs, or it has ended
// and its owner may still ask for its result.
type runningCompaction struct {
	job    string             // id of the job
	end    context.CancelFunc // cancels the compaction
	silent *time.Timer        // ends the compaction ownerSilenceLimit after the last request
	done   chan struct{}      // closed when the compaction has ended and writes no more
	size   int64              // size of the object in bytes; valid after done is closed
	err    error              // error of the compaction; valid after done is closed
}

// A CompactionState tells an owner how far its compaction is.
type CompactionState struct {
	Done   bool   // the compaction has ended, with or without an error
	Size   int64  // size of the object in bytes
	Failed string // error message; empty if the compaction has not failed
}

// NewCompactionRunner returns a CompactionRunner without compactions. all counts its
// goroutines.
func NewCompactionRunner(all *sync.WaitGroup) *CompactionRunner {
	s := &CompactionRunner{all: all, running: make(map[string]*runningCompaction)}
	s.life, s.stop = context.WithCancel(context.Background())
	return s
}

// Stop ends all compactions.
func (s *CompactionRunner) Stop() { s.stop() }

// StartOrQuery returns the state of the compaction that makes the object at key. If no such
// compaction is known, StartOrQuery starts one, which calls run.
func (s *CompactionRunner) StartOrQuery(job, key string, run func(ctx context.Context) (size int64, err error)) (state CompactionState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.running[key]
	if r == nil {
		r = s.begin(job, key, run)
	}
	r.silent.Reset(ownerSilenceLimit)
	select {
	case <-r.done:
		state = CompactionState{Done: true, Size: r.size}
		if r.err != nil {
			state.Failed = r.err.Error()
		}
	default:
	}
	return state
}

// Has reports whether the compaction that makes the object at key is known: it runs, or
// it has ended and its owner may still ask for the result.
func (s *CompactionRunner) Has(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running[key] != nil
}

// begin starts a compaction. The caller must hold the lock.
func (s *CompactionRunner) begin(job, key string, run func(ctx context.Context) (int64, error)) *runningCompaction {
	ctx, end := context.WithCancel(s.life)
	r := &runningCompaction{job: job, end: end, silent: time.AfterFunc(ownerSilenceLimit, end), done: make(chan struct{})}
	s.running[key] = r
	s.all.Go(func() {
		defer close(r.done)
		r.err = panics.Catch(func() (err error) {
			r.size, err = run(ctx)
			return err
		})
	})
	context.AfterFunc(ctx, func() { s.forgetWhenDone(key, r) })
	return r
}

// forgetWhenDone waits until a compaction has ended, and then removes it.
func (s *CompactionRunner) forgetWhenDone(key string, r *runningCompaction) {
	<-r.done
	r.silent.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running[key] == r {
		delete(s.running, key)
	}
}

// CancelJob cancels the compactions of a job. The function wait returns when they have all
// ended and write nothing more; it is nil if the job has no compactions.
func (s *CompactionRunner) CancelJob(job string) (wait func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ended []*runningCompaction
	for _, key := range slices.Sorted(maps.Keys(s.running)) {
		if r := s.running[key]; r.job == job {
			r.end()
			ended = append(ended, r)
		}
	}
	if ended == nil {
		return nil
	}
	return func() {
		for _, r := range ended {
			<-r.done
		}
	}
}
