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

// RowsByShard is a set of rows of a job, stored by shard. The rows of a shard are numbered
// from 0. The zero value is an empty set.
type RowsByShard struct {
	shards map[int]*roaring.Bitmap // by shard: the rows of the shard in the set; no bitmap is empty
	count  int64                   // number of rows in the set
}

// Add adds rows of a shard.
func (r *RowsByShard) Add(shard int, rows *roaring.Bitmap) {
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
func (r *RowsByShard) remove(shard int, rows *roaring.Bitmap) {
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

// inShard returns the rows of a shard in the set; nil if there are none. The caller must not
// change the result.
func (r *RowsByShard) inShard(shard int) *roaring.Bitmap { return r.shards[shard] }

// intersect returns a copy of the given rows, without rows that are not in the set.
func (r *RowsByShard) intersect(shard int, rows *roaring.Bitmap) *roaring.Bitmap {
	if have := r.shards[shard]; have != nil {
		return roaring.And(have, rows)
	}
	return roaring.New()
}

// All iterates over the shards in order. It yields the number of each shard and the
// rows of the shard.
func (r *RowsByShard) All() iter.Seq2[int, *roaring.Bitmap] {
	return func(yield func(int, *roaring.Bitmap) bool) {
		for _, n := range slices.Sorted(maps.Keys(r.shards)) {
			if !yield(n, r.shards[n]) {
				return
			}
		}
	}
}

// Count returns the number of rows in the set.
func (r *RowsByShard) Count() int64 { return r.count }

// countOf returns the number of rows of one shard in the set.
func (r *RowsByShard) countOf(shard int) int {
	if have := r.shards[shard]; have != nil {
		return int(have.GetCardinality())
	}
	return 0
}

// has reports whether the set has the row with this number in the shard.
func (r *RowsByShard) has(shard, row int) bool {
	have := r.shards[shard]
	return have != nil && have.ContainsInt(row)
}

// list returns a copy of the set in the form that messages use.
func (r *RowsByShard) list() []ShardRows {
	var out []ShardRows
	for n, rows := range r.All() {
		out = append(out, ShardRows{Shard: n, Rows: NewRowSet(rows)})
	}
	return out
}

// rowsOf returns the set of all rows in list.
func rowsOf(list []ShardRows) (r RowsByShard) {
	for _, s := range list {
		r.Add(s.Shard, s.Rows.Bitmap)
	}
	return r
}

// ShardRows is a set of rows of one shard, as sent in messages.
type ShardRows struct {
	Shard int
	Rows  RowSet
}

// A RowSet is a set of rows of one shard that nobody may change.
type RowSet struct{ *roaring.Bitmap }

// NewRowSet returns a copy of rows. The copy stores consecutive rows as runs if this
// needs less memory.
func NewRowSet(rows *roaring.Bitmap) RowSet {
	rows = rows.Clone()
	rows.RunOptimize()
	return RowSet{rows}
}

// Encode returns the set in the portable format of RoaringBitmap. It returns nil if the
// set has no bitmap.
func (s RowSet) Encode() []byte {
	if s.Bitmap == nil {
		return nil
	}
	to := bytes.NewBuffer(make([]byte, 0, s.GetSerializedSizeInBytes()))
	_, _ = s.WriteTo(to) // never fails
	return to.Bytes()
}

// DecodeRowSet decodes the result of Encode. It returns an error if the bytes are not a
// valid set.
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

// A RowSpan is a set of rows of one shard that are assigned together: the rows from From
// up to To, without the rows in Except.
type RowSpan struct {
	Shard  int
	From   int
	To     int // the first row after the span
	Except RowSet
	Of     shard.ManifestEntry // the description of the shard
	// Rows that are assigned by prefix come from a block of shards (see partition). Block is
	// the last shard of this block, and Share the number of the share in the block. Both
	// are 0 for other rows.
	Block int
	Share int
	// Suspects are rows of the span that may have crashed a server. A span that was cut
	// from another span may list rows that it does not have.
	Suspects []SuspectRow
}

// WaitLimitShard returns the shard that limits how long the rows of the span may wait. When a
// worker has loaded rows a few shards after this shard, it sends the waiting rows
// first. The shard is the last shard of the span's block, or the span's own shard if
// the span has no block.
func (s RowSpan) WaitLimitShard() int { return max(s.Shard, s.Block) }

// Rows returns the rows of the span.
func (s RowSpan) Rows() *roaring.Bitmap {
	rows := roaring.New()
	rows.AddRange(uint64(s.From), uint64(s.To))
	if s.Except.Bitmap != nil {
		rows.AndNot(s.Except.Bitmap)
	}
	return rows
}

// Count returns the number of rows of the span.
func (s RowSpan) Count() int {
	n := s.To - s.From
	if s.Except.Bitmap != nil {
		n -= int(s.Except.GetCardinality())
	}
	return n
}

// TrimBefore returns the span without the rows before row. If the span does not have row
// itself, the result begins with the next row of the span.
func (s RowSpan) TrimBefore(row int) RowSpan {
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

// SplitLast splits a span in two: last has its last n rows, and rest has the other rows. The
// span must have more than n rows.
func (s RowSpan) SplitLast(n int) (rest, last RowSpan) {
	row, err := s.Rows().Select(uint32(s.Count() - n))
	if err != nil {
		return s, RowSpan{Shard: s.Shard, From: s.To, To: s.To}
	}
	last = s.TrimBefore(int(row))
	s.To = int(row)
	if s.Except.Bitmap != nil {
		rest := s.Except.Clone()
		rest.RemoveRange(uint64(row), 1<<32)
		s.Except = RowSet{rest}
	}
	return s, last
}

// Has reports whether the span has this row. row must be from From up to To.
func (s RowSpan) Has(row int) bool {
	return s.Except.Bitmap == nil || !s.Except.ContainsInt(row)
}
