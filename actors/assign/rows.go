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

// Rows are rows of a job, by shard. Rows of a shard are numbered from its
// first. The zero value is empty and ready to use.
type Rows struct {
	shards map[int]*roaring.Bitmap // none is empty
	count  int64
}

// Add takes rows of a shard in.
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

// remove takes rows of a shard out.
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

// of are the rows of one shard, nil for none. They must not be changed.
func (r *Rows) of(shard int) *roaring.Bitmap { return r.shards[shard] }

// in are those of some rows of a shard that are among these: a copy.
func (r *Rows) in(shard int, rows *roaring.Bitmap) *roaring.Bitmap {
	if have := r.shards[shard]; have != nil {
		return roaring.And(have, rows)
	}
	return roaring.New()
}

// All goes through the rows, in the order of their shards.
func (r *Rows) All() iter.Seq2[int, *roaring.Bitmap] {
	return func(yield func(int, *roaring.Bitmap) bool) {
		for _, n := range slices.Sorted(maps.Keys(r.shards)) {
			if !yield(n, r.shards[n]) {
				return
			}
		}
	}
}

// Count is how many rows there are.
func (r *Rows) Count() int64 { return r.count }

// countOf is how many of them are of one shard.
func (r *Rows) countOf(shard int) int {
	if have := r.shards[shard]; have != nil {
		return int(have.GetCardinality())
	}
	return 0
}

// has reports whether a row is among them.
func (r *Rows) has(shard, row int) bool {
	have := r.shards[shard]
	return have != nil && have.ContainsInt(row)
}

// list is how rows travel: a copy, by shard.
func (r *Rows) list() []ShardRows {
	var out []ShardRows
	for n, rows := range r.All() {
		out = append(out, ShardRows{Shard: n, Rows: NewRowSet(rows)})
	}
	return out
}

// rowsOf reads a list.
func rowsOf(list []ShardRows) (r Rows) {
	for _, s := range list {
		r.Add(s.Shard, s.Rows.Bitmap)
	}
	return r
}

// ShardRows are rows of one shard.
type ShardRows struct {
	Shard int
	Rows  RowSet
}

// A RowSet is a set of rows of a shard that never changes.
type RowSet struct{ *roaring.Bitmap }

// NewRowSet returns a copy of rows, in runs where that is shorter.
func NewRowSet(rows *roaring.Bitmap) RowSet {
	rows = rows.Clone()
	rows.RunOptimize()
	return RowSet{rows}
}

// Encode returns the set in the portable format of RoaringBitmap; nothing for none.
func (s RowSet) Encode() []byte {
	if s.Bitmap == nil {
		return nil
	}
	to := bytes.NewBuffer(make([]byte, 0, s.GetSerializedSizeInBytes()))
	_, _ = s.WriteTo(to) // never fails
	return to.Bytes()
}

// DecodeRowSet reads a set and refuses what is none.
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

// A Span is a set of rows of one shard, assigned together: those from From to
// To, but for some.
type Span struct {
	Shard  int
	From   int
	To     int // excluded
	Except RowSet
	Of     shard.Info // the shard
	// Block is the last shard of those whose rows are dealt with these, and Share
	// the number of what one worker gets of them; 0 where each shard goes by itself.
	Block int
	Share int
	// Suspects are rows of it that may have crashed a server. Spans that were cut from it
	// may have them too.
	Suspects []Suspect
}

// Behind is the shard behind which rows of the span may stay: that of a block's
// last rows.
func (s Span) Behind() int { return max(s.Shard, s.Block) }

// Rows are the rows of the span.
func (s Span) Rows() *roaring.Bitmap {
	rows := roaring.New()
	rows.AddRange(uint64(s.From), uint64(s.To))
	if s.Except.Bitmap != nil {
		rows.AndNot(s.Except.Bitmap)
	}
	return rows
}

// Count is how many rows the span has.
func (s Span) Count() int {
	n := s.To - s.From
	if s.Except.Bitmap != nil {
		n -= int(s.Except.GetCardinality())
	}
	return n
}

// After is what is left of the span from a row on. It begins with a row that the
// span has.
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

// Cut splits off the last n rows of a span that has more.
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

// Has reports whether a row between From and To is of the span.
func (s Span) Has(row int) bool {
	return s.Except.Bitmap == nil || !s.Except.ContainsInt(row)
}
