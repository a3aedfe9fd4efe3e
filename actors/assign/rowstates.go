package assign

import (
	"fmt"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/rowmill/rowmill/internal/shard"
	"github.com/rowmill/rowmill/store"
)

// A RowState is how far a row has come, from Free to Committed.
type RowState string

// The states of a row, in their order. rowStates returns Elsewhere for a row that it
// does not have, because a worker keeps only the states of its own rows.
const (
	Elsewhere RowState = "elsewhere" // the row is unknown here
	Free      RowState = "free"      // no worker has the row
	Copy      RowState = "copy"      // the row gets the answer of an equal row after the equal row is committed
	Assigned  RowState = "assigned"  // a worker has the row
	Finished  RowState = "finished"  // the row has an answer
	Written   RowState = "written"   // the row is in a stored part
	Committed RowState = "committed" // the row is in a part that the store has recorded: the row is done
)

// rowStates has the state of each row:
//
//	free ──assign──► assigned ──finish──► finished ──write──► written ──commit──► committed
//	 ▲                  │                                        ▲
//	 └──────release─────┘                                        │
//	                    └─────────────────write──────────────────┘
//
// The owner never assigns a copy (a row with the text of an earlier row, the original): it
// writes the copy after the original is committed. But a worker may have got the row
// before the owner knew the list of copies. Such a row runs like other rows.
//
// The owner of a job keeps the states of all rows. Only the worker sees an answer, so for
// the owner a row is written as soon as a worker reports its part. Each worker keeps
// the states of its own rows. In a worker, a free row is a row to give back, and a
// committed row is removed. A row must have exactly one state, or it is lost or runs twice.
type rowStates struct {
	free, copies, finished, written, committed RowsByShard
	assigned                                   map[string]*RowsByShard // by worker: the rows assigned to the worker
	// holders has, by shard, the entries of assigned that have rows of the shard.
	holders       map[int][]*RowsByShard
	assignedCount int64 // number of assigned rows
}

// newRowStates returns the states of all rows of a job: rows in the recorded parts are
// committed, and other rows are free.
func newRowStates(shards []shard.ManifestEntry, parts []store.Part) (*rowStates, error) {
	b := &rowStates{assigned: make(map[string]*RowsByShard)}
	for n, info := range shards {
		b.free.Add(n, rowRange(0, info.Rows))
	}
	for _, p := range parts {
		if p.Shard < 0 || p.Shard >= len(shards) {
			return nil, fmt.Errorf("part %s: the job has no shard %d", p.Key, p.Shard)
		}
		rows := rowRange(0, shards[p.Shard].Rows)
		if !p.Complete {
			rows = roaring.New()
			if err := rows.UnmarshalBinary(p.Accepted); err != nil {
				return nil, fmt.Errorf("part %s: decode accepted rows: %w", p.Key, err)
			}
		}
		b.markCommitted(p.Shard, rows)
	}
	return b, nil
}

// rowRange returns the rows from from up to to, without to.
func rowRange(from, to int) *roaring.Bitmap {
	rows := roaring.New()
	rows.AddRange(uint64(from), uint64(to))
	return rows
}

// assign moves rows of a shard into the state Assigned, for a worker.
func (b *rowStates) assign(worker string, shard int, rows *roaring.Bitmap) {
	b.free.remove(shard, rows)
	b.copies.remove(shard, rows)
	have := b.assignedTo(worker)
	if had := have.countOf(shard); had == 0 && !rows.IsEmpty() {
		if b.holders == nil {
			b.holders = make(map[int][]*RowsByShard)
		}
		b.holders[shard] = append(b.holders[shard], have)
	}
	before := have.Count()
	have.Add(shard, rows)
	b.assignedCount += have.Count() - before
}

// setCopies sets which free rows of a shard are copies; nil means none. Rows that are
// no copies any more become free.
func (b *rowStates) setCopies(shard int, copies *roaring.Bitmap) {
	if copies == nil {
		copies = roaring.New()
	}
	if had := b.copies.inShard(shard); had != nil {
		others := roaring.AndNot(had, copies)
		b.copies.remove(shard, others)
		b.free.Add(shard, others)
	}
	rows := b.free.intersect(shard, copies)
	b.free.remove(shard, rows)
	b.copies.Add(shard, rows)
}

// unassign removes rows of a shard from the row set of one worker.
func (b *rowStates) unassign(have *RowsByShard, shard int, rows *roaring.Bitmap) {
	before := have.Count()
	have.remove(shard, rows)
	b.assignedCount -= before - have.Count()
	if before > have.Count() && have.countOf(shard) == 0 {
		b.removeHolder(have, shard)
	}
}

// removeHolder removes a worker's row set from the holders of a shard, because the
// worker has no more rows there.
func (b *rowStates) removeHolder(have *RowsByShard, shard int) {
	rest := slices.DeleteFunc(b.holders[shard], func(r *RowsByShard) bool { return r == have })
	if b.holders[shard] = rest; len(rest) == 0 {
		delete(b.holders, shard)
	}
}

// release makes rows of a worker free. Rows that the worker does not have do not
// change.
func (b *rowStates) release(worker string, shard int, rows *roaring.Bitmap) {
	have := b.assignedTo(worker)
	rows = have.intersect(shard, rows)
	b.unassign(have, shard, rows)
	b.free.Add(shard, rows)
}

// releaseAll makes all rows of a worker free, and returns their number.
func (b *rowStates) releaseAll(worker string) int64 {
	have := b.assignedTo(worker)
	for n, rows := range have.shards {
		b.free.Add(n, rows)
		b.removeHolder(have, n)
	}
	b.assignedCount -= have.Count()
	delete(b.assigned, worker)
	return have.Count()
}

// markFinished moves rows of a worker into the state Finished, because they have answers.
func (b *rowStates) markFinished(worker string, shard int, rows *roaring.Bitmap) {
	have := b.assignedTo(worker)
	rows = have.intersect(shard, rows)
	b.unassign(have, shard, rows)
	b.finished.Add(shard, rows)
}

// markWritten moves rows into the state Written, because they are in a stored part. Any
// worker may have had the rows.
func (b *rowStates) markWritten(shard int, rows *roaring.Bitmap) {
	b.removeUncommitted(shard, rows)
	b.written.Add(shard, rows)
}

// markCommitted moves rows into the state Committed, because the store has recorded them.
func (b *rowStates) markCommitted(shard int, rows *roaring.Bitmap) {
	b.removeUncommitted(shard, rows)
	b.committed.Add(shard, rows)
}

// removeUncommitted removes rows from all states except Committed.
func (b *rowStates) removeUncommitted(shard int, rows *roaring.Bitmap) {
	b.free.remove(shard, rows)
	b.copies.remove(shard, rows)
	b.finished.remove(shard, rows)
	b.written.remove(shard, rows)
	for _, have := range slices.Clone(b.holders[shard]) {
		b.unassign(have, shard, rows)
	}
}

// anyWritten reports whether at least one of the rows is in a stored part, recorded or
// not.
func (b *rowStates) anyWritten(shard int, rows *roaring.Bitmap) bool {
	return !b.written.intersect(shard, rows).IsEmpty() || !b.committed.intersect(shard, rows).IsEmpty()
}

// assignedTo returns the rows that are assigned to a worker.
func (b *rowStates) assignedTo(worker string) *RowsByShard {
	if b.assigned[worker] == nil {
		b.assigned[worker] = new(RowsByShard)
	}
	return b.assigned[worker]
}

// stateOf returns the state of a row. worker is empty unless the row is assigned.
func (b *rowStates) stateOf(shard, row int) (state RowState, worker string) {
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
