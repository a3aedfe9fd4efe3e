package batching

import "time"

// Request is one sequence in an engine. The caller sets the first fields before Add,
// and does not change them until the request has finished or was removed. Then the
// request may be added again, to any engine.
type Request struct {
	// Prompt has a chained hash (see ChainHash) for each full block of the prompt that
	// other requests may share: equal hashes mean equal prompts up to the end of that
	// block. nil means that nothing is shared.
	Prompt []uint64

	PromptTokens int // at least 1
	OutputTokens int // tokens until the answer ends by itself; 0 for an embedding
	User         any // belongs to the caller; the engine does not use it

	// The engine sets these fields. Times are on the clock of Add and Step.
	CachedTokens int           // prompt tokens found in the cache when the request was first admitted
	Preempted    int           // how often the request lost its blocks
	FirstToken   time.Duration // when the first token, or the embedding, was ready; 0: not yet
	Finished     time.Duration // when the request finished; 0: not yet

	stage      stage
	ready      time.Duration // when the front end has finished the request
	serial     uint64        // number of the last admission
	generated  int           // output tokens; while the request decodes: output tokens before the step in the field since
	target     int           // tokens to compute before the request decodes: the prompt, and the tokens that a preemption lost
	computed   int           // tokens in the KV cache; while the request decodes: tokens before the step in the field since
	published  int           // number of blocks, from the start of the prompt, that other requests can find in the cache
	chunk      int           // prompt tokens in the present step
	since      int64         // the first step in which the request decodes
	last       int64         // the step that makes the last token
	heapIndex  int           // index in the heap of decoding requests
	phaseIndex int           // index in an entry of phases
	blocks     []int32

	prev, next *Request // in the list of its stage
}

// stage is where in the engine a request is.
type stage uint8

const (
	outside stage = iota
	inFrontEnd
	waiting
	prefilling
	decoding
)

// requestQueue is a queue of requests with O(1) removal.
type requestQueue struct {
	first, last *Request
	n           int
}

func (l *requestQueue) pushBack(r *Request) {
	r.prev, r.next = l.last, nil
	if l.last == nil {
		l.first = r
	} else {
		l.last.next = r
	}
	l.last = r
	l.n++
}

func (l *requestQueue) pushFront(r *Request) {
	r.prev, r.next = nil, l.first
	if l.first == nil {
		l.last = r
	} else {
		l.first.prev = r
	}
	l.first = r
	l.n++
}

func (l *requestQueue) remove(r *Request) {
	if r.prev == nil {
		l.first = r.next
	} else {
		r.prev.next = r.next
	}
	if r.next == nil {
		l.last = r.prev
	} else {
		r.next.prev = r.prev
	}
	r.prev, r.next = nil, nil
	l.n--
}

// decodeHeap is a heap (container/heap) of decoding requests by the step of their last token,
// and by admission within a step.
type decodeHeap []*Request

func (a decodeHeap) Len() int { return len(a) }

func (a decodeHeap) Less(i, j int) bool {
	r, o := a[i], a[j]
	return r.last < o.last || r.last == o.last && r.serial < o.serial
}

func (a decodeHeap) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].heapIndex, a[j].heapIndex = i, j
}

func (a *decodeHeap) Push(r any) {
	r.(*Request).heapIndex = len(*a)
	*a = append(*a, r.(*Request))
}

func (a *decodeHeap) Pop() any {
	end := len(*a) - 1
	r := (*a)[end]
	(*a)[end] = nil
	*a = (*a)[:end]
	return r
}
