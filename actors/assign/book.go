package assign

import (
	"fmt"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/rowmill/rowmill/shard"
	"github.com/rowmill/rowmill/store"
)

// A State is how far a row is.
type State string

// The states of a row, in their order. Elsewhere stands for rows that a book
// does not have: a worker's knows only its own.
const (
	Elsewhere State = "elsewhere"
	Free      State = "free"      // nobody has it
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
// The owner of a job keeps one for all its rows; a row is written there as
// soon as its part is reported, since an answer is seen by its worker only.
// Each worker keeps one for the rows it has, in which a free row is one that it
// gives back, and a committed one is gone. A row is in one state at a time, and
// who breaks that loses or repeats it.
type book struct {
	free, finished, written, committed Rows
	assigned                           map[string]*Rows // by worker
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
	b.free.Remove(shard, rows)
	b.of(worker).Add(shard, rows)
}

// release frees those of some rows that are assigned to a worker.
func (b *book) release(worker string, shard int, rows *roaring.Bitmap) {
	have := b.of(worker)
	rows = have.In(shard, rows)
	have.Remove(shard, rows)
	b.free.Add(shard, rows)
}

// releaseAll frees all rows that are assigned to a worker, and returns how many
// those are.
func (b *book) releaseAll(worker string) int64 {
	have := b.of(worker)
	for n, rows := range have.shards {
		b.free.Add(n, rows)
	}
	delete(b.assigned, worker)
	return have.Count()
}

// finish notes that rows of a worker are answered.
func (b *book) finish(worker string, shard int, rows *roaring.Bitmap) {
	have := b.of(worker)
	rows = have.In(shard, rows)
	have.Remove(shard, rows)
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
	b.free.Remove(shard, rows)
	b.finished.Remove(shard, rows)
	b.written.Remove(shard, rows)
	for _, have := range b.assigned {
		have.Remove(shard, rows)
	}
}

// past reports whether any of some rows is written or committed.
func (b *book) past(shard int, rows *roaring.Bitmap) bool {
	return !b.written.In(shard, rows).IsEmpty() || !b.committed.In(shard, rows).IsEmpty()
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
	case b.free.Has(shard, row):
		return Free, ""
	case b.finished.Has(shard, row):
		return Finished, ""
	case b.written.Has(shard, row):
		return Written, ""
	case b.committed.Has(shard, row):
		return Committed, ""
	}
	for worker, rows := range b.assigned {
		if rows.Has(shard, row) {
			return Assigned, worker
		}
	}
	return Elsewhere, ""
}
