package work

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/rowmill/rowmill/actors/dispatch"
)

// A Batch is a set of finished rows of a shard that will be written as a part.
type Batch struct {
	Shard int
	Tasks []*dispatch.Task

	bytes int64
	since time.Time // when its first row finished
	kept  int       // rows up to this row have waited for one part already and do not wait for another
}

// A Flusher gathers finished rows by shard and cuts them into batches to be written. It
// keeps each batch until its part is acknowledged.
type Flusher struct {
	size  int64         // of a part, in bytes
	grace time.Duration // the longest time between the end of a row and the record of its part
	runs  bool          // rows finish approximately in the order of the input

	gathering map[int]*Batch    // by shard
	gathered  int64             // bytes in gathering
	cut       []*Batch          // batches with parts that are not acknowledged yet
	unacked   int64             // bytes in cut
	writing   int               // number of batches in cut that are not durable
	durable   map[string]*Batch // by key of the part
}

// NewFlusher returns a Flusher for parts of size bytes. A finished row should be
// recorded within grace.
func NewFlusher(size int64, grace time.Duration) *Flusher {
	return &Flusher{size: size, grace: grace, gathering: make(map[int]*Batch), durable: make(map[string]*Batch)}
}

// InOrder tells the Flusher that rows finish approximately in the order of the input. A
// batch that is cut for its size then has consecutive rows, and rows after a gap wait
// for the next part. Such parts of a shard can be joined without decoding them.
func (f *Flusher) InOrder() { f.runs = true }

// Add adds a finished row.
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

// shards returns the shards with gathered rows, in order.
func (f *Flusher) shards() []int { return slices.Sorted(maps.Keys(f.gathering)) }

// Gathers reports whether there are gathered rows.
func (f *Flusher) Gathers() bool { return f.gathered > 0 }

// Idle reports whether there are no gathered rows and no batches being written.
func (f *Flusher) Idle() bool { return len(f.gathering) == 0 && f.writing == 0 }

// Full cuts batches when half a part has gathered: first the shard with most of the
// bytes, and all shards if that is not enough.
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

// cutRun cuts the consecutive rows at the start of a shard, and leaves the rows after
// the first gap, which then count as finished now. It cuts all rows of the shard if rows
// come in no order, if more than half of the rows are after the gap, or if some rows
// have waited for a part before.
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

// Cut returns the gathered rows of a shard as a batch to be written.
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

// All returns all gathered rows as batches to be written.
func (f *Flusher) All() (batches []*Batch) {
	for _, n := range f.shards() {
		batches = append(batches, f.Cut(n)...)
	}
	return batches
}

// Due returns batches of the shards with a first row that finished at the given time or
// before. Each shard has its own time: if all rows of a shard finish within the maximum
// age, they become one complete part.
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

// Wrote notes that a batch is durable under a key.
func (f *Flusher) Wrote(key string, b *Batch) {
	f.writing--
	b.Tasks = nil
	f.durable[key] = b
}

// Acked drops the batch of an acknowledged part.
func (f *Flusher) Acked(key string) {
	b := f.durable[key]
	if b == nil {
		return
	}
	delete(f.durable, key)
	f.unacked -= b.bytes
	f.cut = slices.DeleteFunc(f.cut, func(have *Batch) bool { return have == b })
}

// Behind reports whether a part waits for its record while the rows of the next part have
// gathered. Then no new rows should start.
func (f *Flusher) Behind() bool { return f.unacked > 0 && f.gathered+f.unacked >= f.size }

// AtRisk reports whether finished rows have waited too long for their record, because
// the bucket or the store is not available, the job has no owner, or the owner has
// declared this worker lost. These rows may have to run again, so no new rows should
// start.
func (f *Flusher) AtRisk(now time.Time) bool {
	late := func(b *Batch) bool { return now.Sub(b.since) > f.grace }
	for _, b := range f.gathering {
		if late(b) {
			return true
		}
	}
	return slices.ContainsFunc(f.cut, late)
}
