package ingest

import (
	"time"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/order"
	"github.com/rowmill/rowmill/internal/shard"
)

// EarlyShards describes an input that is being cut: shards that may run now, and data that
// all its shards share. No row may be recorded before Run has returned: if a later row
// is invalid, the job fails as if no row had run.
type EarlyShards struct {
	rowmill.IDType
	Fields []string              // names of the field columns, as in shard.Manifest
	About  int64                 // estimated number of rows in the whole input; 0 if unknown
	Shards []shard.ManifestEntry // the next shards; each shard is passed once
	// Copies has, for each of these shards, the rows that do not run because they are
	// copies (see shard.RowCopies); nil for none.
	Copies []*roaring.Bitmap
}

// CanRunEarly reports whether rows of a job may run before the whole input is read. They may
// not if other rows decide whether a row runs: in an estimate, in a job with a limit, in a
// continuation, in a job that reuses rows, in a batch (all requests are checked first), or for an account with a cost
// limit (the whole cost is reserved first).
func CanRunEarly(spec *rowmill.Spec) bool {
	return !spec.Estimate && spec.Limit == 0 && spec.Continue == nil && spec.Reuse == nil && spec.Raw == nil && spec.Inline == nil && spec.CostQuota == nil
}

// A shardAnnouncer passes shards to Config.Ready as soon as they are stored and all their
// rows are counted, and so are within the quotas. At first it waits a little to learn
// whether rows will be assigned by prefix (see order.PrefixGrouper). If so, it passes on no
// more shards, because that order needs the whole input.
type shardAnnouncer struct {
	tell      func(EarlyShards) // Config.Ready; nil if shards are not announced
	begun     EarlyShards       // the data that all shards share
	size      int64             // size of the whole input in bytes; 0 if unknown
	counted   *inputTokenCounter
	groups    *order.PrefixGrouper // decides whether rows are assigned by prefix; only the caller of add uses it
	announced int                  // number of announced shards, also in earlier attempts

	stored chan storedShard // shards that add has passed on
	woken  chan struct{}    // gets a token when more rows are counted
	done   chan struct{}    // closed when run has ended
}

// A storedShard is a shard in the bucket, and what the order.PrefixGrouper had decided when it was
// stored.
type storedShard struct {
	shard.ManifestEntry
	copies           *roaring.Bitmap
	decided          bool // the decision whether rows are assigned by prefix is final
	assignedByPrefix bool // the decision is yes
}

// orderPatience is how long the first row waits for the decision whether rows are
// assigned by prefix: half of the acceptable time until a job starts. From a fast
// input, enough rows for the decision arrive in this time.
const orderPatience = 250 * time.Millisecond

// storedAhead is how many shards with uncounted rows may be stored before the reader
// waits. The counters never have that many waiting.
const storedAhead = 64

// startAnnouncer starts an announcer for shards that share the data in begun. The caller
// must close it.
func (g *ingester) startAnnouncer(begun EarlyShards, counted *inputTokenCounter) *shardAnnouncer {
	h := &shardAnnouncer{
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

// run announces shards until close is called.
func (h *shardAnnouncer) run() {
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
			if n++; n > h.announced { // an earlier attempt has announced the other shards
				waiting = append(waiting, s)
			}
			if h.begun.About == 0 && s.Bytes > 0 {
				h.begun.About = h.size * int64(s.Rows) / s.Bytes
			}
			mayAnnounce, dealt = mayAnnounce || s.decided, s.assignedByPrefix
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

// announce announces the first shards of waiting whose rows are all counted, and
// returns their number.
func (h *shardAnnouncer) announce(waiting []storedShard) (count int) {
	rows, _ := h.counted.progress()
	for count < len(waiting) && waiting[count].First+int64(waiting[count].Rows) <= rows {
		count++
	}
	if count > 0 {
		h.announced += count
		begun := h.begun
		for _, s := range waiting[:count] {
			begun.Shards, begun.Copies = append(begun.Shards, s.ManifestEntry), append(begun.Copies, s.copies)
		}
		h.tell(begun)
	}
	return count
}

// add tells the announcer that a shard is stored. copies has the copies in the shard.
func (h *shardAnnouncer) add(info shard.ManifestEntry, copies *roaring.Bitmap) {
	if h.tell != nil {
		decided, dealt := h.groups.Decided()
		h.stored <- storedShard{info, copies, decided, dealt}
	}
}

// close announces the remaining counted shards, and returns the number of all announced
// shards. Call it after the counting has ended.
func (h *shardAnnouncer) close() (announced int) {
	close(h.stored)
	<-h.done
	return h.announced
}
