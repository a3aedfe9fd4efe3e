package work

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/rowmill/rowmill/actors/dispatch"
)

// A Batch is a set of finished rows of one shard that will be written as a part.
type Batch struct {
	Shard int
	Tasks []*dispatch.RowTask

	bytes int64     // memory of the rows and their answers
	since time.Time // when the first row of the batch finished
	// kept is the highest row number in the shard of rows that have already waited for one
	// part. These rows do not wait for a further part.
	kept int
}

// A Flusher gathers finished rows by shard and cuts them into batches to be written as
// parts. It keeps the size of each batch until the owner has acknowledged its part.
type Flusher struct {
	size    int64         // target size of a part in bytes
	grace   time.Duration // the maximum time from the end of a row until its part is recorded
	inOrder bool          // ExpectInputOrder was called: rows finish approximately in the order of the input

	gathering map[int]*Batch    // by shard: rows that are not cut into a batch yet
	gathered  int64             // total bytes in gathering
	cut       []*Batch          // batches whose parts are not acknowledged yet
	unacked   int64             // total bytes in cut
	writing   int               // number of batches in cut that are not stored yet
	durable   map[string]*Batch // by key of the part: stored batches that are not acknowledged yet
}

// NewFlusher returns a Flusher for parts of size bytes. grace is the maximum time until
// a finished row should be recorded.
func NewFlusher(size int64, grace time.Duration) *Flusher {
	return &Flusher{size: size, grace: grace, gathering: make(map[int]*Batch), durable: make(map[string]*Batch)}
}

// ExpectInputOrder tells the Flusher that rows finish approximately in the order of the input.
// Then a batch that is cut because of its size has consecutive rows, and rows after a
// gap wait for the next part. The parts of a shard can then be joined without decoding
// them.
func (f *Flusher) ExpectInputOrder() { f.inOrder = true }

// Add adds a finished row. now is the time at which it finished.
func (f *Flusher) Add(t *dispatch.RowTask, now time.Time) {
	b := f.gathering[t.Shard]
	if b == nil {
		b = &Batch{Shard: t.Shard, since: now}
		f.gathering[t.Shard] = b
	}
	b.Tasks = append(b.Tasks, t)
	f.addBytes(b, bytesOf(t))
}

// bytesOf returns the memory of a row and its answer.
func bytesOf(t *dispatch.RowTask) int64 { return t.OutputBytes() + t.RowBytes() }

// addBytes adds bytes to the size of a batch in gathering.
func (f *Flusher) addBytes(b *Batch, bytes int64) {
	b.bytes += bytes
	f.gathered += bytes
}

// shards returns the numbers of the shards with gathered rows, in order.
func (f *Flusher) shards() []int { return slices.Sorted(maps.Keys(f.gathering)) }

// HasGatheredRows reports whether finished rows wait to be cut into a batch.
func (f *Flusher) HasGatheredRows() bool { return f.gathered > 0 }

// Idle reports whether no rows are gathered and no batches are being written.
func (f *Flusher) Idle() bool { return len(f.gathering) == 0 && f.writing == 0 }

// CutFull cuts batches when the gathered rows have half the size of a part: first the
// shard that has at least half of the bytes, and all shards if that is not enough.
func (f *Flusher) CutFull(now time.Time) (batches []*Batch) {
	if f.gathered < f.size/2 {
		return nil
	}
	for _, n := range f.shards() {
		if f.gathered >= f.size/2 && f.gathering[n].bytes*2 >= f.gathered {
			batches = append(batches, f.cutRun(n, now)...)
		}
	}
	if f.gathered >= f.size/2 {
		batches = append(batches, f.CutAll()...)
	}
	return batches
}

// cutRun cuts the consecutive rows at the start of a shard's gathered rows. The rows
// after the first gap stay, and count as finished at now. cutRun cuts all rows of the
// shard if rows come in no order, if more than half of the rows are after the gap, or
// if some of the rows have already waited for an earlier part.
func (f *Flusher) cutRun(shard int, now time.Time) []*Batch {
	b := f.gathering[shard]
	if !f.inOrder {
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
		f.addBytes(b, -bytesOf(t))
	}
	cut := f.Cut(shard)
	for _, t := range ahead {
		f.Add(t, now)
	}
	f.gathering[shard].kept = ahead[len(ahead)-1].Rel
	return cut
}

// byRow orders tasks by the number of the row in its shard.
func byRow(a, b *dispatch.RowTask) int { return cmp.Compare(a.Rel, b.Rel) }

// Cut returns the gathered rows of a shard as a batch to be written; nil if there are
// none.
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

// CutAll returns all gathered rows as batches to be written.
func (f *Flusher) CutAll() (batches []*Batch) {
	for _, n := range f.shards() {
		batches = append(batches, f.Cut(n)...)
	}
	return batches
}

// CutDue cuts a batch for each shard whose first gathered row finished at the given time
// or earlier. Each shard has its own time: if all rows of a shard finish within the
// maximum age, they become one complete part.
func (f *Flusher) CutDue(finished time.Time) (batches []*Batch) {
	for _, n := range f.shards() {
		if !f.gathering[n].since.After(finished) {
			batches = append(batches, f.Cut(n)...)
		}
	}
	return batches
}

// MarkFailed records that a batch could not be written.
func (f *Flusher) MarkFailed(b *Batch) {
	f.writing--
	b.Tasks = nil
}

// MarkWritten records that a batch is stored as the part with this key.
func (f *Flusher) MarkWritten(key string, b *Batch) {
	f.writing--
	b.Tasks = nil
	f.durable[key] = b
}

// MarkAcked forgets the batch of a part that the owner has acknowledged.
func (f *Flusher) MarkAcked(key string) {
	b := f.durable[key]
	if b == nil {
		return
	}
	delete(f.durable, key)
	f.unacked -= b.bytes
	f.cut = slices.DeleteFunc(f.cut, func(have *Batch) bool { return have == b })
}

// IsBehind reports whether a part is not acknowledged while the rows of the next part
// have already gathered. Then no new rows should start.
func (f *Flusher) IsBehind() bool { return f.unacked > 0 && f.gathered+f.unacked >= f.size }

// HasOverdueRows reports whether finished rows have waited longer than grace to be recorded.
// The bucket or the store is not available, the job has no owner, or the owner has
// declared this worker lost. These rows may have to run again, so no new rows should
// start.
func (f *Flusher) HasOverdueRows(now time.Time) bool {
	late := func(b *Batch) bool { return now.Sub(b.since) > f.grace }
	for _, b := range f.gathering {
		if late(b) {
			return true
		}
	}
	return slices.ContainsFunc(f.cut, late)
}
