package s3

import (
	"container/list"
	"os"
	"sync"
)

// blockSize is the unit of reading, in bytes. A random read of a few bytes
// reads a block, which takes 2 to 3 ms at 100 MB/s: less than the request
// itself.
const blockSize = 256 << 10

// streams is the assumed number of positions at which an object is read in
// parallel: a Parquet file of results has about as many columns.
const streams = 4

// blockCache is a cache of the most recently used blocks of the open objects. Blocks that
// are being filled count toward the limit, but are never evicted, so there can be more
// blocks than the limit.
type blockCache struct {
	mu    sync.Mutex
	limit int // largest number of blocks in the cache
	ahead int // largest number of blocks to read ahead
	open  map[*object]map[int64]*list.Element
	used  *list.List // elements are *block, most recently used first
}

// block is the n-th piece of an object, blockSize bytes long (the last may be shorter).
// Its content is set once.
type block struct {
	object  *object
	n       int64
	done    chan struct{} // closed when content or err is set
	content []byte
	err     error
}

func newBlockCache(limit, ahead int64) *blockCache {
	return &blockCache{
		limit: int(limit / blockSize), ahead: int(ahead / blockSize),
		open: map[*object]map[int64]*list.Element{}, used: list.New(),
	}
}

func (k *block) finish(content []byte, err error) {
	k.content, k.err = content, err
	close(k.done)
}

func (k *block) isFinished() bool {
	select {
	case <-k.done:
		return true
	default:
		return false
	}
}

// addObject adds a newly opened object with its first block.
func (s *blockCache) addObject(o *object, first []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[o] = map[int64]*list.Element{}
	if len(first) > 0 {
		s.add(o, 0).finish(first, nil)
		s.evict()
	}
}

// removeObject removes the blocks of an object that is closed, and reports whether the object
// was open.
func (s *blockCache) removeObject(o *object) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	held, known := s.open[o]
	for _, e := range held {
		s.used.Remove(e)
	}
	delete(s.open, o)
	return known
}

// get returns the content of block n of an object. following is the number of blocks
// after n that the reader will also read. get starts reading blocks if that is useful.
func (s *blockCache) get(o *object, n, following int64) ([]byte, error) {
	s.mu.Lock()
	held, open := s.open[o]
	if !open {
		s.mu.Unlock()
		return nil, os.ErrClosed
	}
	if run := s.plan(o, held, n, following); len(run) > 0 {
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

// plan adds empty blocks to the cache and returns them, to be read for a reader that
// wants block n: block n if it is missing, and blocks after n if the reader wants
// following blocks or if block n-1 is cached. It reads ahead only if fewer than half of
// the blocks to read ahead are cached.
func (s *blockCache) plan(o *object, held map[int64]*list.Element, n, following int64) []*block {
	ahead := min(following, int64(s.ahead))
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

// add adds an empty block as the most recently used one.
func (s *blockCache) add(o *object, n int64) *block {
	k := &block{object: o, n: n, done: make(chan struct{})}
	s.open[o][n] = s.used.PushFront(k)
	return k
}

// evict removes the least recently used blocks.
func (s *blockCache) evict() {
	for e := s.used.Back(); e != nil && s.used.Len() > s.limit; {
		k, before := e.Value.(*block), e.Prev()
		if k.isFinished() {
			s.used.Remove(e)
			delete(s.open[k.object], k.n)
		}
		e = before
	}
}

// fill reads the blocks of run from the server. It removes the blocks that could not be
// read, so that the next reader tries again.
func (s *blockCache) fill(o *object, run []*block) {
	err := o.fill(run)
	if err == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range run {
		if k.isFinished() {
			continue
		}
		if e, held := s.open[o][k.n]; held {
			s.used.Remove(e)
			delete(s.open[o], k.n)
		}
		k.finish(nil, err)
	}
}
