package work

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/rowmill/rowmill/actors/dispatch"
)

// A Batch is finished rows of one shard on their way into the record.
type Batch struct {
	Shard int
	Tasks []*dispatch.Task

	bytes int64
	since time.Time // when the first of them was finished
	kept  int       // no row up to this one waits for yet another part
}

// A Flusher gathers finished rows by shard, cuts them into batches that are to
// be written, and keeps those in mind until their parts are acknowledged.
type Flusher struct {
	size  int64         // of a part, bytes
	grace time.Duration // how long a finished row may wait to be recorded
	runs  bool          // rows finish about in order

	gathering map[int]*Batch // by shard
	gathered  int64          // bytes of them
	cut       []*Batch       // until they are acknowledged
	unacked   int64          // bytes of them
	writing   int            // of them, those that are not durable
	durable   map[string]*Batch
}

// NewFlusher returns a Flusher that gathers up to size bytes; grace is how long
// a row that is finished may wait to be recorded.
func NewFlusher(size int64, grace time.Duration) *Flusher {
	return &Flusher{size: size, grace: grace, gathering: make(map[int]*Batch), durable: make(map[string]*Batch)}
}

// InOrder says that rows finish about in the order of the input. What is cut for its
// size is then rows that follow one another, and those that came ahead of others wait
// for the next part: of such parts a shard is put together without being read.
func (f *Flusher) InOrder() { f.runs = true }

// Add takes in a row that is finished.
func (f *Flusher) Add(t *dispatch.Task, now time.Time) {
	b := f.gathering[t.Shard]
	if b == nil {
		b = &Batch{Shard: t.Shard, since: now}
		f.gathering[t.Shard] = b
	}
	b.Tasks = append(b.Tasks, t)
	f.count(b, bytesOf(t))
}

func bytesOf(t *dispatch.Task) int64 { return t.OutputBytes() + t.RowBytes() }

func (f *Flusher) count(b *Batch, bytes int64) {
	b.bytes += bytes
	f.gathered += bytes
}

// shards returns the shards in which rows gather, in order.
func (f *Flusher) shards() []int { return slices.Sorted(maps.Keys(f.gathering)) }

// Gathers reports whether rows gather.
func (f *Flusher) Gathers() bool { return f.gathered > 0 }

// Idle reports whether neither rows gather nor batches are being written.
func (f *Flusher) Idle() bool { return len(f.gathering) == 0 && f.writing == 0 }

// Full cuts what should be written because of its size: where half of a part
// has gathered, the shard that has most of it, and all if that is not enough.
func (f *Flusher) Full(now time.Time) (batches []*Batch) {
	if f.gathered < f.size/2 {
		return nil
	}
	for _, n := range f.shards() {
		if f.gathered >= f.size/2 && f.gathering[n].bytes*2 >= f.gathered {
			batches = append(batches, f.cutRun(n, now)...)
		}
	}
	if f.gathered >= f.size/2 {
		batches = append(batches, f.All()...)
	}
	return batches
}

// cutRun is Cut where rows come in no order, and where the first gap leaves more than
// half of them, or some that have waited for this part. Those it leaves behind count as
// finished now.
func (f *Flusher) cutRun(shard int, now time.Time) []*Batch {
	b := f.gathering[shard]
	if !f.runs {
		return f.Cut(shard)
	}
	slices.SortFunc(b.Tasks, byRow)
	end := 1
	for end < len(b.Tasks) && b.Tasks[end].Rel == b.Tasks[end-1].Rel+1 {
		end++
	}
	if end == len(b.Tasks) || 2*end < len(b.Tasks) || b.Tasks[end-1].Rel < b.kept {
		return f.Cut(shard)
	}
	ahead := slices.Clone(b.Tasks[end:])
	clear(b.Tasks[end:])
	b.Tasks = b.Tasks[:end]
	for _, t := range ahead {
		f.count(b, -bytesOf(t))
	}
	cut := f.Cut(shard)
	for _, t := range ahead {
		f.Add(t, now)
	}
	f.gathering[shard].kept = ahead[len(ahead)-1].Rel
	return cut
}

func byRow(a, b *dispatch.Task) int { return cmp.Compare(a.Rel, b.Rel) }

// Cut returns what has gathered of a shard, to be written.
func (f *Flusher) Cut(shard int) []*Batch {
	b := f.gathering[shard]
	if b == nil {
		return nil
	}
	delete(f.gathering, shard)
	f.gathered -= b.bytes
	f.writing++
	f.cut = append(f.cut, b)
	f.unacked += b.bytes
	return []*Batch{b}
}

// All returns all that has gathered, to be written.
func (f *Flusher) All() (batches []*Batch) {
	for _, n := range f.shards() {
		batches = append(batches, f.Cut(n)...)
	}
	return batches
}

// Due returns what has gathered of the shards whose first row was finished at that
// time or before, to be written. Each shard has its own, so that one whose rows all
// come within the age at which it is written becomes one part, which is complete.
func (f *Flusher) Due(finished time.Time) (batches []*Batch) {
	for _, n := range f.shards() {
		if !f.gathering[n].since.After(finished) {
			batches = append(batches, f.Cut(n)...)
		}
	}
	return batches
}

// Failed notes that a batch could not be written.
func (f *Flusher) Failed(b *Batch) {
	f.writing--
	b.Tasks = nil
}

// Wrote notes under which key a batch is durable.
func (f *Flusher) Wrote(key string, b *Batch) {
	f.writing--
	b.Tasks = nil
	f.durable[key] = b
}

// Acked lets go of the batch in a part.
func (f *Flusher) Acked(key string) {
	b := f.durable[key]
	if b == nil {
		return
	}
	delete(f.durable, key)
	f.unacked -= b.bytes
	f.cut = slices.DeleteFunc(f.cut, func(have *Batch) bool { return have == b })
}

// Behind reports whether a part waits to be recorded and the next one has
// gathered: no further rows should begin.
func (f *Flusher) Behind() bool { return f.unacked > 0 && f.gathered+f.unacked >= f.size }

// AtRisk reports whether finished rows wait for longer to be recorded than they
// should: because the bucket or the store is away, the job has no owner, or
// that owner has given this worker up. They may then have to be run again, and
// no more of them should begin.
func (f *Flusher) AtRisk(now time.Time) bool {
	late := func(b *Batch) bool { return now.Sub(b.since) > f.grace }
	for _, b := range f.gathering {
		if late(b) {
			return true
		}
	}
	return slices.ContainsFunc(f.cut, late)
}
