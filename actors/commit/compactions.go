package commit

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rowmill/rowmill/internal/panics"
)

// Compactions has the compactions that this node runs for owners on other nodes. An owner asks
// for the state of its compaction until the compaction is done. So the owner learns of the end,
// and the node knows that the owner still waits.
type Compactions struct {
	all     *sync.WaitGroup
	life    context.Context
	stop    context.CancelFunc
	mu      sync.Mutex
	running map[string]*running // by the key of the object
}

// forgottenAfter is how long an owner may be silent before its compaction is dropped: longer
// than a lease, after which the job has another owner.
const forgottenAfter = 10 * time.Second

type running struct {
	job    string
	end    context.CancelFunc
	silent *time.Timer   // ends the compaction forgottenAfter after the last request
	done   chan struct{} // closed when the compaction has ended and writes no more
	size   int64         // once done
	err    error         // once done
}

// A CompactionState is the progress of a compaction.
type CompactionState struct {
	Done   bool
	Size   int64  // bytes of the object
	Failed string // the error, if it failed
}

// NewCompactions returns Compactions without a compaction. all counts its goroutines.
func NewCompactions(all *sync.WaitGroup) *Compactions {
	s := &Compactions{all: all, running: make(map[string]*running)}
	s.life, s.stop = context.WithCancel(context.Background())
	return s
}

// Stop ends all compactions.
func (s *Compactions) Stop() { s.stop() }

// Ask returns the state of the compaction that makes the object at key. It starts the compaction
// if it is unknown.
func (s *Compactions) Ask(job, key string, run func(ctx context.Context) (size int64, err error)) (state CompactionState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.running[key]
	if r == nil {
		r = s.begin(job, key, run)
	}
	r.silent.Reset(forgottenAfter)
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

// Has reports whether the compaction that makes the object at key is known: it runs, or it
// has ended and its owner may still ask.
func (s *Compactions) Has(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running[key] != nil
}

func (s *Compactions) begin(job, key string, run func(ctx context.Context) (int64, error)) *running {
	ctx, end := context.WithCancel(s.life)
	r := &running{job: job, end: end, silent: time.AfterFunc(forgottenAfter, end), done: make(chan struct{})}
	s.running[key] = r
	s.all.Go(func() {
		defer close(r.done)
		r.err = panics.Catch(func() (err error) {
			r.size, err = run(ctx)
			return err
		})
	})
	context.AfterFunc(ctx, func() { s.forget(key, r) })
	return r
}

// forget removes a compaction once it has ended.
func (s *Compactions) forget(key string, r *running) {
	<-r.done
	r.silent.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running[key] == r {
		delete(s.running, key)
	}
}

// End cancels the compactions of a job. The returned function waits until they write no
// more; it is nil if there are none.
func (s *Compactions) End(job string) (wait func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ended []*running
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
