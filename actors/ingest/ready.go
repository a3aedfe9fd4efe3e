package ingest

import (
	"time"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/order"
	"github.com/rowmill/rowmill/internal/shard"
)

// Begun describes an input that is being cut: the data that all its shards share, and
// the shards that may run now. No row may be recorded before Run has returned: if a
// later row is invalid, the job fails as if no row had run.
type Begun struct {
	rowmill.IDType
	Fields []string          // as shard.Manifest has them
	About  int64             // estimated rows of the whole input; 0 if unknown
	Shards []shard.Info      // the next shards, each passed once
	Copies []*roaring.Bitmap // by shard: the rows that do not run, see shard.Copies; nil for none
}

// Early reports whether rows of a job may run before the whole input is read. They may
// not if other rows decide whether a row runs: in an estimate, a continuation, a batch
// (all requests are checked first), or for an account with a cost limit (the whole cost
// is reserved first).
func Early(spec *rowmill.Spec) bool {
	return !spec.Estimate && spec.Continue == nil && spec.Raw == nil && spec.Inline == nil && spec.CostQuota == nil
}

// An announcer announces shards as soon as they are stored and all their rows are counted,
// so they are within the quotas. First it waits a little to learn whether rows will be
// assigned by prefix (see order.Groups). If so, it announces no more shards: that order
// needs the whole input.
type announcer struct {
	tell      func(Begun) // nil if shards are not announced
	begun     Begun
	size      int64 // bytes of the whole source; 0 if unknown
	counted   *inputCounter
	groups    *order.Groups // only the caller of add uses it
	announced int           // number of shards announced, in this and earlier attempts

	stored chan storedShard
	woken  chan struct{}
	done   chan struct{}
}

// A storedShard is a stored shard, with the state of groups at that time.
type storedShard struct {
	shard.Info
	copies  *roaring.Bitmap
	decided bool // it is known whether rows will be assigned by prefix
	dealt   bool // rows will be assigned by prefix
}

// orderPatience is how long the first row waits for the decision about the order of
// rows: half of the acceptable time until a job starts. A fast input has enough rows by
// then.
const orderPatience = 250 * time.Millisecond

// storedAhead is how many shards with uncounted rows may be stored before the reader
// waits: more than the counters ever have waiting.
const storedAhead = 64

// announcer starts to announce shards that share the data in begun. The caller must close
// it.
func (g *ingester) announcer(begun Begun, counted *inputCounter) *announcer {
	h := &announcer{
		tell: g.Ready, begun: begun, counted: counted, groups: g.groups, announced: g.announced,
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

// run announces shards until all are stored.
func (h *announcer) run() {
	defer close(h.done)
	patience := time.NewTimer(orderPatience)
	defer patience.Stop()
	var waiting []storedShard
	mayAnnounce, dealt := h.announced > 0, false
	for n := 0; ; {
		select {
		case s, more := <-h.stored:
			if !more {
				if mayAnnounce {
					h.announce(waiting)
				}
				return
			}
			if n++; n > h.announced { // otherwise an earlier attempt has announced it
				waiting = append(waiting, s)
			}
			if h.begun.About == 0 && s.Bytes > 0 {
				h.begun.About = h.size * int64(s.Rows) / s.Bytes
			}
			mayAnnounce, dealt = mayAnnounce || s.decided, s.dealt
		case <-patience.C:
			mayAnnounce = true
		case <-h.woken:
		}
		switch {
		case dealt:
			waiting, mayAnnounce = nil, false
		case mayAnnounce:
			waiting = waiting[h.announce(waiting):]
		}
	}
}

// announce passes on the first waiting shards with counted rows, and returns their number.
func (h *announcer) announce(waiting []storedShard) (count int) {
	rows, _ := h.counted.progress()
	for count < len(waiting) && waiting[count].First+int64(waiting[count].Rows) <= rows {
		count++
	}
	if count > 0 {
		h.announced += count
		begun := h.begun
		for _, s := range waiting[:count] {
			begun.Shards, begun.Copies = append(begun.Shards, s.Info), append(begun.Copies, s.copies)
		}
		h.tell(begun)
	}
	return count
}

// add notes that a shard is stored, with its copies.
func (h *announcer) add(info shard.Info, copies *roaring.Bitmap) {
	if h.tell != nil {
		decided, dealt := h.groups.Decided()
		h.stored <- storedShard{info, copies, decided, dealt}
	}
}

// close announces all counted shards and returns the number of announced shards. Call it
// after the counting has ended.
func (h *announcer) close() (announced int) {
	close(h.stored)
	<-h.done
	return h.announced
}
