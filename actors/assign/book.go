package assign

import (
	"fmt"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/rowmill/rowmill/internal/shard"
	"github.com/rowmill/rowmill/store"
)

// A State is how far a row is.
type State string

// The states of a row, in their order. Elsewhere stands for rows that a book
// does not have: a worker's knows only its own.
const (
	Elsewhere State = "elsewhere"
	Free      State = "free"      // nobody has it
	Copy      State = "copy"      // it gets the answer of an equal row, once that is committed
	Assigned  State = "assigned"  // a worker has it
	Finished  State = "finished"  // and its answer stands
	Written   State = "written"   // in a part that is durable
	Committed State = "committed" // in a part that is recorded: done
)

// A book says of each row in which state it is:
//
//	free ──assign──► assigned ──finish──► finished ──write──► written ──commit──► committed
//	 ▲                  │                                        ▲
//	 └──────release─────┘                                        │
//	                    └─────────────────write──────────────────┘
//
// A copy is assigned to nobody: it is written once its original is committed. Only
// one that a worker has from before runs as other rows do.
//
// The owner of a job keeps one for all its rows; a row is written there as
// soon as its part is reported, since an answer is seen by its worker only.
// Each worker keeps one for the rows it has, in which a free row is one that it
// gives back, and a committed one is gone. A row is in one state at a time, and
// who breaks that loses or repeats it.
type book struct {
	free, copies, finished, written, committed Rows
	assigned                                   map[string]*Rows // by worker
	holders                                    map[int][]*Rows  // those of workers that have rows of a shard
	held                                       int64            // how many rows are assigned
}

// newBook is the book of a job with these shards, of which parts are recorded.
func newBook(shards []shard.Info, parts []store.Part) (*book, error) {
	b := &book{assigned: make(map[string]*Rows)}
	for n, info := range shards {
		b.free.Add(n, span(0, info.Rows))
	}
	for _, p := range parts {
		if p.Shard < 0 || p.Shard >= len(shards) {
			return nil, fmt.Errorf("part %s: no shard %d", p.Key, p.Shard)
		}
		rows := span(0, shards[p.Shard].Rows)
		if !p.Complete {
			rows = roaring.New()
			if err := rows.UnmarshalBinary(p.Accepted); err != nil {
				return nil, fmt.Errorf("part %s: decode accepted rows: %w", p.Key, err)
			}
		}
		b.commit(p.Shard, rows)
	}
	return b, nil
}

func span(from, to int) *roaring.Bitmap {
	rows := roaring.New()
	rows.AddRange(uint64(from), uint64(to))
	return rows
}

// assign gives rows to a worker.
func (b *book) assign(worker string, shard int, rows *roaring.Bitmap) {
	b.free.remove(shard, rows)
	b.copies.remove(shard, rows)
	have := b.of(worker)
	if had := have.countOf(shard); had == 0 && !rows.IsEmpty() {
		if b.holders == nil {
			b.holders = make(map[int][]*Rows)
		}
		b.holders[shard] = append(b.holders[shard], have)
	}
	before := have.Count()
	have.Add(shard, rows)
	b.held += have.Count() - before
}

// set says which rows of a shard are copies, nil for none, as far as nobody has them.
func (b *book) set(shard int, copies *roaring.Bitmap) {
	if copies == nil {
		copies = roaring.New()
	}
	if had := b.copies.of(shard); had != nil {
		others := roaring.AndNot(had, copies)
		b.copies.remove(shard, others)
		b.free.Add(shard, others)
	}
	rows := b.free.in(shard, copies)
	b.free.remove(shard, rows)
	b.copies.Add(shard, rows)
}

// take takes rows of a shard from a worker.
func (b *book) take(have *Rows, shard int, rows *roaring.Bitmap) {
	before := have.Count()
	have.remove(shard, rows)
	b.held -= before - have.Count()
	if before > have.Count() && have.countOf(shard) == 0 {
		b.leave(have, shard)
	}
}

// leave notes that a worker has no row of a shard any more.
func (b *book) leave(have *Rows, shard int) {
	rest := slices.DeleteFunc(b.holders[shard], func(r *Rows) bool { return r == have })
	if b.holders[shard] = rest; len(rest) == 0 {
		delete(b.holders, shard)
	}
}

// release frees those of some rows that are assigned to a worker.
func (b *book) release(worker string, shard int, rows *roaring.Bitmap) {
	have := b.of(worker)
	rows = have.in(shard, rows)
	b.take(have, shard, rows)
	b.free.Add(shard, rows)
}

// releaseAll frees all rows that are assigned to a worker, and returns how many
// those are.
func (b *book) releaseAll(worker string) int64 {
	have := b.of(worker)
	for n, rows := range have.shards {
		b.free.Add(n, rows)
		b.leave(have, n)
	}
	b.held -= have.Count()
	delete(b.assigned, worker)
	return have.Count()
}

// finish notes that rows of a worker are answered.
func (b *book) finish(worker string, shard int, rows *roaring.Bitmap) {
	have := b.of(worker)
	rows = have.in(shard, rows)
	b.take(have, shard, rows)
	b.finished.Add(shard, rows)
}

// write notes that rows are in a durable part, whoever has them.
func (b *book) write(shard int, rows *roaring.Bitmap) {
	b.forget(shard, rows)
	b.written.Add(shard, rows)
}

// commit notes that rows are recorded.
func (b *book) commit(shard int, rows *roaring.Bitmap) {
	b.forget(shard, rows)
	b.committed.Add(shard, rows)
}

// forget takes rows out of the book.
func (b *book) forget(shard int, rows *roaring.Bitmap) {
	b.free.remove(shard, rows)
	b.copies.remove(shard, rows)
	b.finished.remove(shard, rows)
	b.written.remove(shard, rows)
	for _, have := range slices.Clone(b.holders[shard]) {
		b.take(have, shard, rows)
	}
}

// past reports whether any of some rows is written or committed.
func (b *book) past(shard int, rows *roaring.Bitmap) bool {
	return !b.written.in(shard, rows).IsEmpty() || !b.committed.in(shard, rows).IsEmpty()
}

// of are the rows assigned to a worker.
func (b *book) of(worker string) *Rows {
	if b.assigned[worker] == nil {
		b.assigned[worker] = new(Rows)
	}
	return b.assigned[worker]
}

// where says in which state a row is, and which worker it is assigned to.
func (b *book) where(shard, row int) (state State, worker string) {
	switch {
	case b.free.has(shard, row):
		return Free, ""
	case b.copies.has(shard, row):
		return Copy, ""
	case b.finished.has(shard, row):
		return Finished, ""
	case b.written.has(shard, row):
		return Written, ""
	case b.committed.has(shard, row):
		return Committed, ""
	}
	for worker, rows := range b.assigned {
		if rows.has(shard, row) {
			return Assigned, worker
		}
	}
	return Elsewhere, ""
}
