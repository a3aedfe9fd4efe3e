package ingest

import (
	"time"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/order"
	"github.com/rowmill/rowmill/internal/shard"
)

// Begun is an input that is being cut: what all its shards have in common, and
// those that may run by now. Nothing of them may be recorded before Run has
// returned: what is wrong further down fails the job as if none had run.
type Begun struct {
	rowmill.IDType
	Fields []string          // as shard.Manifest has them
	About  int64             // rows of the whole, about; 0 where nothing tells
	Shards []shard.Info      // that follow those that were told before, each once
	Copies []*roaring.Bitmap // of each: the rows that are not run, see shard.Copies; nil for none
}

// Early reports whether rows of a job may run before all of its input is read.
// They may not where more than the row's own place decides whether it runs: an
// estimate, a continuation, a batch, of which all requests are checked first, and
// what an account with a limit of cost has to set aside for the whole.
func Early(spec *rowmill.Spec) bool {
	return !spec.Estimate && spec.Continue == nil && spec.Raw == nil && spec.Inline == nil && spec.CostQuota == nil
}

// A herald tells of shards as soon as they are stored and all of their rows are
// counted, so that they are within the quotas. First it waits a little to know
// whether rows are dealt by their prefixes; where they are, those it has not told of
// are for who has all of the input.
type herald struct {
	tell    func(Begun) // nil where nobody listens
	begun   Begun
	size    int64 // bytes of the whole source; 0 where nobody says
	counted *inputCounter
	groups  *order.Groups // of who adds
	told    int           // shards, of this try and those before it

	stored chan storedShard
	woken  chan struct{}
	done   chan struct{}
}

// A storedShard is one, and what the rows so far tell of their order.
type storedShard struct {
	shard.Info
	copies         *roaring.Bitmap
	decided, dealt bool
}

// orderPatience is how long the first row waits for it to be known in which order
// rows go: half of what a job may take to begin. A sample of an input that comes
// quickly is there by then.
const orderPatience = 250 * time.Millisecond

// storedAhead is how many shards may be stored whose rows are not counted yet,
// without the reader waiting: more than the counters ever have waiting.
const storedAhead = 64

// herald begins to tell of shards that have this in common; it is to be closed.
func (g *ingester) herald(begun Begun, counted *inputCounter) *herald {
	h := &herald{
		tell: g.Ready, begun: begun, counted: counted, groups: g.groups, told: g.told,
		size: g.size, stored: make(chan storedShard, storedAhead), woken: make(chan struct{}, 1), done: make(chan struct{}),
	}
	if h.tell == nil {
		close(h.done)
		return h
	}
	counted.added = func() {
		select {
		case h.woken <- struct{}{}:
		default:
		}
	}
	go h.run()
	return h
}

// run tells until all is stored.
func (h *herald) run() {
	defer close(h.done)
	patience := time.NewTimer(orderPatience)
	defer patience.Stop()
	var waiting []storedShard
	may, dealt := h.told > 0, false
	for n := 0; ; {
		select {
		case s, more := <-h.stored:
			if !more {
				if may {
					h.say(waiting)
				}
				return
			}
			if n++; n > h.told { // else told by an earlier try
				waiting = append(waiting, s)
			}
			if h.begun.About == 0 && s.Bytes > 0 {
				h.begun.About = h.size * int64(s.Rows) / s.Bytes
			}
			may, dealt = may || s.decided, s.dealt
		case <-patience.C:
			may = true
		case <-h.woken:
		}
		switch {
		case dealt:
			waiting, may = nil, false
		case may:
			waiting = waiting[h.say(waiting):]
		}
	}
}

// say tells of the first of the shards whose rows are counted, and returns how
// many those are.
func (h *herald) say(waiting []storedShard) (count int) {
	rows, _ := h.counted.so()
	for count < len(waiting) && waiting[count].First+int64(waiting[count].Rows) <= rows {
		count++
	}
	if count > 0 {
		h.told += count
		begun := h.begun
		for _, s := range waiting[:count] {
			begun.Shards, begun.Copies = append(begun.Shards, s.Info), append(begun.Copies, s.copies)
		}
		h.tell(begun)
	}
	return count
}

// add notes that a shard is stored, with its copies.
func (h *herald) add(info shard.Info, copies *roaring.Bitmap) {
	if h.tell != nil {
		decided, dealt := h.groups.Decided()
		h.stored <- storedShard{info, copies, decided, dealt}
	}
}

// close returns once all has been told that is counted, and how many shards those
// are. It comes after the end of the counting.
func (h *herald) close() (told int) {
	close(h.stored)
	<-h.done
	return h.told
}
