package actors

import (
	"encoding/base64"
	"fmt"
	"maps"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"
)

// holdings are rows, by shard: those a worker has, or gives back.
type holdings map[int]*roaring.Bitmap

// add takes rows of a shard in.
func (h holdings) add(shard int, rows *roaring.Bitmap) {
	if have := h[shard]; have != nil {
		have.Or(rows)
	} else if !rows.IsEmpty() {
		h[shard] = rows.Clone()
	}
}

// remove takes rows of a shard out.
func (h holdings) remove(shard int, rows *roaring.Bitmap) {
	have := h[shard]
	if have == nil {
		return
	}
	if have.AndNot(rows); have.IsEmpty() {
		delete(h, shard)
	}
}

// count is how many rows there are.
func (h holdings) count() (n int64) {
	for _, rows := range h {
		n += int64(rows.GetCardinality())
	}
	return n
}

// list is the holdings as they travel: a copy, by shard.
func (h holdings) list() []shardRows {
	var out []shardRows
	for _, shard := range slices.Sorted(maps.Keys(h)) {
		out = append(out, shardRows{Shard: shard, Rows: newRowSet(h[shard])})
	}
	return out
}

// held reads a list.
func held(list []shardRows) holdings {
	h := make(holdings, len(list))
	for _, s := range list {
		h.add(s.Shard, s.Rows.Bitmap)
	}
	return h
}

// shardRows are rows of one shard.
type shardRows struct {
	Shard int    `json:"shard"`
	Rows  rowSet `json:"rows"`
}

// A rowSet is a set of rows, relative to their shard's first. It never changes.
// As JSON it is the portable format of RoaringBitmap in base64.
type rowSet struct{ *roaring.Bitmap }

// newRowSet returns a copy of rows, in runs where that is shorter.
func newRowSet(rows *roaring.Bitmap) rowSet {
	rows = rows.Clone()
	rows.RunOptimize()
	return rowSet{rows}
}

// MarshalText encodes the set.
func (s rowSet) MarshalText() ([]byte, error) {
	if s.Bitmap == nil {
		return nil, nil
	}
	raw, err := s.ToBytes()
	if err != nil {
		return nil, fmt.Errorf("encode rows: %w", err)
	}
	return []byte(base64.StdEncoding.EncodeToString(raw)), nil
}

// UnmarshalText decodes a set and refuses what is none.
func (s *rowSet) UnmarshalText(text []byte) error {
	s.Bitmap = roaring.New()
	if len(text) == 0 {
		return nil
	}
	raw, err := base64.StdEncoding.DecodeString(string(text))
	if err != nil {
		return fmt.Errorf("decode rows: %w", err)
	}
	if err := s.UnmarshalBinary(raw); err != nil {
		return fmt.Errorf("decode rows: %w", err)
	}
	if err := s.Validate(); err != nil {
		return fmt.Errorf("decode rows: %w", err)
	}
	return nil
}
