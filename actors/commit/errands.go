package commit

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rowmill/rowmill/internal/contain"
)

// An Errands is the errands that a node runs for the owners of jobs elsewhere. An
// owner asks again and again until one is done: that is how it learns of the end, and
// the node that somebody still waits for it.
type Errands struct {
	all     *sync.WaitGroup
	life    context.Context
	stop    context.CancelFunc
	mu      sync.Mutex
	running map[string]*running // by the key of the object
}

// forgottenAfter is how long an owner may be silent before its errand is dropped:
// more than a lease, after which there is another owner.
const forgottenAfter = 10 * time.Second

type running struct {
	job   string
	end   context.CancelFunc
	asked chan struct{} // holds a token when somebody has asked
	done  chan struct{} // closed when nothing is written any more
	size  int64         // once done
	err   error         // once done
}

// An ErrandState is how far an errand is.
type ErrandState struct {
	Done   bool
	Size   int64  // bytes of the object
	Failed string // why there is none
}

// NewErrands makes Errands of which none runs; all is of what is at work.
func NewErrands(all *sync.WaitGroup) *Errands {
	s := &Errands{all: all, running: make(map[string]*running)}
	s.life, s.stop = context.WithCancel(context.Background())
	return s
}

// Stop ends all errands.
func (s *Errands) Stop() { s.stop() }

// Ask says how far the errand of a job is that makes the object at a key. One that is
// not known begins.
func (s *Errands) Ask(job, key string, run func(ctx context.Context) (size int64, err error)) (state ErrandState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.running[key]
	if r == nil {
		r = s.begin(job, key, run)
	}
	select {
	case r.asked <- struct{}{}:
	default:
	}
	select {
	case <-r.done:
		state = ErrandState{Done: true, Size: r.size}
		if r.err != nil {
			state.Failed = r.err.Error()
		}
	default:
	}
	return state
}

// Has reports whether an errand is known.
func (s *Errands) Has(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running[key] != nil
}

func (s *Errands) begin(job, key string, run func(ctx context.Context) (int64, error)) *running {
	r := &running{job: job, asked: make(chan struct{}, 1), done: make(chan struct{})}
	ctx, end := context.WithCancel(s.life)
	r.end = end
	s.running[key] = r
	s.all.Add(2)
	go func() {
		defer s.all.Done()
		defer close(r.done)
		r.err = contain.Run(func() (err error) {
			r.size, err = run(ctx)
			return err
		})
	}()
	go func() {
		defer s.all.Done()
		defer end()
		r.keep(ctx)
		<-r.done
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.running, key)
	}()
	return r
}

// keep returns once nobody has asked for long, or ctx has ended.
func (r *running) keep(ctx context.Context) {
	silent := time.NewTimer(forgottenAfter)
	defer silent.Stop()
	for {
		select {
		case <-r.asked:
			silent.Reset(forgottenAfter)
		case <-silent.C:
			r.end()
			return
		case <-ctx.Done():
			return
		}
	}
}

// End ends the errands of a job. What it returns, nil where there are none, waits
// until nothing is written for them any more.
func (s *Errands) End(job string) (wait func()) {
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
