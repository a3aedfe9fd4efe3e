package assign

import (
	"bytes"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/rowmill/rowmill/internal/shard"
)

// Rows is a set of rows of a job, by shard. Rows of a shard are numbered from 0. The
// zero value is empty and ready to use.
type Rows struct {
	shards map[int]*roaring.Bitmap // none is empty
	count  int64
}

// Add adds rows of a shard.
func (r *Rows) Add(shard int, rows *roaring.Bitmap) {
	have := r.shards[shard]
	if have == nil {
		if rows.IsEmpty() {
			return
		}
		if r.shards == nil {
			r.shards = make(map[int]*roaring.Bitmap)
		}
		have = roaring.New()
		r.shards[shard] = have
	}
	before := have.GetCardinality()
	have.Or(rows)
	r.count += int64(have.GetCardinality() - before)
}

// remove removes rows of a shard.
func (r *Rows) remove(shard int, rows *roaring.Bitmap) {
	have := r.shards[shard]
	if have == nil {
		return
	}
	before := have.GetCardinality()
	have.AndNot(rows)
	r.count -= int64(before - have.GetCardinality())
	if have.IsEmpty() {
		delete(r.shards, shard)
	}
}

// of returns the rows of a shard; nil if there are none. The caller must not change
// them.
func (r *Rows) of(shard int) *roaring.Bitmap { return r.shards[shard] }

// in returns the given rows of a shard that are also in r, as a copy.
func (r *Rows) in(shard int, rows *roaring.Bitmap) *roaring.Bitmap {
	if have := r.shards[shard]; have != nil {
		return roaring.And(have, rows)
	}
	return roaring.New()
}

// All iterates over the rows, in the order of their shards.
func (r *Rows) All() iter.Seq2[int, *roaring.Bitmap] {
	return func(yield func(int, *roaring.Bitmap) bool) {
		for _, n := range slices.Sorted(maps.Keys(r.shards)) {
			if !yield(n, r.shards[n]) {
				return
			}
		}
	}
}

// Count returns the number of rows.
func (r *Rows) Count() int64 { return r.count }

// countOf returns the number of rows of a shard.
func (r *Rows) countOf(shard int) int {
	if have := r.shards[shard]; have != nil {
		return int(have.GetCardinality())
	}
	return 0
}

// has reports whether r has the row.
func (r *Rows) has(shard, row int) bool {
	have := r.shards[shard]
	return have != nil && have.ContainsInt(row)
}

// list returns a copy of the rows as they are sent in messages.
func (r *Rows) list() []ShardRows {
	var out []ShardRows
	for n, rows := range r.All() {
		out = append(out, ShardRows{Shard: n, Rows: NewRowSet(rows)})
	}
	return out
}

// rowsOf returns the rows of a list.
func rowsOf(list []ShardRows) (r Rows) {
	for _, s := range list {
		r.Add(s.Shard, s.Rows.Bitmap)
	}
	return r
}

// ShardRows is a set of rows of a shard.
type ShardRows struct {
	Shard int
	Rows  RowSet
}

// A RowSet is an immutable set of rows of a shard.
type RowSet struct{ *roaring.Bitmap }

// NewRowSet returns a copy of rows. It stores ranges of rows as runs where that is
// smaller.
func NewRowSet(rows *roaring.Bitmap) RowSet {
	rows = rows.Clone()
	rows.RunOptimize()
	return RowSet{rows}
}

// Encode returns the set in the portable format of RoaringBitmap; nil if there is no
// bitmap.
func (s RowSet) Encode() []byte {
	if s.Bitmap == nil {
		return nil
	}
	to := bytes.NewBuffer(make([]byte, 0, s.GetSerializedSizeInBytes()))
	_, _ = s.WriteTo(to) // never fails
	return to.Bytes()
}

// DecodeRowSet decodes a set and refuses an invalid one.
func DecodeRowSet(raw []byte) (RowSet, error) {
	if len(raw) == 0 {
		return RowSet{}, nil
	}
	s := RowSet{roaring.New()}
	if err := s.UnmarshalBinary(raw); err != nil {
		return RowSet{}, fmt.Errorf("decode rows: %w", err)
	}
	if err := s.Validate(); err != nil {
		return RowSet{}, fmt.Errorf("decode rows: %w", err)
	}
	return s, nil
}

// A Span is a set of rows of a shard that are assigned together: the rows from From to
// To, without the rows in Except.
type Span struct {
	Shard  int
	From   int
	To     int // excluded
	Except RowSet
	Of     shard.Info // the shard
	// Rows that are assigned by prefix come from a block of shards (see partition). Block is
	// the last shard of this block, and Share the number of the share in the block. Both
	// are 0 for other rows.
	Block int
	Share int
	// Suspects are rows of the span that may have crashed a server. A span that was cut
	// from another span may list rows that it does not have.
	Suspects []Suspect
}

// Behind returns the shard that limits how long the rows may wait: when a worker has
// loaded rows a few shards beyond this one, it sends the waiting rows first. It is the
// last shard of the rows' block, or their own shard.
func (s Span) Behind() int { return max(s.Shard, s.Block) }

// Rows returns the rows of the span.
func (s Span) Rows() *roaring.Bitmap {
	rows := roaring.New()
	rows.AddRange(uint64(s.From), uint64(s.To))
	if s.Except.Bitmap != nil {
		rows.AndNot(s.Except.Bitmap)
	}
	return rows
}

// Count returns the number of rows of the span.
func (s Span) Count() int {
	n := s.To - s.From
	if s.Except.Bitmap != nil {
		n -= int(s.Except.GetCardinality())
	}
	return n
}

// After returns the rows of the span from this row on, this row included. If the span
// does not have this row, the result begins with the next row of the span.
func (s Span) After(row int) Span {
	s.From = min(row, s.To)
	for s.From < s.To && !s.Has(s.From) {
		s.From++
	}
	if s.Except.Bitmap != nil {
		rest := s.Except.Clone()
		rest.RemoveRange(0, uint64(s.From))
		s.Except = RowSet{rest}
	}
	return s
}

// Cut splits off the last n rows of a span with more than n rows.
func (s Span) Cut(n int) (rest, last Span) {
	row, err := s.Rows().Select(uint32(s.Count() - n))
	if err != nil {
		return s, Span{Shard: s.Shard, From: s.To, To: s.To}
	}
	last = s.After(int(row))
	s.To = int(row)
	if s.Except.Bitmap != nil {
		rest := s.Except.Clone()
		rest.RemoveRange(uint64(row), 1<<32)
		s.Except = RowSet{rest}
	}
	return s, last
}

// Has reports whether the span has this row, which must be between From and To.
func (s Span) Has(row int) bool {
	return s.Except.Bitmap == nil || !s.Except.ContainsInt(row)
}
