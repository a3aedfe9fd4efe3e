package s3

import (
	"container/list"
	"os"
	"sync"
)

// blockSize is the unit of reading, in bytes: what a random read of a few
// bytes costs, 2 to 3 ms at 100 MB/s and so less than the request itself.
const blockSize = 256 << 10

// streams is how many places one object is thought to be read at side by side:
// a Parquet file of results has about as many columns.
const streams = 4

// blocks keeps blocks of the open objects, those that were used last. What is
// being filled counts but is never thrown away, so blocks may exceed the limit
// by what is on its way.
type blocks struct {
	mu    sync.Mutex
	limit int // in blocks
	ahead int // blocks that are read ahead at most
	open  map[*object]map[int64]*list.Element
	used  *list.List // of *block, the last used in front
}

// A block is the n-th piece of an object. Its content is set once.
type block struct {
	object  *object
	n       int64
	done    chan struct{} // closed when content or err is set
	content []byte
	err     error
}

func newBlocks(limit, ahead int64) *blocks {
	return &blocks{
		limit: int(limit / blockSize), ahead: int(ahead / blockSize),
		open: map[*object]map[int64]*list.Element{}, used: list.New(),
	}
}

func (k *block) finish(content []byte, err error) {
	k.content, k.err = content, err
	close(k.done)
}

func (k *block) finished() bool {
	select {
	case <-k.done:
		return true
	default:
		return false
	}
}

// start notes an object with its first block.
func (s *blocks) start(o *object, first []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[o] = map[int64]*list.Element{}
	if len(first) > 0 {
		s.add(o, 0).finish(first, nil)
		s.evict()
	}
}

// end forgets an object, and reports whether it was known.
func (s *blocks) end(o *object) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	held, known := s.open[o]
	for _, e := range held {
		s.used.Remove(e)
	}
	delete(s.open, o)
	return known
}

// get returns the content of block n, of which and of more blocks behind it the
// reader wants something, and has blocks read where that is of use.
func (s *blocks) get(o *object, n, more int64) ([]byte, error) {
	s.mu.Lock()
	held, open := s.open[o]
	if !open {
		s.mu.Unlock()
		return nil, os.ErrClosed
	}
	if run := s.plan(o, held, n, more); len(run) > 0 {
		o.fills.Go(func() { s.fill(o, run) })
	}
	e := held[n]
	s.used.MoveToFront(e)
	s.evict()
	s.mu.Unlock()

	k := e.Value.(*block)
	select {
	case <-k.done:
		return k.content, k.err
	case <-o.ctx.Done():
		return nil, o.ctx.Err()
	}
}

// plan adds the blocks that are to be read now that n is wanted: n itself
// where it is missing, and, where more are wanted or the block before it was
// read too, those that follow, once fewer than half of what may be read ahead
// are there.
func (s *blocks) plan(o *object, held map[int64]*list.Element, n, more int64) []*block {
	ahead := min(more, int64(s.ahead))
	if _, sequential := held[n-1]; sequential {
		ahead = max(ahead, int64(min(s.ahead, s.limit/(streams*len(s.open)))))
	}
	from := n
	for held[from] != nil && from <= n+ahead {
		from++
	}
	if from > n+ahead/2 {
		return nil
	}
	end := (o.size + blockSize - 1) / blockSize
	var run []*block
	for ; from < end && from <= n+ahead && held[from] == nil; from++ {
		run = append(run, s.add(o, from))
	}
	return run
}

// add puts a block in front.
func (s *blocks) add(o *object, n int64) *block {
	k := &block{object: o, n: n, done: make(chan struct{})}
	s.open[o][n] = s.used.PushFront(k)
	return k
}

// evict throws the blocks away that were not used for longest.
func (s *blocks) evict() {
	for e := s.used.Back(); e != nil && s.used.Len() > s.limit; {
		k, before := e.Value.(*block), e.Prev()
		if k.finished() {
			s.used.Remove(e)
			delete(s.open[k.object], k.n)
		}
		e = before
	}
}

// fill has blocks read. Those that failed are forgotten, so that the next
// reader tries again.
func (s *blocks) fill(o *object, run []*block) {
	err := o.fill(run)
	if err == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range run {
		if k.finished() {
			continue
		}
		if e, held := s.open[o][k.n]; held {
			s.used.Remove(e)
			delete(s.open[o], k.n)
		}
		k.finish(nil, err)
	}
}
